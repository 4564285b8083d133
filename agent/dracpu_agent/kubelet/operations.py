"""Work on claims that outlives the call that requested it.

A call of the kubelet may be cancelled or exceed its deadline at any moment; a claim must not be left half-done then.
So each piece of work is a task of its own, and calls only wait for it. A request that is repeated while the first still
runs waits for the first.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import structlog

from dracpu_agent.claims.grant import ClaimRef, PreparedDevice
from dracpu_api.errors import DriverError

Verb = Literal["prepare", "unprepare"]

log = structlog.get_logger("kubelet")


class ClaimService(Protocol):
    """Does the work that the kubelet requests. Both methods must be idempotent, as the kubelet repeats its calls. Calls
    for one claim may overlap: the service processes them one after the other, in the order in which they came."""

    async def prepare(self, claim: ClaimRef) -> Sequence[PreparedDevice]:
        """The claim's devices, ready for use; raises ClaimError."""
        ...

    async def unprepare(self, claim: ClaimRef) -> None:
        """Gives back what prepare took, if anything; raises ClaimError."""
        ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a piece of work: an error if the text is not empty, else the devices (none after unprepare)."""

    devices: tuple[PreparedDevice, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class _Operation:
    verb: Verb
    claim: ClaimRef
    task: asyncio.Task[Outcome]


class ClaimOperations:
    """Starts the work, and waits for it at shutdown."""

    def __init__(self, service: ClaimService) -> None:
        self._service = service
        self._latest: dict[str, _Operation] = {}  # claim UID -> the latest request, until it is done
        self._running: set[asyncio.Task[Outcome]] = set()

    def request(self, verb: Verb, claim: ClaimRef) -> asyncio.Task[Outcome]:
        """The task that does the work; its result is always an Outcome, unless `drain` had to cancel it."""
        earlier = self._latest.get(claim.uid)
        if earlier is not None and not earlier.task.done() and (earlier.verb, earlier.claim) == (verb, claim):
            return earlier.task
        task = asyncio.create_task(self._run(verb, claim), name=f"{verb} claim {claim.uid}")
        operation = _Operation(verb, claim, task)
        self._latest[claim.uid] = operation
        self._running.add(task)
        task.add_done_callback(lambda _: self._forget(operation))
        return task

    async def drain(self, seconds: float) -> None:
        """Waits until no work is left; cancels tasks that take longer, as the process ends anyway."""
        if not self._running:
            return
        _, late = await asyncio.wait(self._running, timeout=seconds)
        for task in late:
            log.warning("cancelled at shutdown", task=task.get_name())
            task.cancel()
        if late:
            await asyncio.wait(late)

    async def _run(self, verb: Verb, claim: ClaimRef) -> Outcome:
        try:
            if verb == "prepare":
                return Outcome(devices=tuple(await self._service.prepare(claim)))
            await self._service.unprepare(claim)
            return Outcome()
        except DriverError as error:
            # kubelet: an empty text means success
            message = str(error) or f"cannot {verb} claim {claim}: {type(error).__name__}"
            log.warning("claim refused", verb=verb, claim=str(claim), uid=claim.uid, error=message)
            return Outcome(error=message)
        except Exception:
            log.exception("claim failed", verb=verb, claim=str(claim), uid=claim.uid)
            return Outcome(error=f"cannot {verb} claim {claim}: internal error, see the agent's log")

    def _forget(self, operation: _Operation) -> None:
        self._running.discard(operation.task)
        if self._latest.get(operation.claim.uid) is operation:
            del self._latest[operation.claim.uid]
