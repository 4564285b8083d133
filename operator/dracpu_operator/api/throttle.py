"""Pauses several writers together while the API server asks its clients to wait (Retry-After)."""

import asyncio
from typing import Final

from dracpu_api.backoff import Backoff
from dracpu_api.errors import ApiError

_PAUSES: Final = 8  # without a success between them; longer pauses are the reconcile's


class Throttle:
    """The pauses of one run of writes."""

    def __init__(self, first: float, cap: float) -> None:
        self._backoff = Backoff(first, cap)
        self._pauses = 0
        self._until = float("-inf")

    @property
    def is_pausing(self) -> bool:
        """True from the first pause to the next success."""
        return self._pauses > 0

    def pauses(self, error: ApiError) -> bool:
        """Whether the request is to be repeated after a pause, because the API server has asked for that."""
        if error.retry_after is None:
            return False
        if _now() >= self._until:  # others may have been refused for the same reason at the same time
            self._pauses += 1
            self._until = _now() + self._backoff.next_spread(error)
        return self._pauses <= _PAUSES

    async def wait(self) -> None:
        """Waits until the end of the pause."""
        await asyncio.sleep(max(0.0, self._until - _now()))

    def succeeded(self) -> None:
        """A request was carried out."""
        self._pauses = 0
        self._backoff.reset()


def _now() -> float:
    return asyncio.get_running_loop().time()
