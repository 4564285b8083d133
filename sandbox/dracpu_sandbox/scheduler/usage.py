"""Tracks which devices are in use, and how much of their capacity and of their counters is left."""

from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Self

from dracpu_sandbox.cel.quantity import Quantity
from dracpu_sandbox.resources import JsonObject
from dracpu_sandbox.scheduler.devices import Device, DeviceId
from dracpu_sandbox.scheduler.pools import Pool

_ZERO = Fraction(0)

Amounts = Mapping[str, Fraction]  # by capacity key


class Usage:
    """The devices that are allocated as a whole, and the allocated shares of shareable devices."""

    def __init__(self) -> None:
        self._whole: set[DeviceId] = set()
        self._shares: Counter[DeviceId] = Counter()
        self._consumed: dict[tuple[DeviceId, str], Fraction] = {}

    @classmethod
    def from_claims(cls, claims: Iterable[JsonObject]) -> Self:
        """Returns the usage by the allocations of these claims."""
        usage = cls()
        for claim in claims:
            usage.add_claim(claim)
        return usage

    def copy(self) -> "Usage":
        """Returns an independent copy, which a search can change."""
        made = Usage()
        made._whole = self._whole.copy()
        made._shares = self._shares.copy()
        made._consumed = self._consumed.copy()
        return made

    def add_claim(self, claim: JsonObject) -> None:
        """Adds the devices of a claim's status.allocation."""
        allocation = (claim.get("status") or {}).get("allocation") or {}
        for result in (allocation.get("devices") or {}).get("results") or ():
            amounts = {key: Quantity.parse(text).number for key, text in (result.get("consumedCapacity") or {}).items()}
            device = result["driver"], result["pool"], result["device"]
            self.take(device, amounts, shared="shareID" in result)

    def take(self, device: DeviceId, amounts: Amounts, *, shared: bool) -> None:
        """Marks a device, or a share of it, as allocated."""
        if shared:
            self._change(device, amounts, 1)
        else:
            self._whole.add(device)

    def release(self, device: DeviceId, amounts: Amounts, *, shared: bool) -> None:
        """Undoes `take`."""
        if shared:
            self._change(device, amounts, -1)
        else:
            self._whole.remove(device)

    def in_use(self, device: DeviceId) -> bool:
        """Whether an allocation holds the device or a share of it."""
        return device in self._whole or self._shares[device] > 0

    def is_free(self, device: Device, amounts: Amounts) -> bool:
        """Whether the device is not allocated; for a shareable device, whether these amounts are left."""
        if not device.shareable:
            return not self.in_use(device.id)
        return device.id not in self._whole and all(
            self._consumed.get((device.id, key), _ZERO) + amount <= device.capacity[key].value.number
            for key, amount in amounts.items()
        )

    def _change(self, device: DeviceId, amounts: Amounts, sign: int) -> None:
        self._shares[device] += sign
        for key, amount in amounts.items():
            self._consumed[device, key] = self._consumed.get((device, key), _ZERO) + sign * amount


class Counters:
    """The remaining shared counters of pools: devices that overlap consume the same counters.

    A device consumes its counters once, however many shares of it are allocated.
    """

    def __init__(self, pools: Iterable[Pool], usage: Usage) -> None:
        self._usage = usage
        self._left: dict[tuple[str, str, str, str], Fraction] = {}  # driver, pool, counter set, counter
        for pool in pools:
            for (counter_set, name), value in pool.counters.items():
                self._left[pool.driver, pool.name, counter_set, name] = value.number
            for device in pool.devices if pool.counters else ():
                if usage.in_use(device.id):
                    for counter_set, name, amount in device.consumes:
                        self._left[pool.driver, pool.name, counter_set, name] -= amount.number

    def suffice(self, device: Device) -> bool:
        """Whether the counters suffice for a device."""
        return self._usage.in_use(device.id) or all(
            self._left[device.driver, device.pool, counter_set, name] >= amount.number
            for counter_set, name, amount in device.consumes
        )
