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
from dracpu_api.quantity import format_binary

__all__ = [
    "REMOVAL_SECONDS", "SETTLE_SECONDS", "Allocation", "CpuNodeSpec", "GroupBy", "MemorySettings", "Mode",
    "OutstandingClaim", "ReservedMemory", "Settings", "SettingsError", "Strategy", "changed_fields", "decode_settings",
    "decode_spec", "encode_settings", "encode_spec",
]  # fmt: skip

SETTLE_SECONDS: Final = 10  # the default of rollout.settleSeconds
REMOVAL_SECONDS: Final = 60  # rollout.removalSeconds when it is absent

# Later fields: the name in the object, and the attribute. Values are booleans, numbers and texts.
_LATER_SETTINGS: Final[Mapping[str, str]] = {}
_LATER_ALLOCATION: Final[Mapping[str, str]] = {}
_LATER_MEMORY: Final[Mapping[str, str]] = {"enabled": "enabled", "cpulessNodes": "cpuless_nodes"}


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


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """Whether and how a node offers its memory and hugepages."""

    enabled: bool = False
    hugepages: tuple[int, ...] | None = None  # page sizes to offer, ascending; None: all that have pages; (): none
    reserved: tuple[ReservedMemory, ...] = ()  # ascending by NUMA node
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
        entries = memory.pop("reserved", ())
        objects = [("settings", others), ("settings.allocation", allocation), ("settings.memory", memory)]
        objects += [("settings.memory.reserved", entry) for entry in entries]
        return tuple(sorted({f"{path}.{name}" for path, unknown in objects for name in unknown}))

    @property
    def representation(self) -> tuple[Mode, GroupBy | None]:
        """Settings with different representations publish different devices. groupBy has no effect in individual
        mode."""
        return (self.mode, self.group_by if self.mode is Mode.GROUPED else None)


@dataclass(frozen=True, slots=True)
class OutstandingClaim:
    """A claim that the scheduler allocated on this node before the node's devices changed."""

    uid: str
    namespace: str
    name: str
    devices: tuple[tuple[str, int], ...]  # a device's name, and how many of its CPUs; 1 for an individual device
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
    return {
        name: value for name, attribute in names.items() if (value := getattr(record, attribute)) != defaults[attribute]
    }


def _decode_settings(reader: Fields) -> Settings:
    allocation, memory = reader.nested("allocation", optional=True), reader.nested("memory", optional=True)
    reserved = _in_order(memory)
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
            hugepages=memory.page_sizes("hugepages"),
            reserved=tuple(_decode_reserved(numa_node, entry) for numa_node, entry in reserved),
            cpuless_nodes=memory.flag("cpulessNodes", default=False),
        ),
        unknown=reader.unknown(
            allocation=allocation.unknown(),
            memory=memory.unknown(reserved=_unknown_of_each(entry for _, entry in reserved)),
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


def _encode_memory(memory: MemorySettings) -> dict[str, Any]:
    encoded = changed_fields(memory, _LATER_MEMORY)
    if memory.hugepages is not None:
        encoded["hugepages"] = [format_binary(size) for size in memory.hugepages]
    if memory.reserved:
        encoded["reserved"] = [
            {"numaNode": entry.numa_node, **{kind: format_binary(amount) for kind, amount in entry.amounts}}
            for entry in memory.reserved
        ]
    return encoded


def _decode_outstanding(item: Fields) -> OutstandingClaim:
    readers = item.items("devices")
    return OutstandingClaim(
        uid=item.text("uid"),
        namespace=item.text("namespace"),
        name=item.text("name"),
        devices=tuple((device.text("name"), device.integer("cpus")) for device in readers),
        unknown=item.unknown(devices=_unknown_of_each(readers)),
    )


def _encode_outstanding(claim: OutstandingClaim) -> dict[str, Any]:
    devices = [{"name": name, "cpus": cpus} for name, cpus in claim.devices]
    return _merged(
        {"uid": claim.uid, "namespace": claim.namespace, "name": claim.name, "devices": devices}, claim.unknown
    )


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
