"""When a thing that somebody else keeps undoing may be done again. Pure: the time is passed in."""


class Pace:
    """The first repair is prompt; when it is undone again and again, each waits longer than the one before."""

    def __init__(self, *, first: float, cap: float, calm: float) -> None:
        self._first = first
        self._cap = cap
        self._calm = calm  # seconds without a write after which all is forgotten
        self._step = 0.0
        self._wrote_at: float | None = None
        self._not_before = 0.0

    def told(self) -> None:
        """Somebody wants something else than before, which is not a repair."""
        self._step = 0.0
        self._wrote_at = None
        self._not_before = 0.0

    def wrote(self, now: float) -> None:
        """A write was made; the next one is a repair of it."""
        if self._wrote_at is None or now - self._wrote_at > self._calm:
            self._step = 0.0
        else:
            self._step = min(max(self._step * 2, self._first), self._cap)
        self._wrote_at = now
        self._not_before = now + self._step

    def hold(self, now: float, seconds: float) -> None:
        """A write failed: none before this many seconds have passed."""
        self._not_before = now + seconds

    def wait(self, now: float) -> float:
        """Seconds until the next write may be made; 0: now."""
        return max(0.0, self._not_before - now)
