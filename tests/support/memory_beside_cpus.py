"""Builds nodes whose devices of CPUs offer memory, too, and claims of both."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from nodes import NODE, SAFE_RUNTIME, claim_object, machine, ref, revived, share, spec

from dracpu_agent.claims import checkpoint
from dracpu_agent.claims.cpu_claim import CpuClaim
from dracpu_agent.devices.device import Device
from dracpu_agent.drivers.memory import MemoryDriver
from dracpu_agent.memory.inventory import Inventory, NumaMemory, Pages
from dracpu_agent.node import NodeState
from dracpu_api.cpuset import CpuSet
from dracpu_api.names import DRIVER_MEMORY
from dracpu_api.settings import CpuNodeSpec, MemorySettings, Publish, ReservedMemory

MI: Final = 1024**2
GI: Final = 1024**3
RESERVED: Final = 128 * MI  # of each NUMA node: more than what is reserved by default
NUMA_0: Final = "cpudevnuma000"
NUMA_1: Final = "cpudevnuma001"
MEMORY_0: Final = "memory-numa000"
PAGES_0: Final = "hugepages-2mi-numa000"


def memory_settings(publish: Publish = Publish.WITH_CPUS, **fields: Any) -> MemorySettings:
    """Builds settings that offer all memory but a little."""
    reserved = tuple(ReservedMemory(numa, (("memory", RESERVED),)) for numa in (0, 1))
    return MemorySettings(enabled=True, publish=publish, reserved=reserved, **fields)


WITH_CPUS: Final = spec(memory=memory_settings())
DEVICES: Final = spec(memory=memory_settings(Publish.DEVICES))
OFF: Final = spec()


def settling(settings: CpuNodeSpec, seconds: int = 10) -> CpuNodeSpec:
    """Returns the settings with a time to settle before they apply."""
    return replace(settings, settle_seconds=seconds)


def inventory(small: int = 16, large: int = 1, memory: int = GI) -> Inventory:
    """Two NUMA nodes that can offer this much ordinary memory each; the first has the pages."""
    memory += RESERVED
    pages = (Pages(2 * MI, small, small), Pages(GI, large, large))
    huge = sum(size.count * size.size for size in pages)
    first = NumaMemory(0, CpuSet((0, 1, 2, 3)), memory + huge, 4, pages)
    return Inventory((first, NumaMemory(1, CpuSet((4, 5, 6, 7)), memory, 4, ())))


def memory_driver(found: Inventory | None = None) -> MemoryDriver:
    """Builds the driver of memory before it has settings."""
    driver = MemoryDriver(NODE, found or inventory(), machine())
    driver.system = 0
    return driver


def node(settings: CpuNodeSpec = WITH_CPUS, driver: MemoryDriver | None = None) -> NodeState:
    """Builds a node with this driver of memory, or a new one."""
    state = NodeState(NODE, machine(), [driver or memory_driver()])
    state.configure(settings)
    started(state)
    return state


def started(state: NodeState) -> None:
    """Connects the runtime, which has no containers."""
    state.containers.connected(SAFE_RUNTIME)
    state.containers.synchronize([])


def driver_of(state: NodeState) -> MemoryDriver:
    """Returns the driver of memory of a node."""
    driver = state.holdings[DRIVER_MEMORY].driver
    assert isinstance(driver, MemoryDriver)
    return driver


def cpus_with(
    device: str = NUMA_0, cpus: int = 1, request: str = "main", number: int = 0, **amounts: int | str
) -> dict[str, Any]:
    """Builds an allocation result as the scheduler does: it names every kind of memory, 0 where there is none."""
    kinds = {"memory": "0", "hugepages_2Mi": "0", "hugepages_1Gi": "0", **amounts}
    result = share(device, cpus, request, number)
    return result | {
        "consumedCapacity": {"dra.cpu/cpu": str(cpus), **{f"dra.cpu/{kind}": str(size) for kind, size in kinds.items()}}
    }


def some(device: str, size: int | str, request: str = "main") -> dict[str, Any]:
    """Builds an allocation result of a device of memory."""
    return share(device, 1, request) | {"driver": DRIVER_MEMORY, "consumedCapacity": {"size": str(size)}}


def prepared(state: NodeState, number: int, *results: Mapping[str, Any], pods: Sequence[str] = ()) -> Any:
    """Grants a claim of one of the drivers, as Prepare does."""
    holding = state.holdings[results[0]["driver"]]
    return holding.grant(holding.driver.read(ref(number), claim_object(number, results, pods=pods))).claim


def prepared_cpus(state: NodeState, number: int, *results: Mapping[str, Any], pods: Sequence[str] = ()) -> CpuClaim:
    """Grants a claim of CPUs."""
    claim = prepared(state, number, *results, pods=pods)
    assert isinstance(claim, CpuClaim)
    return claim


def capacities(device: Device) -> dict[str, int]:
    """Returns what a device offers, by the name of the capacity."""
    return {capacity.name: capacity.value for capacity in (device.capacity, *device.beside) if capacity is not None}


def beside(state: NodeState) -> dict[str, dict[str, int]]:
    """Returns the memory that each device of CPUs offers."""
    found = {device.name: capacities(device) for device in state.devices()}
    return {
        name: {capacity.removeprefix("dra.cpu/"): size for capacity, size in sizes.items() if capacity != "dra.cpu/cpu"}
        for name, sizes in found.items()
    }


def of_memory(state: NodeState) -> dict[str, int]:
    """Returns what each device of memory offers."""
    return {device.name: device.capacity.value for device in driver_of(state).devices(()) if device.capacity}


def restarted(state: NodeState) -> NodeState:
    """Returns the node after the agent has restarted and before a runtime is connected."""
    saved = checkpoint.decode(checkpoint.encode(state.checkpoint()), state.claim_kinds())
    return revived(saved, state.topology, [memory_driver(driver_of(state).inventory)])
