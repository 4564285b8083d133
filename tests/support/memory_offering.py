"""A sandbox whose nodes offer memory, with the claims and pods of tests."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dracpu_sandbox.client import STRATEGIC
from dracpu_sandbox.cluster import Sandbox
from dracpu_sandbox.node.containers import Container
from dracpu_sandbox.node.node import SimulatedNode
from dracpu_sandbox.resources import CLAIMS, CONFIGS, PODS, SLICES
from dracpu_sandbox.stories.story import Story

DRIVER = "dra.memory"
ONE_NUMA_NODE = {"matchAttribute": "resource.kubernetes.io/numaNode"}


def request(name: str, device_class: str, capacity: str, amount: str) -> dict[str, Any]:
    """Builds a request for an amount."""
    return {"name": name, "exactly": {"deviceClassName": device_class, "capacity": {"requests": {capacity: amount}}}}


CPUS = request("cpus", "dra.cpu", "dra.cpu/cpu", "2")


def memory(amount: str) -> dict[str, Any]:
    """Builds a request for ordinary memory."""
    return request("memory", "dra.memory", "size", amount)


def pages(amount: str) -> dict[str, Any]:
    """Builds a request for hugepages of 2 MiB."""
    return request("pages", "dra.hugepages-2m", "size", amount)


def config(requested: str, **parameters: str) -> dict[str, Any]:
    """Builds parameters for a request."""
    kind = {"apiVersion": "dra.cpu/v1alpha1", "kind": "MemoryClaimParameters"}
    return {"requests": [requested], "opaque": {"driver": DRIVER, "parameters": kind | parameters}}


def claim(name: str, *requests: dict[str, Any], configs: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    """Builds a claim whose devices are on one NUMA node."""
    spec = {"devices": {"requests": list(requests), "constraints": [ONE_NUMA_NODE], "config": list(configs)}}
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": CLAIMS.api_version, "kind": CLAIMS.kind, "metadata": metadata, "spec": spec}


def pod(name: str, spec: Mapping[str, Any] | None = None, **resources: Any) -> dict[str, Any]:
    """A pod whose container uses the claim with the pod's name; `spec` are further fields of its spec."""
    main = {"name": "main", "image": "busybox", "resources": {"claims": [{"name": name}], **resources}}
    spec = {"containers": [main], "resourceClaims": [{"name": name, "resourceClaimName": name}], **(spec or {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


class Offering:
    """A cluster whose nodes offer memory."""

    def __init__(self, cluster: Sandbox, story: Story) -> None:
        self.client = cluster.client
        self.node: SimulatedNode = cluster.nodes["node-1"]
        self.story = story

    async def offer(self, **settings: Any) -> None:
        """Lets the nodes offer memory."""
        await self.client.patch(CONFIGS, "default", {"spec": {"memory": {"enabled": True, **settings}}})
        await self.story.until("memory is offered", self.offers)

    async def offers(self) -> bool:
        """Whether every node offers ordinary memory, which comes when the Nodes have been read."""
        slices = [item["spec"] for item in await self.client.list(SLICES)]
        devices = [
            device["name"] for spec in slices if spec["driver"] == DRIVER for device in spec.get("devices") or ()
        ]
        return "memory-numa000" in devices

    async def run(
        self, name: str, *requests: dict[str, Any], configs: Sequence[dict[str, Any]] = (), **resources: Any
    ) -> None:
        """Creates a claim and a pod that uses it, and waits until it runs."""
        await self.client.create(CLAIMS, claim(name, *requests, configs=configs))
        await self.client.create(PODS, pod(name, **resources))
        await self.story.until_running(name)

    def cgroup(self, name: str) -> Path:
        """Returns the cgroup of a pod's container."""
        return self.node.cgroup_of("default", name, "main")

    def container(self, name: str) -> Container:
        """Returns a pod's container as the runtime has it."""
        return self.node.container_of("default", name, "main")

    async def take(self, name: str, size: int, page: int = 0, *, touch: bool = True) -> None:
        """Lets a pod's container take memory."""
        await self.node.take("default", name, "main", size, page=page, touch=touch)

    async def resize(self, name: str, limit: str) -> None:
        """Changes the limit of a pod's memory."""
        change = {"spec": {"containers": [{"name": "main", "resources": {"limits": {"memory": limit}}}]}}
        await self.client.patch(PODS, name, change, "default", subresource="resize", kind=STRATEGIC)

    async def resizing(self, name: str) -> str:
        """The message of the pod's condition about its resize; "" without one."""
        conditions = (await self.client.get(PODS, name, "default"))["status"].get("conditions") or ()
        found = [condition for condition in conditions if condition["type"] == "PodResizeInProgress"]
        return str(found[0].get("message", "")) if found else ""
