"""Groups ResourceSlices into pools. The devices of an incomplete or invalid pool are not available."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby

from dracpu_sandbox.cel.quantity import Quantity
from dracpu_sandbox.scheduler.devices import Device, Slice


@dataclass(frozen=True, slots=True)
class Pool:
    """The devices of a pool."""

    driver: str
    name: str
    devices: tuple[Device, ...]
    counters: Mapping[tuple[str, str], Quantity]


@dataclass(frozen=True, slots=True)
class Offer:
    """The devices that a node offers, in the order in which they are tried."""

    pools: tuple[Pool, ...] = ()
    troubles: tuple[str, ...] = ()  # why other pools are not available

    @property
    def devices(self) -> list[Device]:
        """Returns the devices of all pools."""
        return [device for pool in self.pools for device in pool.devices]


class Inventory:
    """The pools of all nodes. Each change of a slice requires a new inventory."""

    def __init__(self, slices: Iterable[Slice]) -> None:
        ordered = sorted(slices, key=lambda item: (item.node, item.driver, item.pool, item.name))
        self._offers = {node: _offer(list(of_node)) for node, of_node in groupby(ordered, key=lambda item: item.node)}

    def offer(self, node: str) -> Offer:
        """Returns the devices of a node."""
        return self._offers.get(node, Offer())


def _offer(slices: list[Slice]) -> Offer:
    pools, troubles = [], []
    for (driver, name), group in groupby(slices, key=lambda item: (item.driver, item.pool)):
        found = list(group)
        generation = max(item.generation for item in found)
        current = [item for item in found if item.generation == generation]
        devices = tuple(device for item in current for device in item.devices)
        counters = {key: value for item in current for key, value in item.counters.items()}
        if trouble := _trouble(current, devices, counters):
            troubles.append(f"resource pool {driver}/{name} is {trouble}")
        else:
            pools.append(Pool(driver, name, devices, counters))
    return Offer(tuple(pools), tuple(troubles))


def _trouble(slices: list[Slice], devices: tuple[Device, ...], counters: Mapping[tuple[str, str], Quantity]) -> str:
    if slices[0].slices != len(slices):  # kube-scheduler: the first slice's count decides
        return "currently being updated"
    if len({device.name for device in devices}) < len(devices):
        return "invalid: two devices have one name"
    if any((used, name) not in counters for device in devices for used, name, _ in device.consumes):
        return "invalid: a device consumes a counter that does not exist"
    return ""
