"""A snapshot of the cluster for the scheduler's decisions, updated with these decisions."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from dracpu_sandbox.amounts import Amounts
from dracpu_sandbox.resources import JsonObject, Key
from dracpu_sandbox.scheduler.nodes import add_pod
from dracpu_sandbox.scheduler.pools import Inventory
from dracpu_sandbox.scheduler.requests import DeviceClass
from dracpu_sandbox.scheduler.usage import Usage


def is_finished(pod: JsonObject) -> bool:
    """Whether the pod's containers have ended and will not be restarted."""
    return (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}


@dataclass
class World:
    """A snapshot of the cluster."""

    nodes: Mapping[str, JsonObject]
    claims: dict[Key, JsonObject]
    classes: Mapping[str, DeviceClass]
    inventory: Inventory
    pods: Iterable[JsonObject]

    @cached_property
    def usage(self) -> Usage:
        """The devices that are allocated."""
        return Usage.from_claims(self.claims.values())

    @cached_property
    def used(self) -> dict[str, Amounts]:
        """The resources that pods use, by node."""
        used: dict[str, Amounts] = {}
        for pod in self.pods:
            node = pod["spec"].get("nodeName")
            if node and not is_finished(pod):
                used[node] = add_pod(used.get(node, {}), pod)
        return used

    def placed(self, pod: JsonObject, node: str) -> None:
        """Adds a pod that was placed on a node."""
        self.used[node] = add_pod(self.used.get(node, {}), pod)
