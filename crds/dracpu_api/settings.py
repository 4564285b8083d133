"""The spec of a CpuNode: the settings of a node, as dataclasses.

Decoding keeps fields that this version does not know, and encoding writes them back: a program of an older version must
not remove what a newer one has written. A known field with a value that is not understood is an error.

A field that is added later enters the encoding only where it differs from its default (`_LATER_SETTINGS`). So a new
version changes neither the revision of settings that do not use the field, nor what agents of the former version read.

The agent uses this module instead of the pydantic models, which would cost every node some 20 MiB. A test compares the
two descriptions.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, TypeVar

from dracpu_api.cpuset import EMPTY, CpuSet, CpuSetError

SETTLE_SECONDS: Final = 10  # the default of rollout.settleSeconds
REMOVAL_SECONDS: Final = 60  # rollout.removalSeconds when it is absent

# Later fields: the name in the object, and the attribute. Values are booleans, numbers and texts.
_LATER_SETTINGS: Final[Mapping[str, str]] = {}
_LATER_ALLOCATION: Final[Mapping[str, str]] = {}

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


def _nothing() -> Mapping[str, Any]:
    return _NOTHING


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
    unknown: Mapping[str, Any] = field(default_factory=_nothing, hash=False)  # by field; those of allocation as well

    @property
    def ignored(self) -> tuple[str, ...]:
        """The paths of the settings that this version does not know, such as `settings.allocation.turbo`."""
        nested = self.unknown.get("allocation") or {}
        paths = [f"settings.{name}" for name in self.unknown if name != "allocation"]
        return tuple(sorted([*paths, *(f"settings.allocation.{name}" for name in nested)]))

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
    unknown: Mapping[str, Any] = field(default_factory=_nothing, compare=False)


@dataclass(frozen=True, slots=True)
class CpuNodeSpec:
    """The spec of a CpuNode."""

    config_name: str
    config_generation: int
    settings: Settings
    revision: str
    outstanding: tuple[OutstandingClaim, ...] = ()
    settle_seconds: int = SETTLE_SECONDS
    unknown: Mapping[str, Any] = field(default_factory=_nothing, hash=False)  # but for those of settings and claims


_E = TypeVar("_E", bound=StrEnum)


def decode_spec(spec: object) -> CpuNodeSpec:
    """Reads `CpuNode.spec`."""
    reader = _Fields(spec, "spec")
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
    return _decode_settings(_Fields(settings, "settings"))


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
    allocation = settings.allocation
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
    }
    return _merged(known, settings.unknown)


def changed_fields(record: Settings | Allocation, names: Mapping[str, str]) -> dict[str, Any]:
    """The values of those attributes that differ from their defaults, by their names in the object."""
    defaults = {item.name: item.default for item in fields(record)}
    return {
        name: value for name, attribute in names.items() if (value := getattr(record, attribute)) != defaults[attribute]
    }


def _decode_settings(reader: "_Fields") -> Settings:
    allocation = reader.nested("allocation", optional=True)
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
        unknown=reader.unknown(allocation=allocation.unknown()),
    )


def _decode_outstanding(item: "_Fields") -> OutstandingClaim:
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


def _unknown_of_each(readers: Iterable["_Fields"]) -> list[Mapping[str, Any]]:
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


class _Fields:
    """The fields of a JSON object that have not been read yet. Those that are left at the end are unknown."""

    def __init__(self, value: object, path: str) -> None:
        if not isinstance(value, Mapping):
            raise SettingsError(f"{path} must be an object, got {_kind(value)}")
        self._left = dict(value)
        self._path = path

    def nested(self, name: str, *, optional: bool = False) -> "_Fields":
        value = self._left.pop(name, None)
        return _Fields({} if value is None and optional else value, f"{self._path}.{name}")

    def items(self, name: str) -> list["_Fields"]:
        value = self._left.pop(name, None)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self._wrong(name, "a list", value)
        return [_Fields(item, f"{self._path}.{name}[{index}]") for index, item in enumerate(value)]

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

    def unknown(self, **nested: Mapping[str, Any] | list[Mapping[str, Any]]) -> Mapping[str, Any]:
        """The fields that are left, and what is unknown inside of those that were read."""
        return {**self._left, **{name: value for name, value in nested.items() if value}} or _NOTHING

    def _wrong(self, name: str, expected: str, value: object) -> SettingsError:
        return SettingsError(f"{self._path}.{name} must be {expected}, got {_kind(value)}")


def _kind(value: object) -> str:
    return "nothing" if value is None else f"{value!r}"
