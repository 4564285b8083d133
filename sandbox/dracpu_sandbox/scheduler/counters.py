"""Shared counters: devices that are parts of each other consume from the same ones."""

from collections.abc import Iterable
from fractions import Fraction

from dracpu_sandbox.scheduler.devices import Device, DeviceId
from dracpu_sandbox.scheduler.pools import Pool
from dracpu_sandbox.scheduler.usage import Usage

_Counter = tuple[str, str, str, str]  # driver, pool, counter set, counter


class Counters:
    """What is left in the counters of some pools. A device is charged once, however many shares of it are given."""

    def __init__(self, pools: Iterable[Pool], usage: Usage) -> None:
        self._left: dict[_Counter, Fraction] = {}
        self._charged: dict[DeviceId, int] = {}  # how many shares it was charged for
        for pool in pools:
            for (counter_set, name), value in pool.counters.items():
                self._left[pool.driver, pool.name, counter_set, name] = value.number
            for device in pool.devices if pool.counters else ():
                if device.id in usage.exclusive or usage.shared(device.id):
                    self.charge(device)

    def allow(self, device: Device) -> bool:
        """Whether enough is left for it."""
        if not device.consumes or device.id in self._charged:
            return True
        return all(self._left[_key(device, one)] >= one[2].number for one in device.consumes)

    def charge(self, device: Device) -> None:
        """The device, or a share of it, is given away."""
        if device.consumes:
            self._change(device, 1)

    def refund(self, device: Device) -> None:
        """It comes back."""
        if device.consumes:
            self._change(device, -1)

    def charged(self, device: Device) -> bool:
        """Whether another share of it costs nothing."""
        return device.id in self._charged

    def _change(self, device: Device, shares: int) -> None:
        before = self._charged.pop(device.id, 0)
        after = before + shares
        if after:
            self._charged[device.id] = after
        for one in device.consumes:
            self._left[_key(device, one)] -= one[2].number * (bool(after) - bool(before))


def _key(device: Device, consumed: tuple[str, str, object]) -> _Counter:
    return device.driver, device.pool, consumed[0], consumed[1]
