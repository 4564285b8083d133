"""How long to wait before a failed attempt is repeated.

Each wait is longer than the one before and partly random, so that 5,000 agents do not retry at the same moments.
"""

import random
from collections.abc import Callable

from dracpu_api.errors import ApiError


class Backoff:
    """Doubles the wait from `first` to `cap` seconds."""

    def __init__(
        self, first: float = 0.5, cap: float = 30.0, *, jitter: Callable[[float, float], float] = random.uniform
    ) -> None:
        self._first = first
        self._cap = cap
        self._jitter = jitter
        self._base = first

    def next(self, error: ApiError | None = None) -> float:
        """Seconds to wait now; at least as long as the server asked for in `error`, within the cap."""
        delay = self._jitter(self._base / 2, self._base)
        self._base = min(self._base * 2, self._cap)
        asked = error.retry_after if error is not None and error.retry_after is not None else 0.0
        return max(delay, min(asked, self._cap))

    def next_spread(self, error: ApiError) -> float:
        """Seconds to wait now, where no deadline is near: the server asks all clients for the same time, so some of
        them wait up to a quarter longer."""
        delay = self.next(error)
        return self._jitter(delay, 1.25 * delay) if error.retry_after else delay

    def reset(self) -> None:
        """Starts again with the first wait; to be called after a success."""
        self._base = self._first
