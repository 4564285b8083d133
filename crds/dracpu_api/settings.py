"""The spec of a CpuNode: the settings of a node, as dataclasses.

Decoding keeps fields that this version does not know, and encoding writes them back: a program of an older version must
not remove what a newer one has written. A known field with a value that is not understood is an error.

A field that is added later enters the encoding only where it differs from its default (`_LATER_SETTINGS`, and those of
`memory`). So a new version changes neither the revision of settings that do not use the field, nor what agents of the
former version read.

The agent uses this module instead of the pydantic models, which would cost every node some 20 MiB. A test compares the
two descriptions.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from operator import itemgetter
from typing import Any, Final

from dracpu_api.cpuset import EMPTY, CpuSet
from dracpu_api.fields import Fields, SettingsError, nothing
from dracpu_api.memory_kinds import RESERVABLE
from dracpu_api.names import DRIVER
from dracpu_api.quantity import format_binary

__all__ = [
    "REMOVAL_SECONDS", "SETTLE_SECONDS", "Allocation", "CpuNodeSpec", "GroupBy", "MemorySettings", "Mode",
    "OutstandingClaim", "OutstandingDevice", "ProvisionedPages", "Publish", "ReservedMemory", "Settings",
    "SettingsError", "Strategy", "changed_fields", "decode_settings", "decode_spec", "encode_settings", "encode_spec",
]  # fmt: skip

SETTLE_SECONDS: Final = 10  # the default of rollout.settleSeconds
REMOVAL_SECONDS: Final = 60  # rollout.removalSeconds when it is absent

# Later fields: the name in the object, and the attribute. Values are booleans, numbers and texts.
_LATER_SETTINGS: Final[Mapping[str, str]] = {}
_LATER_ALLOCATION: Final[Mapping[str, str]] = {}
_LATER_MEMORY: Final[Mapping[str, str]] = {
    "enabled": "enabled",
    "publish": "publish",
    "cpulessNodes": "cpuless_nodes",
}


class Mode(StrEnum):
    """How CPUs are offered."""

    GROUPED = "grouped"
    INDIVIDUAL = "individual"


class GroupBy(StrEnum):
    """Which CPUs form one device in grouped mode."""

    NUMA_NODE = "numanode"
    SOCKET = "socket"
    MACHINE = "machine"
    L3_CACHE = "l3cache"


class Strategy(StrEnum):
    """Whether the CPUs of a claim are close together or spread."""

    PACKED = "packed"
    DISTRIBUTED = "distributed"


class Publish(StrEnum):
    """How memory is offered: by devices of its own, or as capacities of the devices of CPUs."""

    DEVICES = "Devices"
    WITH_CPUS = "WithCPUs"


@dataclass(frozen=True, slots=True)
class Allocation:
    """Which CPUs a claim gets inside the device that the scheduler gave it."""

    strategy: Strategy = Strategy.PACKED
    full_cores: bool = False
    prefer_uncore_cache: bool = True


@dataclass(frozen=True, slots=True)
class ReservedMemory:
    """What is never offered on one NUMA node."""

    numa_node: int
    amounts: tuple[tuple[str, int], ...]  # kind of memory ("memory", "hugepages_2Mi") -> bytes, sorted by kind


@dataclass(frozen=True, slots=True, order=True)
class ProvisionedPages:
    """How many hugepages of one size a NUMA node is to have; the missing ones are made while the machine runs."""

    numa_node: int
    size: int  # bytes
    pages: int


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """Whether and how a node offers its memory and hugepages."""

    enabled: bool = False
    publish: Publish = Publish.DEVICES
    hugepages: tuple[int, ...] | None = None  # page sizes to offer, ascending; None: all that have pages; (): none
    reserved: tuple[ReservedMemory, ...] = ()  # ascending by NUMA node
    provision: tuple[ProvisionedPages, ...] = ()  # ascending by NUMA node and size, each of which is there once
    cpuless_nodes: bool = False


@dataclass(frozen=True, slots=True)
class Settings:
    """The spec of a CpuDriverConfig without selector, priority and rollout, which only the operator uses."""

    mode: Mode = Mode.GROUPED
    group_by: GroupBy = GroupBy.NUMA_NODE
    reserved_cpus: CpuSet = EMPTY  # empty: the agent withholds its lowest core
    allocation: Allocation = field(default_factory=Allocation)
    expose_pcie_roots: bool = False
    node_allocatable: bool = False
    memory: MemorySettings = MemorySettings()
    unknown: Mapping[str, Any] = field(default_factory=nothing, hash=False)  # by field; nested ones as well

    @property
    def ignored(self) -> tuple[str, ...]:
        """The paths of the settings that this version does not know, such as `settings.allocation.turbo`."""
        others = dict(self.unknown)
        allocation, memory = others.pop("allocation", {}), dict(others.pop("memory", {}))
        entries = {name: memory.pop(name, ()) for name in ("reserved", "provision")}
        objects = [("settings", others), ("settings.allocation", allocation), ("settings.memory", memory)]
        objects += [(f"settings.memory.{name}", entry) for name, unknown in entries.items() for entry in unknown]
        return tuple(sorted({f"{path}.{name}" for path, unknown in objects for name in unknown}))

    @property
    def representation(self) -> tuple[Mode, GroupBy | None]:
        """Settings with different representations publish different devices. groupBy has no effect in individual
        mode."""
        return (self.mode, self.group_by if self.mode is Mode.GROUPED else None)

    @property
    def memory_representation(self) -> Publish | None:
        """How memory is published; None where it is not. WithCPUs counts only where each device of CPUs is one NUMA
        node, which has the memory: in other modes and groupings, memory has devices of its own."""
        if not self.memory.enabled:
            return None
        return self.memory.publish if self.representation == (Mode.GROUPED, GroupBy.NUMA_NODE) else Publish.DEVICES


@dataclass(frozen=True, slots=True)
class OutstandingDevice:
    """A device, or a share of one, that a claim was given."""

    name: str
    cpus: int  # how many of its CPUs: 1 for an individual device, 0 for a device of memory
    driver: str = DRIVER
    amounts: tuple[tuple[str, int], ...] = ()  # kind of memory ("hugepages_2Mi") -> bytes, sorted by kind


@dataclass(frozen=True, slots=True)
class OutstandingClaim:
    """A claim that the scheduler allocated on this node before the node's devices changed."""

    uid: str
    namespace: str
    name: str
    devices: tuple[OutstandingDevice, ...]
    unknown: Mapping[str, Any] = field(default_factory=nothing, compare=False)


