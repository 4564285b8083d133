"""A node with the driver of memory, without a runtime or a kubelet: tests do what these would."""

from typing import Any, Final

from nodes import NODE, SAFE_RUNTIME, claim_object, machine, ref, share, spec

from dracpu_agent.drivers.memory import MemoryDriver
from dracpu_agent.memory.inventory import Inventory, NumaMemory, Pages
from dracpu_agent.node import NodeState
from dracpu_agent.placement.container import Container, ContainerUpdate, Placement
from dracpu_api.cpuset import CpuSet
from dracpu_api.settings import MemorySettings

DRIVER: Final = "dra.memory"
MI, GI = 1024**2, 1024**3
ENABLED = spec(memory=MemorySettings(enabled=True))
POD: Final = "pod-1"


class OneNode:
    """A node of two NUMA nodes with 4 GiB each, of which 64 MiB are pages of 2 MiB."""

    def __init__(self) -> None:
        pages = (Pages(2 * MI, 32, 32), Pages(GI, 0, 0))
        nodes = tuple(NumaMemory(numa, CpuSet((numa,)), 4 * GI, 4, pages) for numa in (0, 1))
        self.driver = MemoryDriver(NODE, Inventory(nodes), machine())
        self.driver.system = 0
        self.state = NodeState(NODE, machine(), [self.driver])
        self.state.configure(ENABLED)
        self.state.containers.connected(SAFE_RUNTIME)
        self.state.containers.synchronize([])
        self.made = 0

    def prepare(self, number: int, *results: dict[str, Any], pods: tuple[str, ...] = (POD,)) -> tuple[str, ...]:
        """Grants a claim; returns the names of its CDI devices."""
        holding = self.state.holdings[DRIVER]
        claim = holding.grant(holding.driver.read(ref(number), claim_object(number, results, pods=pods))).claim
        self.driver.pods.learn(POD, {2 * MI: 0, GI: 0})
        return tuple(device.name for device in claim.cdi_devices())

    def create(self, name: str, *devices: str, pod: str = POD, **fields: Any) -> Placement:
        """Creates a container."""
        self.made += 1
        made = Container(f"{name}-{self.made}", name, "default", pod, pod, devices, **fields)
        placement = self.state.containers.create(made)
        self.state.containers.created(made.id)
        return placement

    def start(self, container_id: str) -> None:
        """Starts a container that was created."""
        known = Container(container_id, container_id, "default", POD, POD)
        assert self.state.containers.begin_start(known) is None
        self.state.containers.check_start(known)
        self.state.containers.started(known)
        self.state.containers.allow_pushes()

    def resize(self, container_id: str, limit: int | None) -> ContainerUpdate | None:
        """Changes the limit of a container's spec, in which the runtime succeeds; None: repeats the change."""
        update = self.state.containers.repeat(container_id, limit)
        self.state.containers.updated(Container(container_id, container_id, "default", POD, POD))
        return update


def some(device: str, size: int, request: str = "main") -> dict[str, Any]:
    """Builds an allocation result."""
    return share(device, 1, request) | {"driver": DRIVER, "consumedCapacity": {"size": str(size)}}


def limits(placement: Placement | ContainerUpdate | None) -> dict[str, str]:
    """Returns the limits of an answer or an update."""
    assert placement is not None
    return dict(placement.limits)


def pages(small: int) -> dict[str, str]:
    """Returns the limits of a container that may use so many bytes of small pages, and no large ones."""
    files = {"hugetlb.2MB.max": str(small), "hugetlb.2MB.rsvd.max": str(small)}
    return files | {"hugetlb.1GB.max": "0", "hugetlb.1GB.rsvd.max": "0"}
