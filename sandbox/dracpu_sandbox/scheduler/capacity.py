"""Computes how much of a device's capacity a request consumes; a requestPolicy may round up or reject."""

from collections.abc import Mapping
from fractions import Fraction
from math import ceil

from dracpu_sandbox.cel.quantity import Quantity
from dracpu_sandbox.scheduler.devices import Capacity, Device, RequestPolicy
from dracpu_sandbox.scheduler.requests import Wanted

Consumed = Mapping[str, tuple[Quantity, str]]  # by capacity key: the amount, and how it is written in the result


def consumption(device: Device, wanted: Wanted) -> Consumed | None:
    """Returns what a share of a device consumes; {} for an exclusive device; None if the device is too small."""
    if not wanted.capacity.keys() <= device.capacity.keys():  # kube-scheduler: keys match by exact string
        return None
    if not device.shareable:
        enough = all(amount <= device.capacity[key].value for key, amount in wanted.capacity.items())
        return {} if enough else None
    found: dict[str, tuple[Quantity, str]] = {}
    for key, capacity in device.capacity.items():
        amount = consumed(capacity, wanted.capacity.get(key))
        if amount is None:
            return None
        found[key] = amount, _text(amount, wanted, key)
    return found


def consumed(capacity: Capacity, asked: Quantity | None) -> Quantity | None:
    """Returns how much of a capacity a requested amount consumes; None if the policy or the value does not allow it."""
    policy = capacity.policy
    if asked is None:
        amount: Quantity | None = capacity.value if policy.default is None else policy.default
    elif policy.valid_values:
        amount = min((value for value in policy.valid_values if value >= asked), default=None)
    elif policy.minimum is not None:
        amount = _in_range(policy, policy.minimum, asked)
    else:
        amount = asked
    return None if amount is None or amount > capacity.value else amount


def _in_range(policy: RequestPolicy, minimum: Quantity, asked: Quantity) -> Quantity | None:
    if asked < minimum:
        amount = minimum
    elif policy.step is None or policy.step.whole() == 0:
        amount = asked
    else:  # kube-scheduler counts steps in whole units: 500m counts as 1
        steps = ceil(Fraction(asked.whole() - minimum.whole(), policy.step.whole()))
        amount = Quantity(Fraction(minimum.whole() + steps * policy.step.whole()), asked.notation)
    return None if policy.maximum is not None and amount > policy.maximum else amount


def _text(amount: Quantity, wanted: Wanted, key: str) -> str:
    """kube-scheduler: an amount that needed no rounding stays as it was written ("08"), unless it has an exponent."""
    unchanged = key in wanted.capacity and wanted.capacity[key] == amount and amount.notation != "exponent"
    return wanted.texts[key] if unchanged else amount.text