@dataclass(frozen=True, slots=True)
class CpuNodeSpec:
    """The spec of a CpuNode."""

    config_name: str
    config_generation: int
    settings: Settings
    revision: str
    outstanding: tuple[OutstandingClaim, ...] = ()
    settle_seconds: int = SETTLE_SECONDS
    unknown: Mapping[str, Any] = field(default_factory=nothing, hash=False)  # but for those of settings and claims


def decode_spec(spec: object) -> CpuNodeSpec:
    """Reads `CpuNode.spec`."""
    reader = Fields(spec, "spec")
    config = reader.nested("config")
    return CpuNodeSpec(
        config_name=config.text("name"),
        config_generation=config.integer("generation"),
        settings=_decode_settings(reader.nested("settings")),
        revision=reader.text("revision"),
        outstanding=tuple(_decode_outstanding(item) for item in reader.items("outstanding")),
        settle_seconds=reader.integer("settleSeconds", default=SETTLE_SECONDS),
        unknown=reader.unknown(config=config.unknown()),
    )


def decode_settings(settings: object) -> Settings:
    """Reads settings, which the operator resolves from a config."""
    return _decode_settings(Fields(settings, "settings"))


def encode_spec(spec: CpuNodeSpec) -> dict[str, Any]:
    """The inverse of `decode_spec`."""
    known = {
        "config": {"name": spec.config_name, "generation": spec.config_generation},
        "settings": encode_settings(spec.settings),
        "revision": spec.revision,
        "outstanding": [_encode_outstanding(claim) for claim in spec.outstanding],
        "settleSeconds": spec.settle_seconds,
    }
    return _merged(known, spec.unknown)


def encode_settings(settings: Settings) -> dict[str, Any]:
    """The inverse of `decode_settings`."""
    allocation, memory = settings.allocation, _encode_memory(settings.memory)
    known = {
        "mode": settings.mode.value,
        "groupBy": settings.group_by.value,
        "reservedCPUs": str(settings.reserved_cpus),
        "allocation": {
            "strategy": allocation.strategy.value,
            "fullCores": allocation.full_cores,
            "preferUncoreCache": allocation.prefer_uncore_cache,
            **changed_fields(allocation, _LATER_ALLOCATION),
        },
        "exposePCIeRoots": settings.expose_pcie_roots,
        "nodeAllocatable": settings.node_allocatable,
        **changed_fields(settings, _LATER_SETTINGS),
        **({"memory": memory} if memory else {}),
    }
    return _merged(known, settings.unknown)


def changed_fields(record: Settings | Allocation | MemorySettings, names: Mapping[str, str]) -> dict[str, Any]:
    """The values of those attributes that differ from their defaults, by their names in the object."""
    defaults = {item.name: item.default for item in fields(record)}
    values = {name: (getattr(record, attribute), defaults[attribute]) for name, attribute in names.items()}
    return {
        name: value.value if isinstance(value, StrEnum) else value
        for name, (value, default) in values.items()
        if value != default
    }


