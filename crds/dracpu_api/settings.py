"""The spec of a CpuNode: the settings of a node, as dataclasses with a strict decoder.

The agent uses this module instead of the pydantic models, which would cost every node some 20 MiB. A test compares the
two descriptions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeVar

from dracpu_api.cpuset import EMPTY, CpuSet, CpuSetError

SETTLE_SECONDS: Final = 10  # the default of rollout.settleSeconds
REMOVAL_SECONDS: Final = 60  # rollout.removalSeconds when it is absent


class SettingsError(ValueError):
    """A spec that cannot be decoded; the message names the field."""


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
class Settings:
    """The spec of a CpuDriverConfig without selector, priority and rollout, which only the operator uses."""

    mode: Mode = Mode.GROUPED
    group_by: GroupBy = GroupBy.NUMA_NODE
    reserved_cpus: CpuSet = EMPTY  # empty: the agent withholds its lowest core
    allocation: Allocation = field(default_factory=Allocation)
    expose_pcie_roots: bool = False
    node_allocatable: bool = False

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


@dataclass(frozen=True, slots=True)
class CpuNodeSpec:
    """The spec of a CpuNode."""

    config_name: str
    config_generation: int
    settings: Settings
    revision: str
    outstanding: tuple[OutstandingClaim, ...] = ()
    settle_seconds: int = SETTLE_SECONDS


_E = TypeVar("_E", bound=StrEnum)


def decode_spec(spec: object, *, ignore_unknown: bool = False) -> CpuNodeSpec:
    """Reads `CpuNode.spec`. Refuses unknown fields, so that no setting is silently ignored, unless `ignore_unknown`."""
    fields = _Fields(spec, "spec", ignore_unknown=ignore_unknown)
    config = fields.nested("config")
    decoded = CpuNodeSpec(
        config_name=config.text("name"),
        config_generation=config.integer("generation"),
        settings=_decode_settings(fields.nested("settings")),
        revision=fields.text("revision"),
        outstanding=tuple(_decode_outstanding(item) for item in fields.items("outstanding")),
        settle_seconds=fields.integer("settleSeconds", default=SETTLE_SECONDS),
    )
    config.finish()
    fields.finish()
    return decoded


def decode_settings(settings: object, *, ignore_unknown: bool = False) -> Settings:
    """Reads settings, which the operator resolves from a config."""
    return _decode_settings(_Fields(settings, "settings", ignore_unknown=ignore_unknown))


def encode_spec(spec: CpuNodeSpec) -> dict[str, object]:
    """The inverse of `decode_spec`."""
    return {
        "config": {"name": spec.config_name, "generation": spec.config_generation},
        "settings": encode_settings(spec.settings),
        "revision": spec.revision,
        "outstanding": [
            {
                "uid": claim.uid,
                "namespace": claim.namespace,
                "name": claim.name,
                "devices": [{"name": name, "cpus": cpus} for name, cpus in claim.devices],
            }
            for claim in spec.outstanding
        ],
        "settleSeconds": spec.settle_seconds,
    }


def encode_settings(settings: Settings) -> dict[str, object]:
    """The inverse of `decode_settings`."""
    return {
        "mode": settings.mode.value,
        "groupBy": settings.group_by.value,
        "reservedCPUs": str(settings.reserved_cpus),
        "allocation": {
            "strategy": settings.allocation.strategy.value,
            "fullCores": settings.allocation.full_cores,
            "preferUncoreCache": settings.allocation.prefer_uncore_cache,
        },
        "exposePCIeRoots": settings.expose_pcie_roots,
        "nodeAllocatable": settings.node_allocatable,
    }


def _decode_settings(fields: "_Fields") -> Settings:
    allocation = fields.nested("allocation", optional=True)
    decoded = Settings(
        mode=fields.choice("mode", Mode, Mode.GROUPED),
        group_by=fields.choice("groupBy", GroupBy, GroupBy.NUMA_NODE),
        reserved_cpus=fields.cpuset("reservedCPUs"),
        allocation=Allocation(
            strategy=allocation.choice("strategy", Strategy, Strategy.PACKED),
            full_cores=allocation.flag("fullCores", default=False),
            prefer_uncore_cache=allocation.flag("preferUncoreCache", default=True),
        ),
        expose_pcie_roots=fields.flag("exposePCIeRoots", default=False),
        node_allocatable=fields.flag("nodeAllocatable", default=False),
    )
    allocation.finish()
    fields.finish()
    return decoded


def _decode_outstanding(item: "_Fields") -> OutstandingClaim:
    devices = []
    for device in item.items("devices"):
        devices.append((device.text("name"), device.integer("cpus")))
        device.finish()
    claim = OutstandingClaim(item.text("uid"), item.text("namespace"), item.text("name"), tuple(devices))
    item.finish()
    return claim


class _Fields:
    """The fields of a JSON object that have not been read yet. Those that are left at the end are unknown."""

    def __init__(self, value: object, path: str, *, ignore_unknown: bool) -> None:
        if not isinstance(value, Mapping):
            raise SettingsError(f"{path} must be an object, got {_kind(value)}")
        self._left = dict(value)
        self._path = path
        self._ignore_unknown = ignore_unknown

    def nested(self, name: str, *, optional: bool = False) -> "_Fields":
        value = self._left.pop(name, None)
        return self._at({} if value is None and optional else value, f"{self._path}.{name}")

    def items(self, name: str) -> list["_Fields"]:
        value = self._left.pop(name, None)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self._wrong(name, "a list", value)
        return [self._at(item, f"{self._path}.{name}[{index}]") for index, item in enumerate(value)]

    def text(self, name: str) -> str:
        value = self._left.pop(name, None)
        if not isinstance(value, str) or not value:
            raise self._wrong(name, "a non-empty text", value)
        return value

    def integer(self, name: str, *, default: int | None = None) -> int:
        value = self._left.pop(name, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._wrong(name, "a whole number", value)
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        value = self._left.pop(name, None)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self._wrong(name, "true or false", value)
        return value

    def choice(self, name: str, choices: type[_E], default: _E) -> _E:
        value = self._left.pop(name, None)
        if value is None:
            return default
        if not isinstance(value, str) or value not in set(choices):
            raise self._wrong(name, f"one of {', '.join(choices)}", value)
        return choices(value)

    def cpuset(self, name: str) -> CpuSet:
        value = self._left.pop(name, None)
        if value is None:
            return EMPTY
        if not isinstance(value, str):
            raise self._wrong(name, 'a cpuset like "0-3,8"', value)
        try:
            return CpuSet.parse(value)
        except CpuSetError as error:
            raise SettingsError(f"{self._path}.{name}: {error}") from error

    def finish(self) -> None:
        if self._left and not self._ignore_unknown:
            names = ", ".join(f"{self._path}.{name}" for name in sorted(map(str, self._left)))
            raise SettingsError(f"unknown: {names}; the agent is older than the object, or the name is misspelt")

    def _at(self, value: object, path: str) -> "_Fields":
        return _Fields(value, path, ignore_unknown=self._ignore_unknown)

    def _wrong(self, name: str, expected: str, value: object) -> SettingsError:
        return SettingsError(f"{self._path}.{name} must be {expected}, got {_kind(value)}")


def _kind(value: object) -> str:
    return "nothing" if value is None else f"{value!r}"
