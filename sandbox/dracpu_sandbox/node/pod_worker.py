"""Runs one pod on its node, from its binding until it is deleted from the API server."""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass
from typing import Final

import structlog

from dracpu_agent.claims.grant import ClaimRef
from dracpu_sandbox.client import KubeClient, NotFoundError
from dracpu_sandbox.errors import SandboxError
from dracpu_sandbox.events import EventRecorder, now
from dracpu_sandbox.node.claim_cache import AllocatedClaim, ClaimCache
from dracpu_sandbox.node.containers import KILLED
from dracpu_sandbox.node.delays import Delays
from dracpu_sandbox.node.plugins import KubeletError
from dracpu_sandbox.node.pod_cgroups import PodCgroups
from dracpu_sandbox.node.pod_status import Seen, refused_status, status_of
from dracpu_sandbox.node.pods import HOLD_ANNOTATION, ContainerSpec, Pod, Run, due, phase_of, restart_delay
from dracpu_sandbox.node.resizing import Resizer
from dracpu_sandbox.node.runtime import RuntimeDownError, SimulatedRuntime
from dracpu_sandbox.resources import CLAIMS, PODS, JsonObject

HealthOf = Callable[[str, str, str], tuple[str, str]]  # driver, pool, device -> health, message

_OVER: Final = ("Succeeded", "Failed")

log = structlog.get_logger("kubelet")


class PodTroubleError(SandboxError):
    """Containers cannot be started now; the kubelet retries."""


