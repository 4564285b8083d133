"""The agent put together: the only place that knows every room.

NodeState decides, the adapters carry: what arrives from the kubelet, the runtime and the API server goes into it, and
whatever it changes there is followed to everybody who has to know.
"""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import structlog

from dracpu_agent.cdi.files import CdiDirectory
from dracpu_agent.checkpoint.statefile import StateFile
from dracpu_agent.claims.grant import ClaimRef
from dracpu_agent.claims.ledger import HeldClaim
from dracpu_agent.cli.options import RunOptions
from dracpu_agent.cluster import access
from dracpu_agent.cluster.claims import ApiClaimReader
from dracpu_agent.cluster.client import ApiClient
from dracpu_agent.cluster.cpunode import CpuNodeWatch, StatusWriter
from dracpu_agent.cluster.device_status import DeviceStatusWriter
from dracpu_agent.cluster.events import Events, Subject
from dracpu_agent.cluster.slices.controller import SliceController, SlicesState
from dracpu_agent.errors import DriverError, SettingsRefusedError
from dracpu_agent.host import sysfs
from dracpu_agent.host.cpu_manager import CpuManagerStateError, is_static
from dracpu_agent.host.hotplug import Hotplug, report_incomplete
from dracpu_agent.kubelet.health import DeviceHealth
from dracpu_agent.kubelet.plugin import KubeletPlugin
from dracpu_agent.kubelet.registration import RegistrationStatus
from dracpu_agent.node import NodeState
from dracpu_agent.observe.http import HttpServer
from dracpu_agent.observe.metrics import Metrics
from dracpu_agent.observe.state import StateServer
from dracpu_agent.report import node_status as status
from dracpu_agent.report.conditions import Standing, name_offline
from dracpu_agent.report.device_health import health_of
from dracpu_agent.report.document import document_of, gauges_of
from dracpu_agent.report.node_status import Condition
from dracpu_agent.runtime.plugin import NriPlugin
from dracpu_agent.topology.topology import Topology
from dracpu_agent.version import __version__
from dracpu_agent.work.auditing import Auditor
from dracpu_agent.work.pinning import Pinning
from dracpu_agent.work.recovery import recover
from dracpu_agent.work.transactions import ClaimTransactions
from dracpu_api import names
from dracpu_api.cpuset import EMPTY, CpuSet, union
from dracpu_api.settings import SettingsError, decode_spec

CPU_MANAGER_SECONDS: Final = 30.0
GUARD_SECONDS: Final = 1.0

log = structlog.get_logger("agent")


