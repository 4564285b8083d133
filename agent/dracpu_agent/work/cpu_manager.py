"""Watches whether the kubelet's own CPU manager is static: it would override every pinning."""

import asyncio
from pathlib import Path
from typing import Final, NoReturn

import structlog

from dracpu_agent.file_threads import in_file_thread
from dracpu_agent.host.cpu_manager import CpuManagerStateError, is_static
from dracpu_agent.work.changes import Changes

POLL_SECONDS: Final = 30.0

log = structlog.get_logger("cpu manager")


class CpuManagerWatch:
    """`static` is what the kubelet's state file said last."""

    def __init__(self, kubelet_root: Path, changes: Changes) -> None:
        self._kubelet_root = kubelet_root
        self._changes = changes
        self._problem = ""
        self.static = False

    async def run(self) -> NoReturn:
        """Until cancelled."""
        while True:
            await self._look()
            await asyncio.sleep(POLL_SECONDS)

    async def _look(self) -> None:
        try:
            static = await in_file_thread(is_static, self._kubelet_root)
        except CpuManagerStateError as error:
            if str(error) != self._problem:
                self._problem = str(error)
                log.warning("the policy of the kubelet's CPU manager is not known", error=self._problem)
            return
        if static != self.static:
            self.static = static
            self._changes.report()
