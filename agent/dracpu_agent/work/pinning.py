"""Connects the node's containers with the runtime: answers its hooks, and pushes updates that it did not ask for.

Containers without claims get CPUs that became free through pushes, one container a call, one call at a time. The
content of a push is computed when it is sent, so a grant cancels every push that is not sent yet; Prepare waits for a
push under way, because the runtime may apply it after the reply of a later hook. It also waits while other containers
are being created and started on CPUs of the claim: no update reaches them before they run. Where the CPUs on which a
container is about to start, or its limits, are in doubt, its cgroup is read: the runtime has written it by then.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import structlog

from dracpu_agent.claims.cpu_claim import CpuClaim
from dracpu_agent.claims.held import HeldClaim
from dracpu_agent.errors import ClaimError, NotReadyError, PlacementError
from dracpu_agent.node import NodeState
from dracpu_agent.placement.container import Container, ContainerUpdate, Limits, Placement, RuntimeInfo
from dracpu_agent.placement.containers import Connection, UnprovenContainer
from dracpu_agent.placement.proof import ClaimKey, UnknownConsumerError
from dracpu_agent.placement.tracked import Doubt
from dracpu_agent.work.retries import Retries
from dracpu_api.cpuset import CpuSet
from dracpu_api.errors import DriverError

PUSH_SECONDS: Final = 25.0  # a Prepare waits so long for a push under way; the kubelet gives it 45 s
READ_AGAIN_SECONDS: Final = 30.0  # a claim that could not be read for a container that runs already
# A container starts within a second of its creation. After a longer wait the claim is prepared all the same: its
# containers are created after the others have started, or when REPORT_SECONDS have passed.
SETTLE_SECONDS: Final = 3.0
# The report of a start or update may never come, as another plugin's error ends the runtime's round of calls.
REPORT_SECONDS: Final = 30.0
READ_CGROUP_SECONDS: Final = 0.5  # of the runtime's 2 s; a read takes less than a millisecond unless the disk hangs
REFUSALS_KEPT: Final = 1024

log = structlog.get_logger("pinning")


class Pusher(Protocol):
    """Sends the runtime updates that it did not ask for."""

    async def push(self, update: ContainerUpdate) -> None:
        """Returns when the runtime has applied it; raises DriverError."""


async def no_limits_known(_pod_uid: str, _container_id: str, _limits: Limits) -> None:
    """Reads no limits where no driver limits containers."""


async def nothing_to_do(_pod_uid: str) -> None:
    """Makes a pod ready for its containers where no driver has anything to do for it."""


class Pinning:
    """Handles the calls of the runtime, and pushes."""

    def __init__(
        self,
        node: NodeState,
        learn_consumers: Callable[[ClaimKey], Awaitable[None]],
        count_push: Callable[[bool], None],
        read_cpus: Callable[[str, str], Awaitable[CpuSet | None]],
        ready_pod: Callable[[str], Awaitable[None]] = nothing_to_do,
        check_resize: Callable[[str], Awaitable[None]] = nothing_to_do,
        read_limits: Callable[[str, str, Limits], Awaitable[Mapping[str, str] | None]] = no_limits_known,
    ) -> None:
        """`read_cpus` reads which CPUs the cgroup of a container allows, by the UIDs of its pod and its own id; None if
        that is not known. `read_limits` reads the files of these limits likewise. `ready_pod` does what a pod needs, by
        its UID, before one of its containers is created; raises PlacementError. `check_resize` raises PlacementError
        when the resources of a pod must not change now."""
        self._node = node
        self._learn_consumers = learn_consumers
        self._count_push = count_push
        self._read_cpus = read_cpus
        self._ready_pod = ready_pod
        self._check_resize = check_resize
        self._read_limits = read_limits
        self._wake = asyncio.Event()
        self._reading: set[asyncio.Future[Any]] = set()  # cgroups
        self._to_prove: list[UnprovenContainer] = []
        self._prove_at: float | None = None  # when claims that could not be read are read again
        self._under_way: tuple[ContainerUpdate, asyncio.Future[None]] | None = None
        # claims and UIDs of pods that do not fit by the API server, the oldest first
        self._refused: dict[tuple[ClaimKey, str], None] = {}
        self._settled = asyncio.Event()  # a container has started, was changed, or has ended
        self._due: dict[str, float] = {}  # container -> when the report of its creation, start or update is overdue

    # ---- hooks

    def connected(self, runtime: RuntimeInfo) -> None:
        """The runtime has reported its name and version."""
        self._node.containers.connected(runtime)

    def synchronize(self, containers: Sequence[Container]) -> Sequence[ContainerUpdate]:
        """Compares the runtime's containers with the ledger; returns the updates that repair the differences."""
        updates, unproven = self._node.containers.synchronize(containers)
        self._to_prove.clear()
        self._note_unproven(unproven)
        for container in containers:
            if not container.started:
                self._expect_report(container.id)
        return updates

    def synchronized(self) -> None:
        """The runtime has the repairs: from now on updates can be pushed."""
        self._node.containers.allow_pushes()
        self.wake()

    async def create(self, container: Container) -> Placement:
        """The CPUs of a new container; raises PlacementError when it carries a claim that it cannot prove to hold."""
        placement, read = None, set[ClaimKey]()
        while placement is None:
            try:
                await self._ready_pod(container.pod_uid)
                placement = self._node.containers.create(container)
            except UnknownConsumerError as error:
                if error.claim in read:
                    raise
                read.add(error.claim)
                await self._read_claim_once(error, container)
        self._expect_report(container.id)
        log.debug("container placed", container=str(container), cpus=str(placement.cpus), moved=len(placement.updates))
        return placement

    def created(self, container_id: str) -> None:
        """The runtime has stored the container."""
        self._node.containers.created(container_id)
        self.wake()

    async def start(self, container: Container) -> None:
        """Raises PlacementError when the container would run on CPUs of others' claims, or off those of its own, or
        without the limits of its claims."""
        self._expect_report(container.id)
        containers = self._node.containers
        if doubt := containers.begin_start(container):
            cpus, limits = await self._read_in_time(container, doubt)
            log.debug("cgroup read before a start", container=str(container), cpus=str(cpus), limits=limits)
            containers.resolve(doubt, cpus, limits)
        containers.check_start(container)

    async def _read_in_time(self, container: Container, doubt: Doubt) -> tuple[CpuSet | None, Mapping[str, str] | None]:
        """Reads what is in doubt from its cgroup; None if that is not known, or if the read hangs: the runtime waits
        for the answer."""
        place = container.pod_uid, container.id
        cpus = asyncio.ensure_future(self._read_cpus(*place)) if doubt.cpus else None
        limits = asyncio.ensure_future(self._read_limits(*place, doubt.limits)) if doubt.limits else None
        readings = {reading for reading in (cpus, limits) if reading is not None}
        for reading in readings:
            self._reading.add(reading)
            reading.add_done_callback(self._reading.discard)
        done, _ = await asyncio.wait(readings, timeout=READ_CGROUP_SECONDS)
        return cpus.result() if cpus in done else None, limits.result() if limits in done else None

    def started(self, container: Container) -> None:
        """The container runs, so that updates reach it."""
        self._reported(container.id, self._node.containers.started(container))

    def update(self, container: Container) -> ContainerUpdate | None:
        """The kubelet changes a container's resources: repeats those that the agent has set, which must not change."""
        update = self._node.containers.repeat(container.id, container.memory_limit)
        if container.id not in self._due:  # the kubelet repeats an update that has failed, every 10 s or so
            self._expect_report(container.id)
        return update

    def updated(self, container: Container) -> None:
        """The runtime has changed the container's resources, after it has taken the CPUs from our answer."""
        self._reported(container.id, self._node.containers.updated(container))

    async def resize_pod(self, pod_uid: str) -> None:
        """The kubelet is about to change the resources of a pod; raises PlacementError when it must not."""
        await self._check_resize(pod_uid)

    def stopped(self, container_id: str) -> Sequence[ContainerUpdate]:
        """A container has ended."""
        updates = self._node.containers.stopped(container_id)
        self._reported(container_id)
        return updates

    def removed(self, container_id: str) -> None:
        """A container is gone; the runtime may not have reported its end."""
        self._node.containers.removed(container_id)  # no updates: this hook's reply cannot carry them
        self._reported(container_id)

    def disconnected(self, reason: str) -> None:
        """The runtime is not connected: containers may come and go unseen."""
        self._node.containers.disconnected()
        self._due.clear()
        self._settled.set()

    def _expect_report(self, container_id: str) -> None:
        self._due[container_id] = asyncio.get_running_loop().time() + REPORT_SECONDS
        self.wake()

    def _reported(self, container_id: str, unproven: UnprovenContainer | None = None) -> None:
        self._due.pop(container_id, None)
        if unproven is not None:
            self._note_unproven([unproven])
        self._settled.set()
        self.wake()

    def _note_unproven(self, unproven: Sequence[UnprovenContainer]) -> None:
        for found in unproven:
            log.error("container without its claim", container=str(found.container), reason=found.reason)
        self._to_prove += [found for found in unproven if found.claim_to_read is not None]

    # ---- pushes

    def wake(self) -> None:
        """Something has changed that may need a push."""
        self._wake.set()

    async def wait_until_settled(self, claim: HeldClaim[Any]) -> None:
        """Waits for what may still bring other containers onto the claim's CPUs: a push under way, starts, updates."""
        if not isinstance(claim, CpuClaim):
            return
        await self._wait_for_push(claim)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_SECONDS):
                while self._node.containers.unsettled_on(claim.cpus, claim.key):
                    self._settled.clear()
                    await self._settled.wait()

    async def _wait_for_push(self, claim: CpuClaim) -> None:
        if self._under_way is None or self._under_way[0].cpus.isdisjoint(claim.cpus):
            return
        try:
            async with asyncio.timeout(PUSH_SECONDS):
                await asyncio.wait((self._under_way[1],))
        except TimeoutError as error:
            raise NotReadyError(
                f"the container runtime has not answered an update for {PUSH_SECONDS:g} s: the kubelet retries"
            ) from error

    async def run(self, pusher: Pusher) -> None:
        """Pushes until cancelled."""
        loop = asyncio.get_running_loop()
        retries = Retries()
        while True:
            self._wake.clear()
            await self._prove_again(loop.time())
            self._expire_reports(loop.time())
            while update := self._next_push(retries):
                applied = await self._push(pusher, update)
                retries.answered(update.container_id, loop.time(), applied=applied)
                self._expire_reports(loop.time())
            deadlines = [*self._due.values(), self._prove_at, retries.due(loop.time())]
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(min((due for due in deadlines if due is not None), default=None)):
                    await self._wake.wait()

    def _next_push(self, retries: Retries) -> ContainerUpdate | None:
        containers = self._node.containers
        return containers.next_push(retries.waiting(asyncio.get_running_loop().time(), containers.division))

    def _expire_reports(self, now: float) -> None:
        for container_id in [known for known, due in self._due.items() if due <= now]:
            del self._due[container_id]
            self._node.containers.expire(container_id)
            self._settled.set()

    async def _prove_again(self, now: float) -> None:
        """Reads the claims of containers whose pods may have joined them while no agent ran."""
        if self._prove_at is not None and now < self._prove_at:
            return
        unread = False
        while self._to_prove and self._node.containers.connection is Connection.PUSHABLE:
            found = self._to_prove.pop()
            assert found.claim_to_read is not None
            try:
                await self._learn_consumers(found.claim_to_read)
                self._node.containers.prove_again(found.container)
            except NotReadyError as error:  # the others could not be read now either, and pushes wait meanwhile
                log.warning("claim of a container not read", container=str(found.container), error=str(error))
                unread = True
                self._to_prove.append(found)
                break
            except (ClaimError, PlacementError) as error:
                if isinstance(error, UnknownConsumerError) and error.claim != found.claim_to_read:
                    self._to_prove.append(UnprovenContainer(found.container, str(error), error.claim))
                    continue
                log.warning("container still without its claim", container=str(found.container), error=str(error))
        self._prove_at = now + READ_AGAIN_SECONDS if unread else None

    async def _push(self, pusher: Pusher, update: ContainerUpdate) -> bool:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._under_way = (update, done)
        applied = False
        try:
            await pusher.push(update)
            applied = True
        except DriverError as error:
            log.warning("container not updated", container=update.container_id, cpus=str(update.cpus), error=str(error))
        finally:
            self._node.containers.pushed(update, applied=applied)
            self._count_push(applied)
            self._under_way = None
            done.set_result(None)
        return applied

    async def _read_claim_once(self, error: UnknownConsumerError, container: Container) -> None:
        refusal = (error.claim, container.pod_uid)
        if refusal in self._refused:
            raise error
        try:
            await self._learn_consumers(error.claim)
        except NotReadyError as unread:
            raise PlacementError(f"{error}; reading the claim failed: {unread}") from unread
        except ClaimError as refused:  # not kept: the claim's other pods may end
            raise PlacementError(f"{error}: {refused}") from refused
        claim = self._node.holdings[error.claim.driver].get(error.claim.uid)
        if claim is None or container.pod_uid not in claim.consumers:
            self._refused[refusal] = None
            if len(self._refused) > REFUSALS_KEPT:
                del self._refused[next(iter(self._refused))]
            raise error
