"""Writes CDI files again that were deleted or altered: without its file, a claim's container cannot be created again.

The kubelet prepares a claim once, so nothing else restores the file of a container that crashes. The directory is
listed every few seconds, which takes a thread 1 to 2 ms for 100 claims and finds everything: altered files, a directory
that was replaced, and what happened while no agent ran. The kernel's notifications would miss the last two.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import structlog

from dracpu_agent.cdi.files import CdiDirectory, CdiFileError, Stamp
from dracpu_agent.claims.grant import ClaimRef
from dracpu_agent.drivers.holding import Holding
from dracpu_agent.file_threads import in_file_thread

POLL_SECONDS: Final = 5.0

log = structlog.get_logger("cdi")


class CdiRepair:
    """Compares the files with the ledger, and calls `repair` for each held claim whose file may be wrong."""

    def __init__(
        self,
        holding: Holding[Any, Any],
        cdi: CdiDirectory[Any],
        repair: Callable[[str], Awaitable[bool]],
        repaired: Callable[[Sequence[ClaimRef]], None],
        failed: Callable[[], None],
    ) -> None:
        self._holding = holding
        self._cdi = cdi
        self._repair = repair  # takes a claim's UID; returns whether the file had to be written
        self._repaired = repaired
        self._failed = failed
        self._sound: dict[str, Stamp] = {}  # claim UID -> the stamp of its file when it was last found right
        self._problems: Sequence[str] = ()  # of the last round

    async def run(self) -> None:
        """Looks at the files every few seconds."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            await self.round()

    async def round(self) -> None:
        """Looks at the files once; raises DirectoryDeletedError."""
        try:
            stamps = await in_file_thread(self._cdi.stamps)
        except CdiFileError as error:
            self._note([str(error)])
            return
        held = {uid: claim.ref for uid, claim in self._holding.items() if claim.has_cdi_file}
        self._sound = {uid: stamp for uid, stamp in self._sound.items() if uid in held}
        repaired, problems = [], []
        for uid, ref in held.items():
            if uid in stamps and stamps[uid] == self._sound.get(uid):
                continue
            try:
                if await self._repair(uid):
                    repaired.append(ref)
                elif uid in stamps:  # the stamp is older than the look at the file
                    self._sound[uid] = stamps[uid]
            except CdiFileError as error:  # other files may be repaired
                problems.append(str(error))
        if repaired:
            self._repaired(repaired)
        self._note(problems)

    def _note(self, problems: Sequence[str]) -> None:
        for problem in problems:
            self._failed()
            if problem not in self._problems:
                log.error("CDI file not repaired, trying again", error=problem)
        self._problems = problems