class Agent:
    """One node's agent, from its start to SIGTERM."""

    def __init__(self, options: RunOptions, topology: Topology, api: ApiClient) -> None:
        self._options = options
        self._version = __version__
        self._changed = asyncio.Event()
        self._refused_spec: dict[str, Any] | None = None
        self._publishing = False  # devices were handed to the slices' controller, which has not answered yet
        self.node = NodeState(options.node_name, topology)
        self.standing = Standing()
        self._metrics = Metrics(self._version)
        self._state_file = StateFile(options.state_dir, self.node.checkpoint, self._checkpoint_written)
        self._cdi = CdiDirectory(options.cdi_dir)
        self._slices = SliceController(api, names.DRIVER, options.node_name, self._slices_changed)
        self._status = StatusWriter(api, options.node_name, interval=options.status_interval)
        self._cpu_node = CpuNodeWatch(api, options.node_name, self._configure, self._status.observe)
        self._device_status = DeviceStatusWriter(api, names.DRIVER)
        self._events = Events(api, options.node_name, "dracpu-agent")
        self._hotplug = Hotplug(_Sysfs(options), topology, self._replugged, self._machine_read)
        self._pinning = Pinning(self.node, self._learn_consumers, self._pushed)
        claims = ApiClaimReader(api, options.node_name)
        self._transactions = ClaimTransactions(
            self.node, claims, self._state_file, self._cdi, settle=self._pinning.settle, observer=self
        )
        self._nri = NriPlugin(options.nri_socket, self._pinning, answered=self._metrics.hook_answered)
        self._kubelet = KubeletPlugin(names.DRIVER, options.kubelet_root, self._transactions, self, self._registered)
        self._auditor = Auditor(
            self.node, claims.read_if_there, self._transactions.release_if_gone, self._released_by_audit
        )
        self._http = HttpServer(options.http_address, self, self._metrics)
        self._state_server = StateServer(options.state_dir, lambda: document_of(self.node, self.standing))
        self.node.on_change(self._touch)

    async def run(self) -> None:
        """Serves until the task is cancelled; claims, files and slices stay as they are."""
        self._state_file.lock()
        try:
            await asyncio.to_thread(self._recover)
            async with contextlib.AsyncExitStack() as servers:
                await servers.enter_async_context(_started(self._http))
                await servers.enter_async_context(_started(self._state_server))
                await self._serve()
        finally:
            self._state_file.unlock()

    async def _serve(self) -> None:
        async with asyncio.TaskGroup() as group:
            background = {
                "checkpoint": self._state_file.run(),
                "follow": self._follow(),
                "guard": self._guard(),
                "cpu manager": self._watch_cpu_manager(),
                "slices": self._slices.run(),
                "cpunode": self._cpu_node.run(),
                "hotplug": self._hotplug.run(),
                "status": self._status.run(),
                "device status": self._device_status.run(),
                "events": self._events.run(),
                "nri": self._nri.run(),
                "pushes": self._pinning.run(self._nri),
                "audit": self._auditor.run(),
            }
            for name, coroutine in background.items():
                group.create_task(coroutine, name=name)
            async with _started(self._kubelet):
                log.info("agent started", node=self._options.node_name, version=self._version)
                self._touch()
                await asyncio.Event().wait()

    def _recover(self) -> None:
        self.standing.state_damage = recover(self.node, self._state_file.load(), self._cdi)
        if self.node.spec is not None:
            self.standing.config = Condition(
                status.CONFIG_APPLIED, True, "Applied", "the settings of the last checkpoint are in force"
            )

    # ---- what the others tell

    def _configure(self, spec: dict[str, Any] | None) -> None:
        """The CpuNode's spec has changed, or there is no CpuNode."""
        self._refused_spec = None
        if spec is None:
            self.node.deconfigure()
            self.standing.config = Standing().config
            return
        try:
            decoded = decode_spec(spec)
            self.node.configure(decoded)
        except (SettingsError, SettingsRefusedError) as error:
            self._refused_spec = spec
            self._refuse_settings(str(error))
            return
        settings = decoded.settings
        log.info(
            "settings applied",
            revision=decoded.revision,
            mode=settings.mode,
            reserved=str(self.node.reserved),
            settling=self.node.settling,
            outstanding=len(decoded.outstanding),
        )
        self.standing.config = Condition(status.CONFIG_APPLIED, True, "Applied")
        self._metrics.set_config(config=decoded.config_name, mode=settings.mode, group_by=settings.group_by)
        self._touch()

    def _refuse_settings(self, why: str) -> None:
        kept = "; the former settings stay in force" if self.node.spec else ""
        refused = Condition(status.CONFIG_APPLIED, False, status.REFUSED, f"{why}{kept}")
        if refused == self.standing.config:
            return
        log.error("settings refused", error=why)
        self.standing.config = refused
        subject = Subject.cpu_node(self._options.node_name)
        self._events.emit(subject, "Warning", "SettingsRefused", "Configure", why)
        self._touch()

    def read_machine_again(self) -> None:
        """Somebody changed it and does not want to wait until that is noticed."""
        self._hotplug.read_again()

    def _replugged(self, topology: Topology) -> None:
        """CPUs came or went."""
        before = self.node.offline()
        self.node.replug(topology)
        lost = {uid: cpus for uid, cpus in self.node.offline().items() if not cpus <= before.get(uid, EMPTY)}
        if lost:
            note = f"CPUs of claims went offline: {name_offline(self.node, lost)}"
            log.warning("CPUs of claims went offline", claims=len(lost), cpus=str(union(lost.values())))
            self._events.emit(Subject.cpu_node(self._options.node_name), "Warning", "CPUsOffline", "Hotplug", note)

    def _machine_read(self, problem: str) -> None:
        self.standing.machine_problem = problem
        self._touch()

    def _registered(self, registration: RegistrationStatus) -> None:
        """The kubelet has registered the driver, or says why not. It deletes all slices when it starts."""
        self._metrics.set_kubelet_registered(registration.registered)
        if registration.registered:
            self.standing.kubelet = Condition(status.KUBELET_REGISTERED, True, "Registered")
            self._slices.poke()
        else:
            self.standing.kubelet = Condition(status.KUBELET_REGISTERED, False, "Refused", registration.error)
            log.error("the kubelet refused the driver", error=registration.error)
        self._touch()

    def _slices_changed(self, state: SlicesState) -> None:
        self._publishing = False
        self._metrics.set_slices(published=state.published, failed=state.error is not None)
        self.standing.slices = Condition(status.SLICES_PUBLISHED, state.published, state.reason, state.error or "")
        self._note_applied()
        self._touch()

    def _checkpoint_written(self, seconds: float, problem: str) -> None:
        self._metrics.checkpoint_written(seconds, "error" if problem else "success")
        if problem and not self.standing.state_problem:
            log.error("checkpoint not written", error=problem)
        if problem != self.standing.state_problem:
            self.standing.state_problem = problem
            self._touch()

    def _pushed(self, applied: bool) -> None:
        self._metrics.pool_pushed("success" if applied else "error")

    # ---- Observer of the transactions

    async def _learn_consumers(self, uid: str) -> None:
        await self._transactions.learn_consumers(uid)

    def prepared(self, claim: HeldClaim, seconds: float) -> None:
        """Shows the owner its CPUs, after the kubelet has its answer."""
        self._metrics.claim_prepared(seconds, len(claim.cpus))
        self._device_status.set(claim.ref, claim.grants)

    def prepare_failed(self, ref: ClaimRef, reason: str) -> None:
        """The kubelet shows the reason on the pod."""
        self._metrics.prepare_failed()

    def unprepared(self, ref: ClaimRef, error: str) -> None:
        """Nothing is left to show."""
        self._metrics.claim_unprepared("error" if error else "success")
        self._device_status.forget(ref.uid)

    def _released_by_audit(self, claim: HeldClaim, reason: str) -> None:
        log.warning("claim released by the audit", claim=str(claim.ref), uid=claim.ref.uid, reason=reason)
        subject = Subject.cpu_node(self._options.node_name)
        note = f"claim {claim.ref} ({claim.ref.uid}) gave back CPUs {claim.cpus}: {reason}"
        self._events.emit(subject, "Warning", "ClaimReleased", "Audit", note)

    # ---- Health and HealthSource

    def live(self) -> list[str]:
        """A task that fails ends the process, so that an answer is all that is left to ask for."""
        return []

    def ready(self) -> list[str]:
        """Why no claim can be prepared."""
        registered = [] if self.standing.kubelet.true else [self.standing.kubelet.message]
        return registered + self.standing.unready(self.node)

    def snapshot(self) -> Sequence[DeviceHealth]:
        """How the devices are."""
        return health_of(self.node)

    # ---- following

    def _touch(self) -> None:
        self._changed.set()
        self._pinning.wake()

    async def _follow(self) -> None:
        """Tells everybody who has to know, once for changes that come together."""
        published = -1
        while True:
            await self._changed.wait()
            self._changed.clear()
            if published != self.node.revision:
                published = self.node.revision
                self._state_file.save_soon()
                if self._refused_spec is not None:  # a claim that stood against it may have ended
                    self._configure(self._refused_spec)
                self._publish()
            conditions = self.standing.conditions(self.node)
            self._status.set(status.status_of(self.node, conditions, self._version, self.standing.applied_revision))
            self._metrics.set_nri_connected(self.node.synchronized)
            self._metrics.set_node(gauges_of(self.node))

    def _publish(self) -> None:
        if self.node.spec is None:
            self._slices.withdraw()
        elif self._slices.publish(self.node.devices()):
            self._publishing = True
        self._note_applied()
        self._kubelet.health_changed()

    def _note_applied(self) -> None:
        """A revision is applied when its devices are what stands at the API server."""
        if self.node.spec is None:
            self.standing.applied_revision = ""
        elif self.standing.slices.true and not self._publishing and not self.node.settling:
            self.standing.applied_revision = self.node.spec.revision

    async def _guard(self) -> None:
        """Keeps pods away while their claims could not be prepared, and while the devices are about to change."""
        loop = asyncio.get_running_loop()
        while True:
            self.node.taint(self.standing.taints(self.node, loop.time()))
            if self.standing.has_settled(self.node, loop.time()):
                self.node.settled()
            await asyncio.sleep(GUARD_SECONDS)

    async def _watch_cpu_manager(self) -> None:
        problem = ""
        while True:
            try:
                static = await asyncio.to_thread(is_static, self._options.kubelet_root)
            except CpuManagerStateError as error:
                if str(error) != problem:
                    problem = str(error)
                    log.warning("the kubelet's CPU manager cannot be judged", error=problem)
            else:
                if static != self.standing.static_cpu_manager:
                    self.standing.static_cpu_manager = static
                    self._touch()
            await asyncio.sleep(CPU_MANAGER_SECONDS)


