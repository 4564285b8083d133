"""Prepare and Unprepare of one driver's claims as transactions: each is carried out as a whole or not at all.

Prepare: validate, grant, checkpoint on disk, CDI file, reply. Unprepare: CDI file, release, checkpoint. A failure at
any step takes back what that call did; a crash at any step leaves a state that a repeated call completes. The caller
never cancels a transaction half-way.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol

import structlog

from dracpu_agent.cdi.files import CdiDirectory
from dracpu_agent.checkpoint.statefile import StateFile
from dracpu_agent.claims.audit import Finding, look
from dracpu_agent.claims.grant import ClaimRef, PreparedDevice
from dracpu_agent.claims.held import HeldClaim
from dracpu_agent.claims.ledger import C
from dracpu_agent.claims.request import ClaimRequest, consumer_uids
from dracpu_agent.drivers.holding import Granted, Holding
from dracpu_agent.errors import ClaimError, NotReadyError
from dracpu_agent.file_threads import in_file_thread
from dracpu_agent.node import NodeState
from dracpu_agent.placement.proof import ClaimKey
from dracpu_agent.work.readiness import RUNTIME_SECONDS, Readiness

READ_SECONDS: Final = 15.0
READ_KNOWN_SECONDS: Final = 2.0  # the ledger can answer instead

log = structlog.get_logger("claims")


class ClaimReader(Protocol):
    """Reads claims."""

    async def read(self, ref: ClaimRef, seconds: float) -> dict[str, Any]:
        """The claim object; raises ClaimMissingError, or NotReadyError when there is no answer in time."""

    async def read_with_retries(self, ref: ClaimRef, seconds: float) -> dict[str, Any]:
        """Like `read`, but repeats the request within this time when the API server cannot answer at the moment."""

    async def read_if_there(self, ref: ClaimRef, seconds: float) -> dict[str, Any] | None:
        """The claim object; None when there is none of that name. Raises NotReadyError."""

    async def roots_beside(self, claim: dict[str, Any]) -> Mapping[str, frozenset[str]]:
        """Request -> the PCIe roots of the other drivers' devices that it must match, as far as they can be read."""


class Observer(Protocol):
    """Receives the outcome of each transaction."""

    def prepared(self, claim: HeldClaim[Any], seconds: float) -> None:
        """A claim is ready."""

    def prepare_failed(self, ref: ClaimRef, reason: str) -> None:
        """A claim could not be prepared."""

    def unprepared(self, ref: ClaimRef, error: str) -> None:
        """A claim has ended, or could not be ended when there is an error."""


@dataclass(slots=True)
class _Turn:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0


async def nothing_to_do(_request: ClaimRequest[Any]) -> None:
    """Reads nothing before a grant, where no driver compares anything with a claim."""


