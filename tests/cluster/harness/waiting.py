"""Waits until a cluster has reached a state."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

from lab.errors import LabError

_T = TypeVar("_T")

INTERVAL: Final = 0.3


def eventually(check: Callable[[], _T], within: float = 60) -> _T:
    """Repeats a check until no assertion in it fails, and returns its result.

    At the deadline, the last error is raised. An error of the lab, for example of kubectl, does not end the wait: an
    object may not exist yet, or a component may be restarting.
    """
    deadline = time.monotonic() + within
    while True:
        try:
            return check()
        except (AssertionError, LabError):
            if time.monotonic() > deadline:
                raise
        time.sleep(INTERVAL)
