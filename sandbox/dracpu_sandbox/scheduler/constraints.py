"""matchAttribute and distinctAttribute, while a search goes on and comes back."""

from collections.abc import Iterable
from typing import Protocol

from dracpu_sandbox.scheduler.devices import Device, Values
from dracpu_sandbox.scheduler.requests import Constraint

_NONE: Values = frozenset()


class Rule(Protocol):
    """A constraint with the devices that were picked so far."""

    constraint: Constraint

    def allows(self, device: Device) -> bool:
        """Whether the device may join those picked."""

    def add(self, device: Device) -> None:
        """It joins."""

    def drop(self) -> None:
        """The last one leaves."""


class _Match:
    """All devices have a value in common. Attributes with several values: one of them is in all."""

    def __init__(self, constraint: Constraint) -> None:
        self.constraint = constraint
        self._common: list[Values] = []

    def allows(self, device: Device) -> bool:
        values = device.attributes.get(self.constraint.attribute, _NONE)
        return bool(values & self._common[-1] if self._common else values)

    def add(self, device: Device) -> None:
        values = device.attributes[self.constraint.attribute]
        self._common.append(values & self._common[-1] if self._common else values)

    def drop(self) -> None:
        self._common.pop()


class _Distinct:
    """No two devices have a value in common."""

    def __init__(self, constraint: Constraint) -> None:
        self.constraint = constraint
        self._used: list[Values] = [_NONE]

    def allows(self, device: Device) -> bool:
        values = device.attributes.get(self.constraint.attribute, _NONE)
        return bool(values) and not values & self._used[-1]

    def add(self, device: Device) -> None:
        self._used.append(self._used[-1] | device.attributes[self.constraint.attribute])

    def drop(self) -> None:
        self._used.pop()


def rules(constraints: Iterable[Constraint]) -> tuple[Rule, ...]:
    """The constraints of a claim, with nothing picked."""
    return tuple(_Distinct(one) if one.distinct else _Match(one) for one in constraints)
