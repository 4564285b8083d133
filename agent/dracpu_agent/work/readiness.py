"""Whether the node can serve claims, and the wait for a runtime that is about to connect.

A Prepare that fails costs the pod more than a minute, because the kubelet comes back only at its next resync. After a
start of the agent or of the runtime the first claims often come a moment before the runtime's list of containers, so
Prepare waits for the list for some seconds. It does not wait for what only a person can mend, such as a full disk.
"""

import asyncio
from typing import Final

from dracpu_agent.checkpoint.statefile import StateFile
from dracpu_agent.errors import NotReadyError
from dracpu_agent.node import NodeState

RUNTIME_SECONDS: Final = 10.0  # of the kubelet's 45 s: the agent tries to connect at least every 5 s


class Readiness:
    """The conditions under which claims are prepared."""

    def __init__(self, node: NodeState, state_file: StateFile, runtime_seconds: float = RUNTIME_SECONDS) -> None:
        self._node = node
        self._state_file = state_file
        self._runtime_seconds = runtime_seconds
        self._changed = asyncio.Event()
        node.on_change(self._changed.set)

    def deadline(self) -> float:
        """Until when, on the loop's clock, a Prepare that begins now waits for the runtime in all."""
        return asyncio.get_running_loop().time() + self._runtime_seconds

    async def wait(self, until: float) -> None:
        """Returns, without another task running in between, when claims can be granted; raises NotReadyError."""
        while not self._node.containers.synchronized:
            self._check_checkpoint()
            try:
                async with asyncio.timeout_at(until):
                    self._changed.clear()
                    await self._changed.wait()
            except TimeoutError as error:
                raise NotReadyError(
                    f"node {self._node.node_name} is not connected to its container runtime (NRI): "
                    "no claim is prepared until it is"
                ) from error
        self._check_checkpoint()

    def _check_checkpoint(self) -> None:
        if self._state_file.problem:
            raise NotReadyError(
                f"node {self._node.node_name} cannot write its checkpoint ({self._state_file.problem}): "
                "no claim is prepared until it can"
            )