def _decode_settings(reader: Fields) -> Settings:
    allocation, memory = reader.nested("allocation", optional=True), reader.nested("memory", optional=True)
    reserved, provision = _in_order(memory), _provisioned(memory)
    return Settings(
        mode=reader.choice("mode", Mode, Mode.GROUPED),
        group_by=reader.choice("groupBy", GroupBy, GroupBy.NUMA_NODE),
        reserved_cpus=reader.cpuset("reservedCPUs"),
        allocation=Allocation(
            strategy=allocation.choice("strategy", Strategy, Strategy.PACKED),
            full_cores=allocation.flag("fullCores", default=False),
            prefer_uncore_cache=allocation.flag("preferUncoreCache", default=True),
        ),
        expose_pcie_roots=reader.flag("exposePCIeRoots", default=False),
        node_allocatable=reader.flag("nodeAllocatable", default=False),
        memory=MemorySettings(
            enabled=memory.flag("enabled", default=False),
            publish=memory.choice("publish", Publish, Publish.DEVICES),
            hugepages=memory.page_sizes("hugepages"),
            reserved=tuple(_decode_reserved(numa_node, entry) for numa_node, entry in reserved),
            provision=tuple(pages for pages, _ in provision),
            cpuless_nodes=memory.flag("cpulessNodes", default=False),
        ),
        unknown=reader.unknown(
            allocation=allocation.unknown(),
            memory=memory.unknown(
                reserved=_unknown_of_each(entry for _, entry in reserved),
                provision=_unknown_of_each(entry for _, entry in provision),
            ),
        ),
    )


def _in_order(memory: Fields) -> list[tuple[int, Fields]]:
    """The entries about reserved memory, ascending by NUMA node."""
    entries = [(entry.integer("numaNode"), entry) for entry in memory.items("reserved")]
    numa_nodes = [numa_node for numa_node, _ in entries]
    if any(numa_node < 0 for numa_node in numa_nodes) or len(set(numa_nodes)) < len(numa_nodes):
        raise memory.wrong("reserved", "a list that names each NUMA node once, by its number", numa_nodes)
    return sorted(entries, key=itemgetter(0))


def _decode_reserved(numa_node: int, entry: Fields) -> ReservedMemory:
    amounts = ((kind, entry.amount(kind)) for kind in sorted(RESERVABLE))
    return ReservedMemory(numa_node, tuple((kind, amount) for kind, amount in amounts if amount is not None))


def _provisioned(memory: Fields) -> list[tuple[ProvisionedPages, Fields]]:
    """The entries about pages to provision, ascending by NUMA node and size."""
    entries = [
        (ProvisionedPages(entry.integer("numaNode"), entry.page_size("size"), entry.integer("pages")), entry)
        for entry in memory.items("provision")
    ]
    places = [(pages.numa_node, format_binary(pages.size)) for pages, _ in entries]
    if len(set(places)) < len(places):
        raise memory.wrong("provision", "a list that names each NUMA node and size once", places)
    for pages, _ in entries:
        if pages.numa_node < 0 or pages.pages < 1:
            raise memory.wrong("provision", "a list of 1 or more pages on NUMA nodes, named by their numbers", pages)
    return sorted(entries, key=itemgetter(0))


def _encode_memory(memory: MemorySettings) -> dict[str, Any]:
    encoded = changed_fields(memory, _LATER_MEMORY)
    if memory.hugepages is not None:
        encoded["hugepages"] = [format_binary(size) for size in memory.hugepages]
    if memory.reserved:
        encoded["reserved"] = [
            {"numaNode": entry.numa_node, **{kind: format_binary(amount) for kind, amount in entry.amounts}}
            for entry in memory.reserved
        ]
    if memory.provision:
        encoded["provision"] = [
            {"numaNode": entry.numa_node, "size": format_binary(entry.size), "pages": entry.pages}
            for entry in memory.provision
        ]
    return encoded


def _decode_outstanding(item: Fields) -> OutstandingClaim:
    readers = item.items("devices")
    return OutstandingClaim(
        uid=item.text("uid"),
        namespace=item.text("namespace"),
        name=item.text("name"),
        devices=tuple(
            OutstandingDevice(
                name=device.text("name"),
                cpus=device.integer("cpus", default=0),
                driver=device.text("driver", default=DRIVER),
                amounts=device.numbers("amounts"),
            )
            for device in readers
        ),
        unknown=item.unknown(devices=_unknown_of_each(readers)),
    )


def _encode_outstanding(claim: OutstandingClaim) -> dict[str, Any]:
    devices = [_encode_device(device) for device in claim.devices]
    return _merged(
        {"uid": claim.uid, "namespace": claim.namespace, "name": claim.name, "devices": devices}, claim.unknown
    )


def _encode_device(device: OutstandingDevice) -> dict[str, Any]:
    """A device of CPUs alone is written as before there was memory. `cpus` is always there, also as 0: agents of the
    former version refuse a whole spec in which a device lacks it, and take no notice of devices that they do not
    know."""
    encoded: dict[str, Any] = {"name": device.name, "cpus": device.cpus}
    if device.driver != DRIVER:
        encoded["driver"] = device.driver
    if device.amounts:
        encoded["amounts"] = dict(device.amounts)
    return encoded


def _unknown_of_each(readers: Iterable[Fields]) -> list[Mapping[str, Any]]:
    found = [reader.unknown() for reader in readers]
    return found if any(found) else []


def _merged(known: dict[str, Any], unknown: Mapping[str, Any]) -> dict[str, Any]:
    """Adds the unknown fields to the known ones, at every level. Lists have the same length in both."""
    for name, value in unknown.items():
        there = known.get(name)
        if isinstance(there, dict):
            _merged(there, value)
        elif isinstance(there, list):
            for item, more in zip(there, value, strict=True):
                _merged(item, more)
        else:
            known[name] = value
    return known
