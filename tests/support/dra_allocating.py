"""Runs the scheduler's allocator without a cluster: from slices and claims to allocations."""

from collections.abc import Sequence

import dra_objects

from dracpu_sandbox.resources import JsonObject
from dracpu_sandbox.scheduler.allocator import Effort, allocate
from dracpu_sandbox.scheduler.devices import read_slice
from dracpu_sandbox.scheduler.pools import Inventory
from dracpu_sandbox.scheduler.requests import read_claim, read_class
from dracpu_sandbox.scheduler.results import allocation
from dracpu_sandbox.scheduler.usage import Usage


class Shop:
    """The devices of one node, and the claims that they are allocated to."""

    def __init__(self, *slices: JsonObject, classes: Sequence[JsonObject] = (), node: str = "n1") -> None:
        bodies = [dra_objects.device_class(), *classes]
        self._classes = {body["metadata"]["name"]: read_class(body) for body in bodies}
        self._node = node
        self.claims: dict[str, JsonObject] = {}
        self.change(*slices)

    def change(self, *slices: JsonObject) -> None:
        """Replaces the slices of the node."""
        self._inventory = Inventory([read_slice(body) for body in slices])

    def allocate(self, *claims: JsonObject) -> list[JsonObject] | None:
        """Allocates devices to these claims and returns the allocations, or None when the claims do not fit."""
        requested = [read_claim(body) for body in claims]
        offer = self._inventory.offer(self._node)
        picks = allocate(requested, self._classes, offer, Usage.from_claims(self.claims.values()), Effort())
        if picks is None:
            return None
        allocations = [
            allocation(claim, picked, self._classes, self._node, lambda: f"share-{len(self.claims)}")
            for claim, picked in zip(requested, picks, strict=True)
        ]
        for body, allocated in zip(claims, allocations, strict=True):
            self.claims[body["metadata"]["name"]] = {**body, "status": {"allocation": allocated}}
        return allocations

    def devices(self, *claims: JsonObject) -> list[str] | None:
        """Allocates devices to these claims and returns the names of the devices, or None."""
        allocations = self.allocate(*claims)
        if allocations is None:
            return None
        return [result["device"] for allocated in allocations for result in allocated["devices"]["results"]]

    def release(self, name: str) -> None:
        """Removes a claim, so that its devices are free again."""
        del self.claims[name]