@dataclass(eq=False)
class PodWorker:
    """Runs one pod. Cancelling it leaves containers and claims as they are: containers outlive the kubelet."""

    pod: Pod  # its last known version
    client: KubeClient
    runtime: SimulatedRuntime
    cgroups: PodCgroups
    claims: ClaimCache
    events: EventRecorder
    health_of: HealthOf
    delays: Delays
    _: KW_ONLY
    node_ip: str
    pod_ip: str
    node_memory: int  # bytes
    refusal: tuple[str, str] | None = None  # why the kubelet does not take the pod: reason and message

    def __post_init__(self) -> None:
        self._runs: dict[str, Run] = {}
        self._claim_uids: dict[str, str] = {}  # by the claims' names in the pod
        self._gone = False  # whether it was deleted from the API server
        self._wake = asyncio.Event()
        self._reported: JsonObject = {}
        self._crashed_until: dict[str, float] = {}  # containers that wait before their next start
        self._failures = 0  # consecutive failed attempts
        self._awaits_resync = False
        self._resizer = self._new_resizer()
        self._ended = False  # whether its containers have ended for ever

    @property
    def uses_resources(self) -> bool:
        """Whether what the pod requests is not free for others."""
        return self.refusal is None and not self._ended

    @property
    def _leaving(self) -> bool:
        return self._gone or self.pod.deleted

    def update(self, pod: Pod) -> None:
        """Takes over a new version of the pod."""
        # kubelet: its own write of the status causes no sync
        if not self._awaits_resync or _desired(pod.object) != _desired(self.pod.object):
            self._wake.set()
        self.pod = pod

    def vanish(self) -> None:
        """Ends the pod, which was deleted from the API server, perhaps by force: its containers must be removed."""
        self._gone = True
        self._wake.set()

    def wake(self) -> None:
        """Checks the pod, because a container or a device has changed."""
        if not self._awaits_resync:  # such a pod has neither
            self._wake.set()

    def container_id(self, name: str) -> str:
        """Returns the id of the newest container of this name; "" if there is none."""
        return self._runs.get(name, Run()).id

    async def run(self) -> None:
        """Runs until the pod is deleted."""
        self._adopt()
        if self.refusal is not None:
            self.events.emit(self.pod.object, *self.refusal, warning=True)
        elif self.pod.status.get("phase") not in _OVER:
            await self._live()
        await self._repeat("end", self._end)
        self._ended = True
        await self._repeat("report", self._report)
        while not self._leaving:
            await self._woken()
        await self._repeat("delete", self._delete)

    # ---- while the pod runs

    def _adopt(self) -> None:
        """Updates the containers' states from the runtime after a restart of the kubelet or a reboot of the node."""
        left = {known.name: known for known in self.runtime.containers_of(self.pod.uid) if known.started}
        for name, run in self._runs.items():
            if run.state == "running" and name not in left:
                self._runs[name] = run.finished(KILLED, now(), "ContainerStatusUnknown")  # kubelet: after a reboot
        for name, known in left.items():
            run = self._runs.get(name, Run())
            if run.id != known.id:
                self._runs[name] = run.started(known.id, now())

    async def _live(self) -> None:
        while not self._leaving:
            self._wake.clear()
            self._record_ends()
            if phase_of(self.pod, self._runs) in _OVER:
                return
            wait: float | None = None
            self._awaits_resync = False
            if not await self._try("advance", self._advance):
                wait = self._retry_delay()
            elif self._crashed_until:
                wait = max(0.0, min(self._crashed_until.values()) - asyncio.get_running_loop().time())
            if not await self._try("report", self._report):
                wait = self.delays.pod_retry
            await self._woken(wait)

    def _retry_delay(self) -> float:
        if self._awaits_resync:
            return random.uniform(*self.delays.prepare_retry)  # noqa: S311 - jitter
        delay = min(self.delays.pod_retry_most, self.delays.pod_retry * 2.0**self._failures)
        self._failures = min(self._failures + 1, 30)
        return delay

    def _record_ends(self) -> None:
        """Records which containers have ended."""
        for known in self.runtime.containers_of(self.pod.uid):
            run = self._runs.get(known.name)
            if run is None or run.id != known.id or run.state != "running" or known.running:
                continue
            ended = run.finished(known.exit_code, now(), known.end_reason)
            delay = restart_delay(ended.restarts, self.delays.crash, self.delays.crash_most)
            if delay and not self._leaving:
                ended = ended.holding("CrashLoopBackOff", f"back-off {delay:g}s restarting failed container")
                self._crashed_until[known.name] = asyncio.get_running_loop().time() + delay
            self._runs[known.name] = ended

    async def _advance(self) -> None:
        """Starts all containers that can be started now, then raises an error for those that failed."""
        if self.runtime.pod(self.pod.uid) is None:
            await self._make_sandbox()
        elif not self._claim_uids:
            await self._find_claims()
        moment = asyncio.get_running_loop().time()
        self._crashed_until = {name: until for name, until in self._crashed_until.items() if until > moment}
        while ready := [] if self._leaving else self._startable():
            problems = [problem for name in ready if (problem := await self._start(self.pod.container(name)))]
            if problems:
                raise PodTroubleError("; ".join(problems))
        sandbox = self.runtime.pod(self.pod.uid)
        if sandbox is not None and not self._leaving:
            await self._resizer.resize(self.pod.object, sandbox)
        self._failures = 0

    def _startable(self) -> list[str]:
        return [name for name in due(self.pod, self._runs) if name not in self._crashed_until]

    async def _make_sandbox(self) -> None:
        cgroup = self.cgroups.make(self.pod.object)
        if self.pod.is_held:  # kubelet: volumes are mounted before claims are prepared
            raise PodTroubleError(f"the pod is held by its annotation {HOLD_ANNOTATION}")
        try:
            await self.claims.prepare(self.pod.uid, await self._find_claims())
        except KubeletError as error:
            message = f"Failed to prepare dynamic resources: {error}"
            self.events.emit(self.pod.object, "FailedPrepareDynamicResources", message, warning=True)
            self._awaits_resync = True
            raise
        try:
            self.runtime.run_pod(
                self.pod.namespace, self.pod.name, self.pod.uid, cgroup, user_namespace=self.pod.user_namespace
            )
        except RuntimeDownError as error:
            message = f"Failed to create pod sandbox: {error}"
            self.events.emit(self.pod.object, "FailedCreatePodSandBox", message, warning=True)
            raise
        self._resizer = self._new_resizer()

    def _new_resizer(self) -> Resizer:
        """Starts from the resources in the pod's spec, which a pod without a sandbox gets at once."""
        return Resizer(self.runtime, self.cgroups, self.pod.object, self.node_memory)

    async def _find_claims(self) -> list[AllocatedClaim]:
        found = []
        for in_pod, name in self.pod.claims.items():
            if not name:
                raise KubeletError(f"pod claim {in_pod} not found in pod status: ResourceClaim not created yet")
            try:
                claim = await self.client.get(CLAIMS, name, self.pod.namespace)
            except NotFoundError as error:
                raise KubeletError(f"failed to fetch ResourceClaim {name} referenced by pod: {error}") from error
            status = claim.get("status") or {}
            # kubelet: only for a pod that the scheduler has reserved the claim for
            if self.pod.uid not in (consumer["uid"] for consumer in status.get("reservedFor") or ()):
                raise KubeletError(f"pod {self.pod.name} is not allowed to use ResourceClaim {name}")
            results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
            drivers = tuple(dict.fromkeys(result["driver"] for result in results))
            uid = claim["metadata"]["uid"]
            self._claim_uids[in_pod] = uid
            found.append(AllocatedClaim(ClaimRef(self.pod.namespace, name, uid), drivers))
        return found

    async def _start(self, container: ContainerSpec) -> str:
        """Creates and starts a container; returns the error that prevents this, or ""."""
        sandbox = self.runtime.pod(self.pod.uid)
        assert sandbox is not None
        run = self._runs.get(container.name, Run())
        failing = "CreateContainerError"
        try:
            await self._clear(container.name)
            made = await self.runtime.create(
                sandbox,
                container.name,
                env=container.env,
                cdi_devices=self._cdi_devices(container),
                program=container.program,
                asked=self._resizer.resources(container.name),
                volumes=container.volumes,
            )
            failing = "RunContainerError"
            await self.runtime.start_container(made)
        except SandboxError as error:
            with contextlib.suppress(SandboxError):  # the next attempt will retry it
                await self._clear(container.name)
            problem = f"{container.name}: {error}"
            self._runs[container.name] = run.holding(failing, str(error))
            self.events.emit(self.pod.object, "Failed", f"Error: {failing}: {problem}", warning=True)
            return problem
        self._runs[container.name] = run.started(made, now())
        self.events.emit(self.pod.object, "Started", f"Container started: {container.name}")
        return ""

    def _cdi_devices(self, container: ContainerSpec) -> tuple[str, ...]:
        ids = [
            cdi_id
            for in_pod, request in self.pod.claims_of(container)
            for held in self.claims.devices(self._claim_uids.get(in_pod, ""), request)
            for cdi_id in held.device.cdi_ids
        ]
        return tuple(dict.fromkeys(ids))

    # ---- the end of the pod

    async def _end(self) -> None:
        """Stops containers, then unprepares claims; the caller retries if a step fails."""
        for known in self.runtime.containers_of(self.pod.uid):
            if known.running:
                self.events.emit(self.pod.object, "Killing", f"Stopping container {known.name}")
                await self.runtime.stop_container(known.id)
        self._record_ends()
        await self.claims.unprepare(self.pod.uid)
        self.runtime.remove_pod(self.pod.uid)
        self.cgroups.remove(self.pod.object)

    async def _delete(self) -> None:
        """Removes containers and the pod object. Until then, ended containers keep their logs."""
        for known in self.runtime.containers_of(self.pod.uid):
            await self.runtime.remove_container(known.id)
        if self._gone:
            return
        with contextlib.suppress(NotFoundError):
            await self.client.delete(PODS, self.pod.name, self.pod.namespace, grace=0, uid=self.pod.uid)

    async def _clear(self, name: str) -> None:
        """Removes the ended containers of a name, which earlier attempts have left."""
        for known in self.runtime.containers_of(self.pod.uid):
            if known.name == name and not known.running:
                await self.runtime.remove_container(known.id)

    # ---- the status of the pod

    async def _report(self) -> None:
        if self._gone:
            return
        if self.refusal is not None:
            status = refused_status(self.pod, self.refusal, now())
        else:
            status = status_of(self.pod, self._seen())
        if _plain(status) == self._reported:
            return
        with contextlib.suppress(NotFoundError):  # it was deleted meanwhile
            await self.client.patch_status(PODS, self.pod.object, status)
            self._reported = _plain(status)

    def _seen(self) -> Seen:
        phase = phase_of(self.pod, self._runs)
        ended = self.pod.status.get("phase")
        running = [known for known in self.runtime.containers_of(self.pod.uid) if known.running]
        return Seen(
            phase=ended if ended in _OVER else phase,
            runs=self._runs,
            cpus={known.name: str(self.runtime.cpus_of(known.id)) for known in running},
            resources={known.name: self._resizer.shown(known.name, known.spec_memory) for known in running},
            resize_problem=self._resizer.problem,
            health={container.name: self._health(container) for container in self.pod.containers},
            has_sandbox=self.runtime.pod(self.pod.uid) is not None,
            node_ip=self.node_ip,
            pod_ip=self.pod_ip,
            now=now(),
        )

    def _health(self, container: ContainerSpec) -> list[JsonObject]:
        shown = []
        for in_pod, request in self.pod.claims_of(container):
            resources = []
            for held in self.claims.devices(self._claim_uids.get(in_pod, ""), request):
                health, message = self.health_of(held.driver, held.device.pool, held.device.device)
                reported = {"resourceID": next(iter(held.device.cdi_ids), held.device.device), "health": health}
                resources.append({**reported, **({"message": message} if message else {})})
            if resources:
                shown.append({"name": f"claim:{in_pod}" + (f"/{request}" if request else ""), "resources": resources})
        return shown

    # ---- waiting

    async def _woken(self, seconds: float | None = None) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        self._wake.clear()

    async def _try(self, what: str, attempt: Callable[[], Awaitable[None]]) -> bool:
        try:
            await attempt()
        except SandboxError as error:
            log.warning("pod step failed", step=what, pod=self.pod.name, namespace=self.pod.namespace, error=str(error))
            return False
        return True

    async def _repeat(self, what: str, attempt: Callable[[], Awaitable[None]]) -> None:
        """Repeats an attempt until it succeeds. kubelet: failures while a pod ends are logged, without an Event."""
        failures = 0
        while not await self._try(what, attempt):
            await asyncio.sleep(min(self.delays.pod_retry_most, self.delays.pod_retry * 2.0**failures))
            failures = min(failures + 1, 30)


def _desired(pod: JsonObject) -> list[object]:
    """Returns what changes when somebody else changes the pod, and not with the kubelet's own writes of its status."""
    return [pod["metadata"].get(field) for field in ("generation", "deletionTimestamp", "labels", "annotations")]


def _plain(status: JsonObject) -> JsonObject:
    """Returns the status without times, which always differ."""
    return {
        **status,
        "startTime": "",
        "conditions": [{**condition, "lastTransitionTime": ""} for condition in status["conditions"]],
    }
