"""Puts together the tasks that the driver of memory needs besides. Agents of CPUs alone do not load this module."""

from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from dracpu_agent.claims.held import HeldClaim
from dracpu_agent.claims.memory_granting import asks_for_pages
from dracpu_agent.claims.request import ClaimRequest
from dracpu_agent.cli.options import RunOptions
from dracpu_agent.drivers.memory import MemoryDriver
from dracpu_agent.drivers.memory_promises import memory_of
from dracpu_agent.errors import ClaimError, NotReadyError, PlacementError
from dracpu_agent.file_threads import in_cgroup_thread
from dracpu_agent.host.cgroup_errors import CgroupError
from dracpu_agent.host.cgroups import CgroupTree
from dracpu_agent.host.container_usage import ContainerUsages
from dracpu_agent.host.inotify import FileWatch
from dracpu_agent.host.memory import read_free, read_memory
from dracpu_agent.host.oom_counts import OomReader
from dracpu_agent.host.page_pools import PagePools
from dracpu_agent.host.pod_limits import PodLimits
from dracpu_agent.host.pod_pages import PodPagesReader
from dracpu_agent.host.reserved_pages import ReservedPages
from dracpu_agent.kubelet.pod_resources import PodResources
from dracpu_agent.memory.existing import CORRECTABLE
from dracpu_agent.memory.limits import pages_in
from dracpu_agent.memory.room import RESERVED_AT_LEAST
from dracpu_agent.observe.exposition import Counter
from dracpu_agent.observe.memory_metrics import memory_families
from dracpu_agent.placement.container import Limits
from dracpu_agent.report.conditions import Condition
from dracpu_agent.report.memory import (
    broken_promises,
    memory_condition,
    not_counted_condition,
    shared_pages_condition,
)
from dracpu_agent.service import Companion, Shared
from dracpu_agent.topology.topology import Topology
from dracpu_agent.work.kubelet_manager import ManagerWatch
from dracpu_agent.work.late_corrections import LateCorrections
from dracpu_agent.work.memory_counted import CountedClaims
from dracpu_agent.work.memory_kills import MemoryKills
from dracpu_agent.work.memory_promises import BrokenPromises
from dracpu_agent.work.memory_use import MemoryUse
from dracpu_agent.work.memory_watch import MemoryWatch
from dracpu_agent.work.page_limits import PREPARE_SECONDS, PageLimits
from dracpu_agent.work.pages_check import PagesCheck
from dracpu_agent.work.pod_resizes import PodResizes
from dracpu_agent.work.provisioning import Provisioning
from dracpu_agent.work.writable_tree import LimitProblems, WritableTree
from dracpu_api.resources import NODES

log = structlog.get_logger("memory")


def memory_parts(options: RunOptions, topology: Topology) -> tuple[tuple[MemoryDriver], Callable[[Shared], Companion]]:
    """The driver, and what makes its companion. Blocks, and raises TopologyError."""
    driver = MemoryDriver(options.node_name, read_memory(options.sysfs_root, options.procfs_root), topology)
    return (driver,), partial(MemoryCompanion, driver)


