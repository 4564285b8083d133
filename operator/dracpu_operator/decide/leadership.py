"""Which of several operators leads. They share a Lease; the one that it names leads, as long as it renews the Lease.

Times are seconds of this process's own clock. Clocks of machines are never compared: another operator's Lease has
expired when it has not changed for its whole duration since it was last *seen* to change. The leader counts from the
moment at which it sent its last successful renewal, which is before anybody could see it, and ends its leadership some
seconds before the others may take over. Both hold as long as the clocks do not differ in their speed by more than
`lease / deadline`.

Each write is refused by the API server when the Lease is no longer in the version on which the write is based.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

RELEASED_SECONDS: Final = 1  # the duration of a Lease that was released; the smallest that the API server accepts


@dataclass(frozen=True, slots=True)
class LeasePace:
    """How long a Lease is valid, and how often it is written and read, in seconds."""

    # An operator that is killed is replaced after `lease`, plus at most `look` until the other one saw the last
    # renewal, plus the time that it needs to bring its knowledge up to date: less than 15 s.
    lease: int = 9
    # When the leader stops by itself. Until then it can try to renew at least twice, also when the API server does not
    # answer. The 3 s that remain are for writes that are on their way, and for clocks of different speed.
    deadline: float = 6.0
    renew: float = 1.5  # between two renewals
    retry: float = 0.5  # from a failed request to the next one
    look: float = 0.5  # between two looks of an operator that does not lead
    request: float = 2.0  # the time limit of one request


@dataclass(frozen=True, slots=True)
class Lease:
    """The Lease as the API server has stored it."""

    version: str
    holder: str  # "": nobody
    seconds: float  # without a renewal for so long, others may take over


class Step(Enum):
    """The next step of a candidate."""

    WAIT = "wait until `due`"
    LOOK = "read the Lease"
    WRITE = "write the Lease, based on the version that was seen last"
    LOST = "stop writing anything: the leadership has ended"


class Candidate:
    """One operator. `identity` must be its own: no other process, also no later one, may use it. `jitter` returns a
    number between its arguments."""

    def __init__(self, identity: str, pace: LeasePace, jitter: Callable[[float, float], float]) -> None:
        self.identity = identity
        self.pace = pace
        self.able = False  # whether it knows enough to lead; otherwise it looks, but does not take over
        self.due = float("-inf")  # when to ask for the next step
        self._jitter = jitter
        self._lease: Lease | None = None  # None: it does not exist, or has not been seen
        self._seen_at = float("-inf")  # when it was seen in this version for the first time
        self._free_from = float("-inf")  # when one that was deleted would have expired
        self._has_looked = False  # since the last write that failed because the Lease had changed
        self._has_led = False
        self._leads_until = float("-inf")

    @property
    def holder(self) -> str:
        """The operator that the Lease named when it was last seen."""
        return "" if self._lease is None else self._lease.holder

    def seconds_left(self, now: float) -> float:
        """For how long this operator certainly leads; 0 when it does not."""
        return max(0.0, self._leads_until - now)

    def enable(self, now: float) -> None:
        """From now on, this operator knows enough to lead."""
        self.able = True
        self.due = min(self.due, now)

    def step(self, now: float) -> Step:
        """Returns the step to take now."""
        if self._has_led and not self.seconds_left(now):
            return Step.LOST
        if now < self.due:
            return Step.WAIT
        return Step.WRITE if self._has_looked and self._may_write(now) else Step.LOOK

    def saw(self, lease: Lease | None, now: float) -> None:
        """Takes over what a read has shown."""
        if lease is None and self.holder not in ("", self.identity):
            self._free_from = self._expires_at()  # the holder does not know yet that somebody has deleted it
        if lease is None or self._lease is None or lease.version != self._lease.version:
            self._seen_at = now
        self._lease, self._has_looked = lease, True
        if self._has_led and lease is not None and lease.holder not in ("", self.identity):
            self._leads_until = float("-inf")  # somebody has edited the Lease, or this process stood still for long
        if self._may_write(now):
            self.due = now
        else:
            expires = self._expires_at()
            self.due = min(now + self._soon(self.pace.look), expires if expires > now else float("inf"))

    def wrote(self, lease: Lease, sent: float, now: float) -> None:
        """Takes over the answer to a write that was sent at a time."""
        self._lease, self._seen_at = lease, now
        self._leads_until = sent + self.pace.deadline
        self._has_led = self._has_led or self.seconds_left(now) > 0
        self.due = sent + self._soon(self.pace.renew)

    def failed(self, now: float, *, changed: bool) -> None:
        """A request failed; `changed`: because the Lease has changed meanwhile."""
        self._has_looked = self._has_looked and not changed
        self.due = now if changed else now + self._soon(self.pace.retry)

    def resign(self) -> None:
        """Ends the leadership. The Lease can be released afterwards."""
        self._leads_until = float("-inf")
        self._has_led = True  # it never takes over again

    def _may_write(self, now: float) -> bool:
        if self.seconds_left(now):
            return True
        return self.able and (self.holder == self.identity or now >= self._expires_at())

    def _expires_at(self) -> float:
        lease = self._lease
        if lease is None:
            return self._free_from
        if not lease.holder and lease.seconds <= RELEASED_SECONDS:  # else somebody has removed the holder's name
            return self._seen_at
        return self._seen_at + (lease.seconds or self.pace.lease)

    def _soon(self, seconds: float) -> float:
        """A somewhat shorter time: several operators should not ask at the same moments."""
        return self._jitter(0.8 * seconds, seconds)