@dataclass(frozen=True, slots=True)
class _Sysfs:
    """The machine that the options point to."""

    options: RunOptions

    def online(self) -> CpuSet:
        return sysfs.read_online(self.options.sysfs_root)

    def topology(self) -> Topology:
        return sysfs.read(self.options.sysfs_root, self.options.procfs_root)


async def run(options: RunOptions) -> None:
    """Serves this node until SIGTERM or SIGINT; SIGHUP has the machine read again."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is an agent: what is read now is new enough
    topology = await asyncio.to_thread(_Sysfs(options).topology)
    report_incomplete(topology)
    reach = access.from_kubeconfig(options.kubeconfig) if options.kubeconfig else access.in_cluster()
    async with ApiClient(reach, version=__version__) as api:
        agent = Agent(options, topology, api)
        serving = asyncio.create_task(agent.run(), name="agent")
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, agent.read_machine_again)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, serving.cancel)
        try:
            await serving
        except asyncio.CancelledError:
            log.info("agent stopped")
        except BaseExceptionGroup as failures:
            refused, others = failures.split(DriverError)
            if refused is None or others is not None:
                raise
            raise _first(refused) from None


def _first(failures: BaseExceptionGroup[DriverError]) -> DriverError:
    first = failures.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


@contextlib.asynccontextmanager
async def _started(server: HttpServer | StateServer | KubeletPlugin) -> AsyncIterator[None]:
    await server.start()
    try:
        yield
    finally:
        await asyncio.shield(server.stop())
