"""Puts the agent together: the only module that knows every room.

NodeState decides. The adapters carry what arrives from the kubelet, the runtime and the API server into it, and work/
follows its changes back to them.
"""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

import structlog

from dracpu_agent.checkpoint.statefile import StateFile
from dracpu_agent.claims.held import HeldClaim
from dracpu_agent.claims.request import ClaimRequest
from dracpu_agent.cli.options import RunOptions
from dracpu_agent.cluster import access
from dracpu_agent.cluster.client import ApiClient
from dracpu_agent.cluster.cpunode import CpuNodeWatch, StatusWriter
from dracpu_agent.cluster.events import Events
from dracpu_agent.drivers.driver import Driver
from dracpu_agent.errors import refusal_in
from dracpu_agent.file_threads import in_file_thread
from dracpu_agent.host.cgroups import CgroupTree
from dracpu_agent.host.hotplug import Hotplug, report_not_offered
from dracpu_agent.host.machine import HostMachine
from dracpu_agent.kubelet.plugin import KubeletPlugin
from dracpu_agent.kubelet.pod_resources import PodResources
from dracpu_agent.node import NodeState
from dracpu_agent.observe.http import pages
from dracpu_agent.observe.metrics import Metrics
from dracpu_agent.observe.state import StateServer
from dracpu_agent.placement.container import Limits
from dracpu_agent.placement.proof import ClaimKey
from dracpu_agent.report.conditions import Standing, conditions_of, worst_registration, worst_slices
from dracpu_agent.report.document import document_of
from dracpu_agent.report.probes import Probes
from dracpu_agent.runtime.plugin import NriPlugin
from dracpu_agent.service import Companion, DriverService, Shared
from dracpu_agent.topology.topology import Topology
from dracpu_agent.version import __version__
from dracpu_agent.work.changes import Changes
from dracpu_agent.work.delegation import Delegation
from dracpu_agent.work.following import Following
from dracpu_agent.work.kubelet_manager import ManagerWatch
from dracpu_agent.work.lingering import Lingering
from dracpu_agent.work.outcomes import Outcomes
from dracpu_agent.work.pinning import Pinning
from dracpu_agent.work.recovery import recover
from dracpu_agent.work.settings import ApplySettings
from dracpu_agent.work.settling import Settling
from dracpu_agent.work.tainting import Tainting
from dracpu_api.cpuset import CpuSet
from dracpu_api.serving.pages import PageServer
from dracpu_api.watchdog import watch_process

log = structlog.get_logger("agent")


