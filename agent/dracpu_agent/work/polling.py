"""Waits between two looks at something outside of the agent."""

import asyncio
import contextlib


class Poll:
    """Looks are due every few seconds, and at once when somebody asks for one."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._asked = asyncio.Event()

    def ask(self) -> None:
        """Makes the next look due now."""
        self._asked.set()

    async def due(self) -> None:
        """Returns when the next look is due."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._seconds):
                await self._asked.wait()
        self._asked.clear()
