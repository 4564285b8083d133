"""A simulated node for tests of memory: without an agent, so that a small NRI plugin can take its place."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from nri_plugin import SmallPlugin, small_plugin
from one_node import OneNode, one_node

MI: Final = 1 << 20
GI: Final = 1 << 30
SMALL, LARGE = 2 * MI, GI  # hugepages
LIMITS: Final = ("hugetlb.2MB.max", "hugetlb.2MB.rsvd.max", "hugetlb.1GB.max", "hugetlb.1GB.rsvd.max")


class MemoryNode:
    """The node, its plugin, and the cgroups of its pods."""

    def __init__(self, world: OneNode, plugin: SmallPlugin) -> None:
        self.world = world
        self.node = world.node
        self.plugin = plugin

    async def run(self, name: str, *containers: dict[str, Any], **fields: Any) -> None:
        """Runs a pod; by default its one container, `main`, requests nothing."""
        self.world.pod(name, containers=list(containers) or [container()], **fields)
        await self.world.runs(name)

    def cgroup(self, pod: str, name: str = "main") -> Path:
        """Returns the cgroup of a container."""
        return self.node.cgroup_of("default", pod, name)

    def pod_cgroup(self, pod: str) -> Path:
        """Returns the cgroup of a pod, which may have no container."""
        (found,) = self.node.cgroups.glob(f"kubepods/**/pod{pod}")
        return found

    def id_of(self, pod: str, name: str = "main") -> str:
        """Returns the id of a container."""
        return self.cgroup(pod, name).name

    def allow(self, pod: str, size: int) -> None:
        """Lets a pod use hugepages of 2 MiB: writes the files of its cgroup, as an agent does."""
        for file in LIMITS[:2]:
            (self.pod_cgroup(pod) / file).write_text(f"{size}\n")

    async def take(self, pod: str, size: int, page: int = 0, name: str = "main", *, touch: bool = True) -> None:
        """Lets a container take memory."""
        await self.node.take("default", pod, name, size, page=page, touch=touch)

    def resize(self, pod: str, name: str = "main", **resources: dict[str, str]) -> None:
        """Changes the resources of a container in the pod's spec."""

        def change(item: dict[str, Any]) -> None:
            (found,) = (found for found in item["spec"]["containers"] if found["name"] == name)
            found["resources"] = resources

        self.world.api.edit("pods", f"default/{pod}", change)

    def condition(self, pod: str, kind: str) -> dict[str, Any] | None:
        """Returns a condition of a pod."""
        conditions = self.world.status(pod).get("conditions", ())
        return next((item for item in conditions if item["type"] == kind), None)

    def main(self, pod: str) -> dict[str, Any]:
        """Returns the status of a pod's first container."""
        statuses = self.world.status(pod).get("containerStatuses") or [{}]
        return dict(statuses[0])


def container(name: str = "main", **resources: Any) -> dict[str, Any]:
    """Builds a container with these limits and requests."""
    return {"name": name, "image": "busybox", "command": [], "resources": resources}


def content(cgroup: Path, *files: str) -> list[str]:
    """Returns what files of a cgroup contain."""
    return [(cgroup / file).read_text().strip() for file in files]


@asynccontextmanager
async def memory_node() -> AsyncIterator[MemoryNode]:
    """Starts the node and its plugin."""
    async with one_node() as world:
        await world.node.stop_agent()
        async with small_plugin(world.node.nri_socket) as plugin:
            yield MemoryNode(world, plugin)
