"""Delays repairs of slices that somebody else changes again and again. Pure: the time is passed in."""


class RepairPace:
    """The first repair is prompt; each further repair within the calm time waits longer than the one before."""

    def __init__(self, *, first: float, cap: float, calm: float) -> None:
        self._first = first
        self._cap = cap
        self._calm = calm  # seconds without a write after which the delays start again
        self._step = 0.0
        self._written_at: float | None = None
        self._not_before = 0.0

    def reset(self) -> None:
        """The desired state has changed: the next write is not a repair, and needs no delay."""
        self._step = 0.0
        self._written_at = None
        self._not_before = 0.0

    def record_write(self, now: float) -> None:
        """The slices were written; the next write is a repair."""
        if self._written_at is None or now - self._written_at > self._calm:
            self._step = 0.0
        else:
            self._step = min(max(self._step * 2, self._first), self._cap)
        self._written_at = now
        self._not_before = now + self._step

    def hold(self, now: float, seconds: float) -> None:
        """A write failed: the next one waits for this time."""
        self._not_before = now + seconds

    def delay(self, now: float) -> float:
        """Seconds until the next write; 0 if it may be made now."""
        return max(0.0, self._not_before - now)
