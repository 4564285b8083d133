"""How often what is done, in seconds; one place, so that tests can be quick."""

import random
from dataclasses import dataclass

from dracpu_operator.model import CpuNode


@dataclass(frozen=True, slots=True)
class Pace:
    """The operator's intervals."""

    debounce: float = 0.2  # changes come in crowds: 5,000 agents answer, a node pool is relabelled
    first_recheck: float = 15.0  # what happened between the first list and the first watch
    recheck: float = 300.0  # deletions that a watch has missed
    node_is_fresh: float = 10.0  # a CpuNode made for a Node that is gone would be collected, and made again
    claims_first: float = 5.0  # between two lists of claims while nodes change their devices,
    claims_cap: float = 60.0  # doubling while nothing ends: claims may live for weeks
    status: float = 5.0  # between two writes of a status in which only counts change
    retry_first: float = 0.5
    retry_cap: float = 30.0
    writers: int = 16  # requests at a time


class Backoff:
    """Doubles from `first` to `cap` seconds; `reset` after a success."""

    def __init__(self, first: float, cap: float) -> None:
        self._first = first
        self._cap = cap
        self._base = first

    def next(self) -> float:
        """Seconds to wait now, with jitter."""
        delay = random.uniform(self._base / 2, self._base)  # noqa: S311 - not a secret
        self._base = min(self._base * 2, self._cap)
        return delay

    def reset(self) -> None:
        """The next failure is the first one again."""
        self._base = self._first


class Relisting:
    """When to list claims again while nodes change their devices: soon after something moved, ever more rarely while
    nothing does. Pure: the time is passed in."""

    def __init__(self, first: float, cap: float) -> None:
        self.due_at = float("inf")
        self._first = first
        self._cap = cap
        self._interval = first
        self._followed: list[CpuNode] = []

    def is_due(self, followed: list[CpuNode], now: float) -> bool:
        """True when claims have to be listed now; `followed` are the nodes that change their devices."""
        if followed != self._followed:
            self._followed, self._interval = followed, self._first
            self.due_at = min(self.due_at, now + self._first)
        if not followed:
            self.due_at = float("inf")
        if now < self.due_at:
            return False
        self.due_at = now + self._interval
        self._interval = min(self._interval * 2, self._cap)
        return True