class MemoryCompanion:
    """Follows the memory of the machine, and writes the limits of pods."""

    def __init__(self, driver: MemoryDriver, shared: Shared, open_watch: Callable[[], FileWatch] = FileWatch) -> None:
        """`open_watch` raises WatchError."""
        options, api = shared.options, shared.api
        assert options.memory_cgroups is not None
        self._driver = driver
        tree = CgroupTree(options.memory_cgroups, options.cgroup_root)
        self._cgroups = PodLimits(options.memory_cgroups, tree)
        self._resizes = PodResizes(driver, ReservedPages(options.memory_cgroups, tree).untouched)
        self._containers = ContainerUsages(options.memory_cgroups, tree)
        repairs = Counter("dra_memory_limit_repairs_total", "Limits of pods' hugepages that something else had changed")
        kills = Counter("dra_memory_claim_kills_total", "Containers killed at the limit of their claims of memory")
        corrections = Counter(
            "dra_memory_late_corrections_total",
            "Limits written for containers that ran without those of their claims",
            "file",
            CORRECTABLE,
        )
        self._use = MemoryUse(shared.node, driver, self._containers, shared.changes, shared.events)
        shared.metrics.add(*memory_families(driver, self._use.used, self._use.beyond), repairs, kills, corrections)
        read_machine = partial(read_memory, options.sysfs_root, options.procfs_root)
        pods = PodPagesReader(options.memory_cgroups, tree)
        self._pages = PagesCheck(driver, pods, read_machine, self._use.look)
        self._watch = MemoryWatch(
            shared.node,
            driver,
            read_machine,
            partial(api.get, NODES, options.node_name, from_cache=True),
            shared.changes,
        )
        self._manager = ManagerWatch(
            "memory manager", PodResources(options.kubelet_root).assigns_memory, shared.changes
        )
        self._limits = PageLimits(
            driver, self._cgroups, shared.state_file, shared.changes, repairs.count, open_watch=open_watch
        )
        ooms = OomReader(options.memory_cgroups, tree)
        self._kills = MemoryKills(
            shared.node, driver, ooms, shared.changes, shared.events, kills.count, open_watch=open_watch
        )
        self._broken = BrokenPromises(
            options.node_name, partial(broken_promises, driver), shared.changes, shared.events
        )
        self._counted = CountedClaims(shared.node, driver, shared.changes, shared.events)
        self._corrections = LateCorrections(
            shared.node,
            self._containers,
            partial(_to_spare, driver, options.sysfs_root),
            shared.changes,
            corrections.count,
        )
        self._tree = WritableTree(self._read_problems, driver, shared.node)
        pools = PagePools(options.sysfs_root, options.procfs_root, options.memory_nodes)
        self._provisioning = Provisioning(shared.node, driver, pools, self._use, shared.state_file, shared.changes)

    def background(self) -> Mapping[str, Callable[[], Coroutine[Any, Any, None]]]:
        """The tasks that run as long as the agent, by name."""
        return {
            "memory of the machine": self._watch.follow_machine,
            "memory of the Node": self._watch.follow_node,
            "limits of pages": self._limits.run,
            "provision of pages": self._provisioning.run,
            "cgroups of memory": self._tree.run,
            "kills at claims of memory": self._kills.run,
            "use of memory": self._use.run,
            "promises of memory": self._broken.run,
            "requests beside claims": self._counted.run,
            "memory manager": self._manager.run,
            "late corrections": self._corrections.run,
        }

    async def recovered(self) -> None:
        """The claims of an earlier agent are in the ledger."""
        self._limits.recovered()
        await self._tree.look()

    async def before_grant(self, request: ClaimRequest[Any]) -> None:
        """Reads which hugepages are left for a claim of some; raises NotReadyError."""
        if any(asks_for_pages(ask) for ask in request.asks):
            await self._pages.look()

    async def ready_claim(self, claim: HeldClaim[Any]) -> None:
        """Writes the limits of the claim's pod, if it has a cgroup already; raises NotReadyError, also for a claim of
        memory that nothing can limit."""
        memory = memory_of(claim)
        if not memory:
            return
        if self._tree.value.memory:
            raise NotReadyError(f"claim {claim.ref}: memory cannot be limited: {self._tree.value.memory}")
        if not pages_in(memory):
            return
        if self._tree.value.pages:
            raise NotReadyError(f"claim {claim.ref}: limits of hugepages cannot be written: {self._tree.value.pages}")
        for pod_uid in sorted(claim.consumers):
            try:
                await self._limits.ensure(pod_uid, PREPARE_SECONDS)
            except CgroupError as error:
                raise NotReadyError(f"claim {claim.ref}: {error}") from error

    async def ready_pod(self, pod_uid: str) -> None:
        """Writes the limits of a pod before one of its containers is created; raises PlacementError."""
        try:
            await self._limits.ensure(pod_uid)
        except (CgroupError, ClaimError) as error:
            raise PlacementError(f"the limits of the pod's hugepages cannot be written: {error}") from error
        pods = self._driver.pods
        if pod_uid in pods.claiming - pods.known:
            raise PlacementError(
                "the limits of the pod's hugepages cannot be written: the agent finds no cgroup of the pod; if the "
                "kubelet's cgroupRoot has several levels, set agent.cgroupRoot in the chart's values"
            )

    async def check_resize(self, pod_uid: str) -> None:
        """Raises PlacementError while the pod has hugepages that are reserved and not touched: the kubelet would write
        0 as the limit of its pages."""
        await self._resizes.check(pod_uid)

    async def read_limits(self, pod_uid: str, container_id: str, limits: Limits) -> Mapping[str, str] | None:
        """The content that the cgroup of a container has in the files of these limits; None if that is not known."""
        files = [file for file, _ in limits]
        try:
            return await in_cgroup_thread(self._containers.read_files, pod_uid, container_id, files)
        except CgroupError as error:
            log.warning("limits of a container not read", pod=pod_uid, container_id=container_id, error=str(error))
            return None

    def kubelet_registered(self) -> None:
        """The kubelet has registered the driver, perhaps after a restart."""
        self._watch.kubelet_registered()
        self._manager.ask_again()

    def read_again(self) -> None:
        """Reads the machine at once instead of at the next poll."""
        self._watch.read_again()
        self._use.look_again()
        self._tree.look_again()

    def conditions(self) -> tuple[Condition, ...]:
        """The conditions that are about memory."""
        problems = self._tree.value
        ready = memory_condition(
            self._driver,
            unreadable=self._watch.problem,
            not_writable=problems.pages,
            without_limits=problems.memory,
            not_provisioned=self._provisioning.problem,
            static_manager=self._manager.static,
        )
        remarks = (shared_pages_condition(self._driver), not_counted_condition(self._counted.pods.values()))
        return tuple(filter(None, (ready, *remarks)))

    def _read_problems(self) -> LimitProblems:
        return LimitProblems(self._cgroups.memory_problem(), self._cgroups.problem())


def _to_spare(driver: MemoryDriver, sysfs_root: Path) -> Mapping[int, int]:
    """NUMA node -> bytes that can be filled before the kernel begins to free others."""
    nodes = driver.inventory.by_numa
    return {
        numa: free - int(nodes[numa].total * RESERVED_AT_LEAST)
        for numa, free in read_free(sysfs_root).items()
        if numa in nodes
    }