class ClaimTransactions(Generic[C]):
    """The service behind the kubelet's calls."""

    def __init__(
        self,
        node: NodeState,
        holding: Holding[Any, C],
        claims: ClaimReader,
        state_file: StateFile,
        cdi: CdiDirectory[C],
        wait_until_settled: Callable[[C], Awaitable[None]],
        observer: Observer,
        look_at_pods: Callable[[ClaimKey], Awaitable[None]],
        before_grant: Callable[[ClaimRequest[Any]], Awaitable[None]] = nothing_to_do,
        runtime_seconds: float = RUNTIME_SECONDS,
    ) -> None:
        self._node = node
        self._holding = holding
        self._readiness = Readiness(node, state_file, runtime_seconds)
        self._claims = claims
        self._state_file = state_file
        self._cdi = cdi
        self._wait_until_settled = wait_until_settled  # for what may still give the claim's grants to others
        self._observer = observer
        self._look_at_pods = look_at_pods  # whether processes of the claim's pods run
        self._before_grant = before_grant  # reads what the driver compares with a claim when it chooses
        self._busy: dict[str, _Turn] = {}  # claim UID -> the lock of its transactions

    async def prepare(self, ref: ClaimRef) -> Sequence[PreparedDevice]:
        """The claim's devices, with unchanged grants for an unchanged allocation until it is unprepared."""
        started = time.monotonic()
        try:
            async with self._turn(ref.uid):
                claim = await self._prepare(ref)
        except ClaimError as error:
            self._observer.prepare_failed(ref, str(error))
            raise
        self._observer.prepared(claim, time.monotonic() - started)
        return tuple(_prepared_devices(claim))

    async def unprepare(self, ref: ClaimRef) -> None:
        """Gives back what the claim holds; succeeds for a claim that is not held."""
        try:
            async with self._turn(ref.uid):
                await self._unprepare(ref)
        except ClaimError as error:
            self._observer.unprepared(ref, str(error))
            raise
        self._observer.unprepared(ref, "")

    async def release_if_gone(self, ref: ClaimRef) -> Finding:
        """Ends a claim for the audit, unless one more read finds it in order."""
        async with self._turn(ref.uid):
            finding = look(
                self._holding.name, ref.uid, await self._claims.read_if_there(ref, READ_SECONDS), self._node.node_name
            )
            idle = self._node.containers.synchronized and not self._node.containers.uses(self._holding.key(ref.uid))
            if finding is Finding.IN_ORDER or not idle:
                return Finding.IN_ORDER
            await self._unprepare(ref)
            return finding

    async def repair_cdi_file(self, uid: str) -> bool:
        """Writes a held claim's CDI file again if it is missing or altered, and returns whether it was."""
        async with self._turn(uid):
            claim = self._holding.get(uid)
            return claim is not None and claim.has_cdi_file and await in_file_thread(self._cdi.write, claim)

    async def learn_consumers(self, uid: str) -> None:
        """Reads the pods of a prepared claim again: the kubelet does not repeat Prepare for a second pod."""
        claim = self._holding.get(uid)
        if claim is None or claim.frozen is not None:
            return
        read = await self._claims.read(claim.ref, READ_KNOWN_SECONDS)
        if read["metadata"]["uid"] == uid:
            self._holding.set_consumers(uid, frozenset(consumer_uids(read)))
            self._state_file.save_soon()

    async def _prepare(self, ref: ClaimRef) -> C:
        until = self._readiness.deadline()
        await self._readiness.wait(until)
        granted = await self._grant(ref, until)
        try:
            await self._wait_until_settled(granted.claim)
            await self._state_file.save()  # writes nothing when the disk has this state already
            await in_file_thread(self._cdi.write, granted.claim)
        except BaseException:
            await self._undo(granted)
            raise
        if granted.fresh:
            log.info("claim prepared", claim=str(ref), uid=ref.uid, holds=granted.claim.content)
        return granted.claim

    async def _grant(self, ref: ClaimRef, until: float) -> Granted[C]:
        known = ref.uid in self._holding
        try:
            if known:
                read = await self._claims.read(ref, READ_KNOWN_SECONDS)
            else:
                read = await self._claims.read_with_retries(ref, READ_SECONDS)
        except NotReadyError as error:
            await self._readiness.wait(until)
            granted = self._holding.grant_held(ref.uid)
            if granted is None:
                raise
            log.warning(
                "the API server does not answer, the claim is answered from the ledger",
                claim=str(ref),
                error=str(error),
            )
            return granted
        driver = self._holding.driver
        request = driver.read(ref, read)
        await self._readiness.wait(until)  # the runtime may have gone away during the reads
        if self._holding.chooses(request):  # a known claim, too, that was allocated anew or released meanwhile
            if driver.aligns:
                request = driver.aligned(request, await self._claims.roots_beside(read))
            await self._before_grant(request)
            await self._readiness.wait(until)
        return self._holding.grant(request)

    async def _unprepare(self, ref: ClaimRef) -> None:
        await in_file_thread(self._cdi.delete, ref.uid)
        held = ref.uid in self._holding
        if held:
            await self._look_at_pods(self._holding.key(ref.uid))
            idle = self._holding.release(ref.uid)
            log.info("claim unprepared", claim=str(ref), uid=ref.uid, lingering=not idle)
        if held or self._state_file.may_contain(ref.uid):  # the write of an earlier call may have failed
            await self._state_file.save()

    @contextlib.asynccontextmanager
    async def _turn(self, uid: str) -> AsyncIterator[None]:
        """One transaction at a time for each claim, the audit's included, in the order in which they were asked for."""
        turn = self._busy.setdefault(uid, _Turn())
        turn.waiting += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.waiting -= 1
            if not turn.waiting:
                del self._busy[uid]

    async def _undo(self, granted: Granted[C]) -> None:
        self._holding.undo(granted)
        if not granted.fresh:
            return
        self._state_file.save_soon()
        try:
            await in_file_thread(self._cdi.delete, granted.claim.ref.uid)
        except ClaimError as error:  # the kubelet gets the error that caused the undoing
            log.warning("CDI file not deleted; no container can use it", uid=granted.claim.ref.uid, error=str(error))


def _prepared_devices(claim: HeldClaim[Any]) -> Sequence[PreparedDevice]:
    """One entry a grant. Only a use's first device has the CDI id, as the kubelet passes on the ids of all devices."""
    cdi_ids = dict(zip((request for request, _ in claim.uses()), claim.cdi_devices(), strict=True))
    devices = []
    for grant in claim.grants:
        use = grant.base_request if len(claim.requests) > 1 else None
        cdi_device = cdi_ids.pop(use, None)
        ids = (cdi_device.name,) if cdi_device else ()
        devices.append(PreparedDevice((grant.base_request,), grant.pool, grant.device, grant.share_id, ids))
    return devices
