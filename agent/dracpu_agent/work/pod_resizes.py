"""Keeps the kubelet from resizing pods that have reserved hugepages of claims and not touched them."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from dracpu_agent.drivers.memory import MemoryDriver
from dracpu_agent.errors import PlacementError
from dracpu_agent.file_threads import in_file_thread
from dracpu_agent.host.cgroup_errors import CgroupError
from dracpu_agent.memory.resizing import problem_of_resize

READ_SECONDS: Final = 0.5  # of the runtime's 2 s; a read takes less than a millisecond unless the disk hangs


class PodResizes:
    """Decides whether a pod may be resized. `read_untouched` returns the bytes of pages that processes of a pod have
    reserved and not touched, by the size of the pages; it blocks, and raises CgroupError."""

    def __init__(self, driver: MemoryDriver, read_untouched: Callable[[str], Mapping[int, int]]) -> None:
        self._driver = driver
        self._read_untouched = read_untouched
        self._reading: set[asyncio.Future[Mapping[int, int]]] = set()

    async def check(self, pod_uid: str) -> None:
        """Raises PlacementError while the pod must not be resized."""
        pods = self._driver.pods
        if pod_uid not in pods.claiming and pod_uid not in pods.known:
            return
        # not cancelled when the time is over: the runtime waits for the answer, and not for a file that hangs
        reading = asyncio.ensure_future(in_file_thread(self._read_untouched, pod_uid))
        self._reading.add(reading)
        reading.add_done_callback(self._read)
        done, _ = await asyncio.wait((reading,), timeout=READ_SECONDS)
        try:
            untouched = reading.result() if done else None
        except CgroupError as error:
            raise PlacementError(f"the resources of the pod stay as they are: {error}") from error
        if problem := problem_of_resize(untouched):
            raise PlacementError(problem)

    def _read(self, reading: "asyncio.Future[Mapping[int, int]]") -> None:
        self._reading.discard(reading)
        if not reading.cancelled():
            reading.exception()  # so that asyncio does not report one that came too late
