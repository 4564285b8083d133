"""How it stands with the watch of one kind of objects: whether it is open, and why the operator may miss changes."""

import asyncio
from collections.abc import Callable


class Standing:
    """Records what happens to a watch, in the order in which it happens. `on_reopened` is called when the API server
    has accepted a watch that continues an earlier one."""

    def __init__(self, what: str, blind_seconds: float, on_reopened: Callable[[], None] = lambda: None) -> None:
        self.what = what  # the plural name of the objects
        self.is_requested = asyncio.Event()
        self.is_listed = asyncio.Event()
        self.is_following = False  # a watch is open
        self._on_reopened = on_reopened
        self._blind_seconds = blind_seconds  # without a watch, until the operator is not ready
        self._is_given_up = False
        self._problem = ""
        self._followed_until: float | None = None  # None: no watch was accepted yet

    def requested(self) -> None:
        """A list or a watch was requested."""
        self.is_requested.set()

    def listed(self) -> None:
        """All objects have been listed."""
        self.is_listed.set()
        self._is_given_up = False

    def accepted(self) -> None:
        """The API server has accepted a watch."""
        if self._followed_until is not None:
            self._on_reopened()
        self.is_following, self._problem, self._followed_until = True, "", _now()

    def ended(self) -> None:
        """The watch has ended; another one follows."""
        if self.is_following:
            self.is_following, self._followed_until = False, _now()

    def failed(self, problem: str) -> bool:
        """A list or a watch has failed. Returns whether the problem is a new one, and thus worth a line in the log."""
        is_new, self._problem = problem != self._problem, problem
        return is_new

    def given_up(self) -> None:
        """The objects may not be followed, and the operator works without them."""
        self._is_given_up = True

    def trouble(self) -> str:
        """Why the operator may miss changes; "" while the watch is open, or was until a short time ago."""
        if self.is_following or self._is_given_up:
            return ""
        why = f": {self._problem}" if self._problem else ""
        if not self.is_listed.is_set():
            return f"{self.what} have not been listed yet{why}"
        if self._followed_until is None:
            return f"no watch of {self.what} has been accepted yet{why}"
        seconds = _now() - self._followed_until
        return f"{self.what} have not been watched for {seconds:.0f} s{why}" if seconds > self._blind_seconds else ""


def _now() -> float:
    return asyncio.get_running_loop().time()
