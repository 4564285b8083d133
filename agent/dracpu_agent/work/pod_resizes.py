"""Keeps the kubelet from resizing pods that have reserved hugepages of claims and not touched them."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from dracpu_agent.drivers.memory import MemoryDriver
from dracpu_agent.errors import PlacementError
from dracpu_agent.file_threads import in_cgroup_thread
from dracpu_agent.host.cgroup_errors import CgroupError
from dracpu_agent.memory.resizing import problem_of_resize

READ_SECONDS: Final = 0.5  # of the runtime's 2 s; a read takes less than a millisecond unless the disk hangs


class PodResizes:
    """Decides whether a pod may be resized. `read_untouched` returns the bytes of pages that processes of a pod have
    reserved and not touched, by the size of the pages; it blocks, and raises CgroupError."""

    def __init__(self, driver: MemoryDriver, read_untouched: Callable[[str], Mapping[int, int]]) -> None:
        self._driver = driver
        self._read_untouched = read_untouched
        self._reading: dict[str, asyncio.Future[Mapping[int, int]]] = {}  # the reading under way of each pod

    async def check(self, pod_uid: str) -> None:
        """Raises PlacementError while the pod must not be resized."""
        pods = self._driver.pods
        if pod_uid not in pods.claiming and pod_uid not in pods.known:
            return
        try:
            async with asyncio.timeout(READ_SECONDS):
                untouched = await self._read(pod_uid)
        except TimeoutError:
            untouched = None
        except CgroupError as error:
            raise PlacementError(f"the resources of the pod stay as they are: {error}") from error
        if problem := problem_of_resize(untouched):
            raise PlacementError(problem)

    async def _read(self, pod_uid: str) -> Mapping[int, int]:
        """Reads when no other reading of the pod is under way: the kubelet repeats a refused resize every second, and a
        cgroup that hangs occupies one thread all the same. What another reading finds may be too old for this resize.

        A caller that is cancelled leaves its reading behind: the runtime waits for the answer, and not for a file that
        hangs."""
        while (other := self._reading.get(pod_uid)) is not None:
            await asyncio.wait((other,))
        reading = asyncio.ensure_future(in_cgroup_thread(self._read_untouched, pod_uid))
        self._reading[pod_uid] = reading
        reading.add_done_callback(partial(self._ended, pod_uid))
        await asyncio.wait((reading,))
        return reading.result()

    def _ended(self, pod_uid: str, reading: "asyncio.Future[Mapping[int, int]]") -> None:
        del self._reading[pod_uid]
        if not reading.cancelled():
            reading.exception()  # so that asyncio does not report one that came too late