class Agent:
    """One node's agent, from its start to SIGTERM."""

    def __init__(
        self,
        options: RunOptions,
        topology: Topology,
        api: ApiClient,
        others: Sequence[Driver[Any, Any]] = (),
        companion: Callable[[Shared], Companion] | None = None,
    ) -> None:
        """`others` are drivers beside the one of CPUs; `companion` makes what one of them needs besides."""
        machine = _machine(options)
        self._options = options
        self._cgroups = machine.cgroups
        self._damage = ""  # what was wrong with the checkpoint when the agent started
        self.node = node = NodeState(options.node_name, topology, others)
        self._changes = changes = Changes(node)
        metrics = Metrics(__version__, tuple(node.holdings))
        events = Events(api, options.node_name, "dracpu-agent")
        outcomes = Outcomes(node, metrics, events)
        self._state_file = StateFile(
            options.state_dir,
            node.checkpoint,
            outcomes.checkpoint_written,
            on_problem=changes.report,
            kinds=node.claim_kinds(),
        )
        self._settings = ApplySettings(node, metrics, events, changes)
        status = StatusWriter(api, options.node_name, interval=options.status_interval)
        cpu_node = CpuNodeWatch(api, options.node_name, self._settings.apply, status.observe)
        self._hotplug = Hotplug(machine, lambda: node.topology, outcomes.replug, changes.report)
        self._delegation = Delegation(machine.cgroups, changes)
        self._cpu_manager = ManagerWatch("CPU manager", PodResources(options.kubelet_root).assigns_cpus, changes)
        pinning = Pinning(
            node,
            self._learn_consumers,
            outcomes.pushed,
            self._read_cpus,
            self._ready_pod,
            self._check_resize,
            self._read_limits,
        )
        changes.subscribe(pinning.wake)
        self._lingering = Lingering(node, machine.cgroups)
        shared = Shared(options, api, node, changes, self._state_file, self._lingering, events, metrics)
        self._companion = None if companion is None else companion(shared)

        async def ready_claim(claim: HeldClaim[Any]) -> None:
            await pinning.wait_until_settled(claim)
            if self._companion is not None:
                await self._companion.ready_claim(claim)

        self._services = {
            name: DriverService(shared, holding, self._before_grant, ready_claim, self._kubelet_registered)
            for name, holding in node.holdings.items()
        }
        nri = NriPlugin(
            options.nri_socket,
            pinning,
            answered=metrics.hook_answered,
            serves_memory=self._companion is not None,
        )
        probes = Probes(node, self.standing)
        following = Following(
            node,
            self.standing,
            changes,
            state_file=self._state_file,
            settings=self._settings,
            slices={name: service.slices for name, service in self._services.items()},
            health_changed=[service.kubelet.health_changed for service in self._services.values()],
            status=status,
            metrics=metrics,
        )
        self._http = PageServer(options.http_address, pages(probes, metrics))
        self._state_server = StateServer(
            options.state_dir, lambda: document_of(node, conditions_of(node, self.standing()))
        )
        self._background: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
            "checkpoint": self._state_file.run,
            "follow": following.run,
            "taints": Tainting(node, self.standing, changes).run,
            "settling": Settling(node, changes).run,
            "cpu manager": self._cpu_manager.run,
            "delegation": self._delegation.run,
            "cpunode": cpu_node.run,
            "hotplug": self._hotplug.run,
            "status": status.run,
            "events": events.run,
            "nri": partial(self._connect, nri),
            "pushes": partial(pinning.run, nri),
            "lingering": self._lingering.run,
        }
        for name, service in self._services.items():
            self._background |= {f"{work} of {name}": run for work, run in service.background().items()}
        if self._companion is not None:
            self._background |= self._companion.background()

    async def run(self) -> None:
        """Serves until the task is cancelled; claims, files and slices stay as they are."""
        self._state_file.lock()
        try:
            await in_file_thread(self._recover)
            for service in self._services.values():
                await service.recovered()
            if self._companion is not None:
                await self._companion.recovered()
            await self._lingering.look()  # before the runtime lists its containers
            await self._delegation.look()  # before a device is published
            async with _started(self._http), _started(self._state_server), asyncio.TaskGroup() as group:
                for name, work in self._background.items():
                    group.create_task(work(), name=name)
                async with _all_started([service.kubelet for service in self._services.values()]):
                    log.info("agent started", node=self._options.node_name, version=__version__)
                    await asyncio.Event().wait()
        finally:
            self._state_file.unlock()

    async def _connect(self, nri: NriPlugin) -> None:
        await self._delegation.delegated()
        await nri.run()

    def _recover(self) -> None:
        directories = (service.cdi for service in self._services.values())
        self._damage = recover(self.node, self._state_file.load(), *directories)
        self._settings.resumed()

    @property
    def http_port(self) -> int:
        """The port on which the agent serves its probes."""
        return self._http.port

    def read_machine_again(self) -> None:
        """Reads the machine at once instead of at the next poll."""
        self._hotplug.read_again()
        self._delegation.look_again()
        if self._companion is not None:
            self._companion.read_again()

    def standing(self) -> Standing:
        """The last report of each side that the agent depends on."""
        return Standing(
            config=self._settings.condition,
            registration=worst_registration(
                {name: service.kubelet.registration for name, service in self._services.items()}
            ),
            slices=worst_slices(
                {
                    name: service.slices.state
                    for name, service in self._services.items()
                    if self.node.holdings[name].driver.offers
                }
            ),
            checkpoint_problem=self._state_file.problem,
            checkpoint_damage=self._damage,
            machine_problem=self._hotplug.problem,
            static_cpu_manager=self._cpu_manager.static,
            without_cpuset=self._delegation.value,
            memory=() if self._companion is None else self._companion.conditions(),
        )

    def _kubelet_registered(self) -> None:
        self._cpu_manager.ask_again()
        if self._companion is not None:
            self._companion.kubelet_registered()

    async def _before_grant(self, request: ClaimRequest[Any]) -> None:
        if self._companion is not None:
            await self._companion.before_grant(request)

    async def _ready_pod(self, pod_uid: str) -> None:
        if self._companion is not None:
            await self._companion.ready_pod(pod_uid)

    async def _check_resize(self, pod_uid: str) -> None:
        if self._companion is not None:
            await self._companion.check_resize(pod_uid)

    async def _read_cpus(self, pod_uid: str, container_id: str) -> CpuSet | None:
        return await in_file_thread(self._cgroups.container_cpus, pod_uid, container_id)

    async def _read_limits(self, pod_uid: str, container_id: str, limits: Limits) -> Mapping[str, str] | None:
        if self._companion is None:
            return None
        return await self._companion.read_limits(pod_uid, container_id, limits)

    async def _learn_consumers(self, claim: ClaimKey) -> None:
        await self._services[claim.driver].transactions.learn_consumers(claim.uid)


