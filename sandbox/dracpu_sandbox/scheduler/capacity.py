"""Computes how much of a device's capacity a request consumes; a requestPolicy may round up or reject."""

from collections.abc import Mapping
from fractions import Fraction
from math import ceil
from typing import Final

from dracpu_sandbox.cel.quantity import Quantity
from dracpu_sandbox.errors import SandboxError
from dracpu_sandbox.scheduler.devices import Capacity, Device, RequestPolicy
from dracpu_sandbox.scheduler.requests import Wanted

Consumed = Mapping[str, tuple[Quantity, str]]  # by capacity key: the amount, and how it is written in the result

_LARGEST: Final = 2**63 - 1


class CapacityError(SandboxError):
    """kube-scheduler cannot compute with the requested amount: the pod waits, even if another device has enough."""


def consumption(device: Device, wanted: Wanted) -> Consumed | None:
    """Returns what a share of a device consumes; {} for an exclusive device; None if the device is too small.

    Raises CapacityError.
    """
    if not wanted.capacity.keys() <= device.capacity.keys():  # kube-scheduler: keys match by exact string
        return None
    amounts = {key: _checked(device, key, wanted) for key in device.capacity}
    if not device.shareable:
        return {} if all(amounts[key] is not None for key in wanted.capacity) else None
    found: dict[str, tuple[Quantity, str]] = {}
    for key, amount in amounts.items():
        if amount is None:
            return None
        found[key] = amount, _text(device.capacity[key], amount, wanted, key)
    return found


def _checked(device: Device, key: str, wanted: Wanted) -> Quantity | None:
    try:
        return consumed(device.capacity[key], wanted.capacity.get(key))
    except CapacityError as error:
        raise CapacityError(f'capacity "{key}" of device {device.name}: {error}') from error


def consumed(capacity: Capacity, asked: Quantity | None) -> Quantity | None:
    """Returns how much of a capacity a requested amount consumes; None if the policy or the value does not allow it.

    Raises CapacityError.
    """
    policy = capacity.policy
    if asked is None:
        amount: Quantity | None = capacity.value if policy.default is None else policy.default
    elif policy.valid_values:
        amount = min((value for value in policy.valid_values if value >= asked), default=None)
    elif policy.minimum is not None:
        amount = _in_range(policy, policy.minimum, asked)
    else:
        amount = asked
    if amount is not None and amount.number < 0:
        raise CapacityError("capacity value is negative")
    return None if amount is None or amount > capacity.value else amount


def _in_range(policy: RequestPolicy, minimum: Quantity, asked: Quantity) -> Quantity | None:
    if asked < minimum:
        amount = minimum
    elif policy.step is None:
        amount = asked
    else:  # kube-scheduler counts steps in whole units: 500m counts as 1
        steps = ceil(Fraction(asked.whole() - minimum.whole(), policy.step.whole()))
        amount = Quantity(Fraction(minimum.whole() + steps * policy.step.whole()), policy.step.notation)
        if max(asked, amount).number > _LARGEST:
            raise CapacityError(f"a request of {asked} cannot be rounded up to a step: it is larger than {_LARGEST}")
    return None if policy.maximum is not None and amount > policy.maximum else amount


def _text(capacity: Capacity, amount: Quantity, wanted: Wanted, key: str) -> str:
    """kube-scheduler: an amount that no step rounds stays as it was written ("08"), unless it has an exponent."""
    unchanged = key in wanted.capacity and wanted.capacity[key] == amount and amount.notation != "exponent"
    return wanted.texts[key] if unchanged and capacity.policy.step is None else amount.text
