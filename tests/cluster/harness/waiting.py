"""Waiting for what a cluster will do in its own time."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

from lab.errors import LabError

_T = TypeVar("_T")

INTERVAL: Final = 0.3


def eventually(check: Callable[[], _T], within: float = 60) -> _T:
    """Repeats a check until it asserts nothing wrong, and returns what it returned.

    At the deadline the last assertion is the test's failure. An error of kubectl counts as "not yet": an object that
    is still to come, a component that is just being restarted.
    """
    deadline = time.monotonic() + within
    while True:
        try:
            return check()
        except (AssertionError, LabError):
            if time.monotonic() > deadline:
                raise
        time.sleep(INTERVAL)
