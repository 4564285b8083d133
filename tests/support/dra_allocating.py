"""Plays the allocator's part without a cluster: slices and claims in, names of devices or a refusal out."""

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
    """One node's devices, and the claims that have some."""

    def __init__(self, *slices: JsonObject, classes: Sequence[JsonObject] = (), node: str = "n1") -> None:
        bodies = [dra_objects.device_class(), *classes]
        self._classes = {body["metadata"]["name"]: read_class(body) for body in bodies}
        self._node = node
        self.claims: dict[str, JsonObject] = {}
        self.change(*slices)

    def change(self, *slices: JsonObject) -> None:
        """Other slices from now on."""
        self._inventory = Inventory([read_slice(one) for one in slices])

    def allocate(self, *claims: JsonObject) -> list[JsonObject] | None:
        """The allocations of these claims, which hold their devices from now on; None: they do not fit."""
        asked = [read_claim(one) for one in claims]
        offer = self._inventory.offer(self._node)
        picks = allocate(asked, self._classes, offer, Usage.of(self.claims.values()), Effort())
        if picks is None:
            return None
        found = [
            allocation(claim, picked, self._classes, self._node, lambda: f"share-{len(self.claims)}")
            for claim, picked in zip(asked, picks, strict=True)
        ]
        for claim, one in zip(claims, found, strict=True):
            self.claims[claim["metadata"]["name"]] = {**claim, "status": {"allocation": one}}
        return found

    def devices(self, *claims: JsonObject) -> list[str] | None:
        """The names alone."""
        found = self.allocate(*claims)
        return None if found is None else [one["device"] for each in found for one in each["devices"]["results"]]

    def release(self, name: str) -> None:
        """The claim gives its devices back."""
        del self.claims[name]
