"""How long to wait before a failed attempt is repeated."""

import random


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
