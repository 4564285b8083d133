"""Waits between two looks at something outside of the agent."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Generic, NoReturn, TypeVar

from dracpu_agent.file_threads import in_file_thread

T = TypeVar("T")


class Poll:
    """Looks are due every few seconds, and at once when somebody asks for one."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._asked = asyncio.Event()

    def ask(self) -> None:
        """Makes the next look due now."""
        self._asked.set()

    async def due(self, seconds: float | None = None) -> None:
        """Returns when the next look is due; `seconds` replaces the usual time once."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._seconds if seconds is None else seconds):
                await self._asked.wait()
        self._asked.clear()


class PolledReading(Generic[T]):
    """The last reading of something that notifies nobody of its changes, in `value`."""

    def __init__(self, read: Callable[[], T], first: T, seconds: float) -> None:
        """`read` blocks. `first` is the value before the first look."""
        self._read = read
        self._poll = Poll(seconds)
        self.value = first

    def changed(self) -> None:
        """There is another value than before."""

    async def look(self) -> None:
        """Reads it once."""
        found = await in_file_thread(self._read)
        if found != self.value:
            self.value = found
            self.changed()

    def look_again(self) -> None:
        """Reads it at once instead of at the next poll."""
        self._poll.ask()

    async def run(self) -> NoReturn:
        """Reads it every few seconds until cancelled."""
        while True:
            await self._poll.due()
            await self.look()
