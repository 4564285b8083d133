"""A machine whose hugepages an agent makes: its files, which a real kernel would keep up to date."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from cgroup_trees import write_tree as write_cgroups
from nodes import NODE, machine, spec
from whole_agent import WholeNode, whole_node

from dracpu_agent.drivers.memory import MemoryDriver
from dracpu_agent.host.memory import NODES, read_memory
from dracpu_agent.memory_service import MemoryCompanion
from dracpu_api.settings import CpuNodeSpec, MemorySettings, ProvisionedPages
from dracpu_sandbox.machines.description import Memory

DRIVER = "dra.memory"
MIB, GIB = 2**20, 2**30
PAGES, MEMORY = "hugepages-2mi-numa000", "memory-numa000"
BOTH_SIZES = tuple(Memory(numa, 4 * MIB, ((2048, 64, 64, 0), (1_048_576, 0, 0, 0))) for numa in (0, 1))


def wanted(*pages: int, enabled: bool = True, settle_seconds: int = 0) -> CpuNodeSpec:
    """Builds settings that want this many pages of 2 MiB on each NUMA node."""
    provision = tuple(ProvisionedPages(numa, 2 * MIB, number) for numa, number in enumerate(pages))
    return spec(memory=MemorySettings(enabled=enabled, provision=provision), settle_seconds=settle_seconds)


class Host:
    """The files about memory of a machine with two NUMA nodes of 4 GiB and 64 pages each. Its kernel has as many pages
    as are written, and all of them are free."""

    def __init__(self, sysfs: Path, procfs: Path) -> None:
        self.sysfs, self.procfs = sysfs, procfs
        for numa in (0, 1):
            free = self.file(numa, "free")
            free.unlink()
            free.symlink_to(self.file(numa))
        self.boot("first")

    def boot(self, boot: str) -> None:
        """Starts the machine again; `boot` is what the kernel makes up."""
        folder = self.procfs / "sys/kernel/random"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "boot_id").write_text(f"{boot}\n")

    def file(self, numa: int, kind: str = "nr") -> Path:
        """Returns the file with a number of pages of 2 MiB."""
        return self.sysfs / NODES / f"node{numa}/hugepages/hugepages-2048kB/{kind}_hugepages"

    def pages(self, numa: int = 0) -> int:
        """Returns how many pages there are."""
        return int(self.file(numa).read_text() or -1)

    def set(self, pages: int, numa: int = 0) -> None:
        """Does what an administrator does."""
        self.file(numa).write_text(f"{pages}\n")

    async def until(self, *pages: int) -> None:
        """Waits until each NUMA node has this many pages; nothing in this process notifies of it."""
        async with asyncio.timeout(20):
            while [self.pages(numa) for numa in range(len(pages))] != list(pages):  # noqa: ASYNC110 - the agent writes
                await asyncio.sleep(0.005)

    def drivers(self) -> tuple[MemoryDriver]:
        driver = MemoryDriver(NODE, read_memory(self.sysfs, self.procfs), machine())
        driver.system = 0
        return (driver,)

    def node(self, settings: CpuNodeSpec) -> AbstractAsyncContextManager[WholeNode]:
        """Starts an agent, which may not write pages before `allow`."""
        tree = (self.sysfs, self.procfs)
        return whole_node(settings=settings, tree=tree, others=self.drivers, companion=MemoryCompanion)

    async def allow(self, node: WholeNode) -> None:
        """Starts the agent anew, with a mount through which it may write pages."""
        write_cgroups(node.root / "cgroups", "kubepods/besteffort")
        node.memory_nodes = self.sysfs / NODES
        await self.restart(node)

    async def restart(self, node: WholeNode, change: Callable[[], object] = lambda: None) -> None:
        """Starts the agent anew; in between, `change` is called."""
        await node.stop_agent()
        change()
        await node.start_agent()
