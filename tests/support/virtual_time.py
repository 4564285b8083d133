"""An event loop whose clock jumps to the next timer instead of waiting for it: tests of long delays are exact."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any


class _JumpingSelector(selectors.SelectSelector):
    """Never waits for a timer: it adds the time to the loop's clock."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        ready = super().select(0)
        if not ready:
            self.now += timeout
        return ready


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def run_in_virtual_time(test: Coroutine[Any, Any, None]) -> None:
    """Runs a coroutine; it must use no threads, as the clock does not wait for them."""
    with asyncio.Runner(loop_factory=_VirtualLoop) as runner:
        runner.run(test)
