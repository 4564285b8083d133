"""Everything the scheduler decides on, as one picture of the cluster that its own decisions keep up to date."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from dracpu_sandbox.resources import JsonObject, Key
from dracpu_sandbox.scheduler.nodes import Amounts, add_pod
from dracpu_sandbox.scheduler.pools import Inventory
from dracpu_sandbox.scheduler.requests import DeviceClass
from dracpu_sandbox.scheduler.usage import Usage


def is_finished(pod: JsonObject) -> bool:
    """Whether its containers have ended for good."""
    return (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}


@dataclass
class World:
    """The cluster at a moment."""

    nodes: Mapping[str, JsonObject]
    claims: dict[Key, JsonObject]
    classes: Mapping[str, DeviceClass]
    inventory: Inventory
    pods: Iterable[JsonObject]

    @cached_property
    def usage(self) -> Usage:
        """The devices that are allocated."""
        return Usage.of(self.claims.values())

    @cached_property
    def used(self) -> dict[str, Amounts]:
        """What pods use of their nodes, by node."""
        used: dict[str, Amounts] = {}
        for pod in self.pods:
            node = pod["spec"].get("nodeName")
            if node and not is_finished(pod):
                used[node] = add_pod(used.get(node, {}), pod)
        return used

    def placed(self, pod: JsonObject, node: str) -> None:
        """The pod has a node now."""
        self.used[node] = add_pod(self.used.get(node, {}), pod)
