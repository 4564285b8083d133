"""Takes part in the election of the leader, and lets the leader alone write.

decide/leadership.py decides; here time passes, and the Lease is read and written. Every writing request of the operator
passes through `writing`: it is sent only while this process certainly leads, and has to be executed by the API server
within that time.
"""

import asyncio
import contextlib
import random
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

import structlog

from dracpu_api.errors import ApiError, ConflictError, NotFoundError
from dracpu_operator.api.lease import LeaseFile
from dracpu_operator.decide.leadership import Candidate, Lease, LeasePace, Step
from dracpu_operator.errors import LeadershipError
from dracpu_operator.metrics import Metrics

log = structlog.get_logger()

_LEAST_SECONDS: Final = 0.1  # a write that has less time would fail; and the API server takes 0 for "no limit"
_DRAIN_SECONDS: Final = 5.0  # at the end, for writes that were sent already


class Leadership(Protocol):
    """Whether this process leads."""

    @property
    def leading(self) -> asyncio.Event | None:
        """Set once it leads, and never cleared: a process that loses the leadership ends. None: it always leads."""

    async def run(self, able: asyncio.Event) -> LeadershipError:
        """Runs until the leadership is lost; returns why. Takes over only when `able` is set."""

    def writing(self) -> AbstractAsyncContextManager[float]:
        """Surrounds a write. Waits until this process leads; returns the seconds for which it certainly does."""

    async def resign(self) -> None:
        """Ends the leadership, if there is one, so that another operator takes over at once."""

    def problems(self) -> Sequence[str]:
        """Why this process could not take over."""


class Unopposed:
    """The leadership of an operator that takes part in no election."""

    def __init__(self, metrics: Metrics) -> None:
        self.leading: asyncio.Event | None = None
        metrics.set_leader(leads=True)

    async def run(self, able: asyncio.Event) -> LeadershipError:
        """Runs until cancelled."""
        await asyncio.Event().wait()
        raise AssertionError("nobody sets this event")

    @contextlib.asynccontextmanager
    async def writing(self) -> AsyncIterator[float]:
        """Surrounds a write, which has no time limit of its own."""
        yield float("inf")

    async def resign(self) -> None:
        """Does nothing."""

    def problems(self) -> Sequence[str]:
        """There are none."""
        return ()


class Election:
    """The election by a Lease. `instance` names this process in the Lease."""

    def __init__(self, file: LeaseFile, instance: str, metrics: Metrics, pace: LeasePace | None = None) -> None:
        self.leading = asyncio.Event()
        self._file = file
        self._metrics = metrics
        self._pace = pace or LeasePace()
        # the process that follows in the same pod gets another name: writes of this one may still be on their way
        self._candidate = Candidate(f"{instance}_{secrets.token_hex(4)}", self._pace, random.uniform)
        self._renewed = asyncio.Event()
        self._resigning = False
        self._in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._failing_since: float | None = None
        self._problem = ""
        self._reported_holder = ""
        metrics.set_leader(leads=False)

    async def run(self, able: asyncio.Event) -> LeadershipError:
        """Runs until the leadership is lost; returns why. Takes over only when `able` is set."""
        candidate = self._candidate
        while True:
            now = _now()
            if able.is_set() and not candidate.able:
                candidate.enable(now)
            match candidate.step(now):
                case Step.WAIT:
                    await self._wait(able)
                case Step.LOOK:
                    await self._attempt(self._look)
                case Step.WRITE:
                    await self._attempt(self._take)
                case Step.LOST:
                    return self._lost()

    @contextlib.asynccontextmanager
    async def writing(self) -> AsyncIterator[float]:
        """Surrounds a write. Waits until this process leads; returns the seconds for which it certainly does."""
        seconds = self._candidate.seconds_left(_now())
        while self._resigning or seconds < _LEAST_SECONDS:
            # for the first election, or for a renewal that comes late; without one, the process is about to end
            self._renewed.clear()
            await self._renewed.wait()
            seconds = self._candidate.seconds_left(_now())
        with self._counted():
            yield seconds

    async def resign(self) -> None:
        """Ends the leadership, if there is one. The Lease is released only when no write is on its way any more: else
        it expires."""
        self._resigning = True
        seconds = min(_DRAIN_SECONDS, self._candidate.seconds_left(_now()))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        led = self._candidate.seconds_left(_now()) > 0
        self._candidate.resign()
        self._metrics.set_leader(leads=False)
        if not led:
            return
        if self._in_flight:
            log.warning("the Lease is not released, because writes are still on their way", writes=self._in_flight)
            return
        try:
            await self._release()
        except ApiError as error:
            log.warning("the Lease was not released: another operator takes over when it expires", error=str(error))
        else:
            log.info("the Lease was released")

    def problems(self) -> Sequence[str]:
        """Why this process could not take over."""
        since = self._failing_since
        return [self._problem] if since is not None and _now() - since > self._pace.deadline else []

    async def _wait(self, able: asyncio.Event) -> None:
        now, candidate = _now(), self._candidate
        left = candidate.seconds_left(now)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(min(candidate.due, now + left) if left else candidate.due):
                # what else might wake it: that it becomes able to lead
                await (asyncio.Event() if candidate.able else able).wait()

    async def _attempt(self, request: Callable[[float], Awaitable[None]]) -> None:
        left = self._candidate.seconds_left(_now())
        try:
            await request(min(self._pace.request, left) if left else self._pace.request)
        except ApiError as error:
            changed = isinstance(error, (ConflictError, NotFoundError))
            self._candidate.failed(_now(), changed=changed)
            if not changed:
                self._failed(error)
        else:
            self._failing_since, self._problem = None, ""

    def _failed(self, error: ApiError) -> None:
        if self._failing_since is None:
            self._failing_since = _now()
        if str(error) != self._problem:
            self._problem = str(error)
            log.warning("the Lease cannot be read or written, trying again", error=self._problem)

    async def _look(self, seconds: float) -> None:
        self._candidate.saw(await self._file.read(seconds), _now())
        self._report_holder()

    async def _take(self, seconds: float) -> None:
        sent = _now()
        lease: Lease = await self._file.take(self._candidate.identity, self._pace.lease, seconds)
        self._candidate.wrote(lease, sent, _now())
        if not self._candidate.seconds_left(_now()):
            return
        self._renewed.set()
        if not self.leading.is_set():
            self.leading.set()
            self._metrics.set_leader(leads=True)
            log.info("this operator leads now", identity=self._candidate.identity)

    async def _release(self) -> None:
        try:
            await self._file.release(self._pace.request)
        except ConflictError:  # a renewal that was cancelled may have been executed, or somebody has edited the Lease
            lease = await self._file.read(self._pace.request)
            if lease is not None and lease.holder == self._candidate.identity:
                await self._file.release(self._pace.request)

    def _report_holder(self) -> None:
        holder = self._candidate.holder
        if holder != self._reported_holder and holder not in ("", self._candidate.identity):
            log.info("another operator leads, this one stands by", leader=holder)
        self._reported_holder = holder

    def _lost(self) -> LeadershipError:
        self._metrics.set_leader(leads=False)
        holder = self._candidate.holder
        if holder not in ("", self._candidate.identity):
            why = f"the Lease names {holder} as the leader"
        else:
            why = f"the Lease could not be renewed within {self._pace.deadline:.3g} s"
            why += f": {self._problem}" if self._problem else ""
        return LeadershipError(f"this operator no longer leads: {why}; a new process has to take part in the election")

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        self._in_flight += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._in_flight -= 1
            if not self._in_flight:
                self._idle.set()


def _now() -> float:
    return asyncio.get_running_loop().time()
