"""Which devices count: slices make pools, and a pool counts whole or not at all."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby

from dracpu_sandbox.cel.quantity import Quantity
from dracpu_sandbox.resources import JsonObject
from dracpu_sandbox.scheduler.devices import Device, Slice
from dracpu_sandbox.scheduler.nodes import selector_matches


@dataclass(frozen=True, slots=True)
class Pool:
    """The devices of one pool. With a trouble it offers none."""

    driver: str
    name: str
    devices: tuple[Device, ...]
    counters: Mapping[tuple[str, str], Quantity]
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Offer:
    """What can be reached from one node, in the order in which it is tried."""

    devices: tuple[Device, ...]
    pools: tuple[Pool, ...]
    troubles: tuple[str, ...] = ()


class Inventory:
    """All pools. Made anew whenever a slice has changed."""

    def __init__(self, slices: Iterable[Slice]) -> None:
        self._of_node: dict[str, list[Pool]] = {}
        self._others: list[Pool] = []
        ordered = sorted(slices, key=lambda one: (one.driver, one.pool, one.name))  # slices by object name: observed
        for _, group in groupby(ordered, key=lambda one: (one.driver, one.pool)):
            pool, nodes = _assemble(list(group))
            if "" in nodes:
                self._others.append(pool)
            else:
                for node in nodes:
                    self._of_node.setdefault(node, []).append(pool)
        self._offers: dict[str, tuple[JsonObject, Offer]] = {}

    def offer(self, node: JsonObject) -> Offer:
        """What this node reaches."""
        name = node["metadata"]["name"]
        known = self._offers.get(name)
        if known and known[0] is node:
            return known[1]
        pools = sorted([*self._of_node.get(name, ()), *self._others], key=lambda one: (one.driver, one.name))
        offer = Offer(
            tuple(device for pool in pools if not pool.trouble for device in pool.devices if _reaches(node, device)),
            tuple(pool for pool in pools if not pool.trouble),
            tuple(pool.trouble for pool in pools if pool.trouble),
        )
        self._offers[name] = node, offer
        return offer


def _assemble(slices: list[Slice]) -> tuple[Pool, set[str]]:
    """A pool and the nodes that it belongs to; "" when only a look at each node tells."""
    generation = max(one.generation for one in slices)
    current = [one for one in slices if one.generation == generation]
    devices = tuple(device for one in current for device in one.devices)
    counters = {key: value for one in current for key, value in one.counters.items()}
    nodes = {one.where.node for one in current}
    driver, name = current[0].driver, current[0].pool
    return Pool(driver, name, devices, counters, _trouble(current, devices, counters)), nodes


def _trouble(slices: list[Slice], devices: tuple[Device, ...], counters: Mapping[tuple[str, str], Quantity]) -> str:
    pool = f"{slices[0].driver}/{slices[0].pool}"
    if slices[0].slices != len(slices):  # the first one's count decides: observed
        return f"resource pool {pool} is currently being updated"
    if len({device.name for device in devices}) < len(devices):
        return f"resource pool {pool} is invalid: two devices have one name"
    if any((one, name) not in counters for device in devices for one, name, _ in device.consumes):
        return f"resource pool {pool} is invalid: a device consumes a counter that is not there"
    return ""


def _reaches(node: JsonObject, device: Device) -> bool:
    where = device.where
    if where.selector is not None:
        return selector_matches(where.selector, node)
    return where.everywhere or where.node == node["metadata"]["name"]
