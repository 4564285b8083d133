"""How long to wait before the next attempt: longer each time, with jitter so that 5,000 agents do not march in step."""

import random
from collections.abc import Callable

from dracpu_agent.cluster.errors import ApiError


class Backoff:
    """Doubles from `first` to `cap` seconds; `reset` after a success."""

    def __init__(
        self, first: float = 0.5, cap: float = 30.0, *, jitter: Callable[[float, float], float] = random.uniform
    ) -> None:
        self._first = first
        self._cap = cap
        self._jitter = jitter
        self._base = first

    def next(self, error: ApiError | None = None) -> float:
        """Seconds to wait now; never less than what the server asked for."""
        delay = self._jitter(self._base / 2, self._base)
        self._base = min(self._base * 2, self._cap)
        asked = error.retry_after if error is not None and error.retry_after is not None else 0.0
        return max(delay, min(asked, self._cap))

    def reset(self) -> None:
        """The next failure is the first one again."""
        self._base = self._first