async def run(options: RunOptions) -> None:
    """Serves this node until SIGTERM or SIGINT; SIGHUP has the machine read again."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is an agent: what is read now is new enough
    topology = await in_file_thread(_machine(options).topology)
    report_not_offered(topology)
    reach = access.from_kubeconfig(options.kubeconfig) if options.kubeconfig else access.in_cluster()
    async with ApiClient(reach, version=__version__) as api:
        agent = Agent(options, topology, api, *await other_drivers(options, topology))
        serving = asyncio.create_task(agent.run(), name="agent")
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, agent.read_machine_again)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, serving.cancel)
        watching = asyncio.create_task(watch_process(), name="watchdog")
        try:
            await serving
        except asyncio.CancelledError:
            log.info("agent stopped")
        except BaseExceptionGroup as failures:
            refusal = refusal_in(failures)
            if refusal is None:
                raise
            raise refusal from None
        finally:
            watching.cancel()


async def other_drivers(
    options: RunOptions, topology: Topology
) -> tuple[Sequence[Driver[Any, Any]], Callable[[Shared], Companion] | None]:
    """The drivers beside the one of CPUs that the options ask for, and what makes their companion."""
    if options.memory_cgroups is None:
        return (), None
    from dracpu_agent.memory_service import memory_parts  # noqa: PLC0415 - an agent of CPUs alone does not load it

    return await in_file_thread(memory_parts, options, topology)


def _machine(options: RunOptions) -> HostMachine:
    return HostMachine(options.sysfs_root, options.procfs_root, CgroupTree(options.cgroupfs_root, options.cgroup_root))


@contextlib.asynccontextmanager
async def _started(server: PageServer | StateServer) -> AsyncIterator[None]:
    await server.start()
    try:
        yield
    finally:
        await asyncio.shield(server.stop())


@contextlib.asynccontextmanager
async def _all_started(plugins: Sequence[KubeletPlugin]) -> AsyncIterator[None]:
    """Stops them at the same time: each one's calls and work in progress may take most of the time that a pod has."""
    started: list[KubeletPlugin] = []
    try:
        for plugin in plugins:
            await plugin.start()
            started.append(plugin)
        yield
    finally:
        await asyncio.shield(asyncio.gather(*(plugin.stop() for plugin in started)))
