"""Everything the scheduler decides on, as one picture of the cluster that its own decisions keep up to date."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from dracpu_sandbox.resources import JsonObject
from dracpu_sandbox.scheduler.nodes import Room, add_pod
from dracpu_sandbox.scheduler.pools import Inventory
from dracpu_sandbox.scheduler.requests import DeviceClass
from dracpu_sandbox.scheduler.usage import Usage

Key = tuple[str, str]  # namespace, name

FINISHED = frozenset({"Succeeded", "Failed"})


def key_of(one: JsonObject) -> Key:
    """How an object is found."""
    return one["metadata"].get("namespace", ""), one["metadata"]["name"]


def is_finished(pod: JsonObject) -> bool:
    """Whether its containers have ended for good."""
    return (pod.get("status") or {}).get("phase") in FINISHED


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
        """The devices that are taken."""
        return Usage.of(self.claims.values())

    @cached_property
    def rooms(self) -> dict[str, Room]:
        """What pods use of their nodes."""
        rooms: dict[str, Room] = {}
        for pod in self.pods:
            self._place(rooms, pod)
        return rooms

    def _place(self, rooms: dict[str, Room], pod: JsonObject) -> None:
        node = pod["spec"].get("nodeName")
        if node and not is_finished(pod):
            rooms[node] = add_pod(rooms.get(node, {}), pod)

    def placed(self, pod: JsonObject) -> None:
        """The pod has a node now."""
        self._place(self.rooms, pod)
