"""Devices as the other rooms see them; cluster/ renders them for the API."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from dracpu_api import names
from dracpu_api.cpuset import CpuSet

AttributeValue = bool | int | str | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RequestPolicy:
    """How the scheduler rounds the amounts that claims request."""

    default: int
    minimum: int | None = None  # with step: a validRange
    step: int | None = None
    valid_values: tuple[int, ...] = ()  # instead of a range: a device of one unit cannot have a step


@dataclass(frozen=True, slots=True)
class Capacity:
    """An amount that shares of a device consume."""

    name: str
    value: int
    policy: RequestPolicy
    binary: bool = False  # shown with binary suffixes: "2Mi"


@dataclass(frozen=True, slots=True)
class Taint:
    """Keeps new claims away from a device."""

    key: str
    value: str = ""
    effect: Literal["NoSchedule", "NoExecute", "None"] = "NoSchedule"


# A CPU that a claim holds is offline, on a device that only this claim can have, or that has no CPU left.
OFFLINE: Final = Taint(names.TAINT_OFFLINE)
# A CPU that a claim holds is offline, on a group that others share: visible, but claims are still accepted.
PARTLY_OFFLINE: Final = Taint(names.TAINT_OFFLINE, effect="None")


@dataclass(frozen=True, slots=True)
class Device:
    """Something that the scheduler may give to a claim."""

    name: str
    cpus: CpuSet  # what it stands for; never published
    attributes: Mapping[str, AttributeValue]
    capacity: Capacity | None = None  # set: shared by several claims (allowMultipleAllocations)
    taints: tuple[Taint, ...] = ()
    beside: tuple[Capacity, ...] = ()  # further capacities, of which a claim may take nothing
