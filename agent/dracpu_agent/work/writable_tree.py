"""Follows whether memory and hugepages can be limited, and keeps the driver from offering what cannot be limited.

Limits of ordinary memory need cgroup v2. Those of hugepages also need a mount of the tree to which the agent can write,
with the controller hugetlb in it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from dracpu_agent.drivers.memory import MemoryDriver
from dracpu_agent.node import NodeState
from dracpu_agent.work.polling import PolledReading

POLL_SECONDS: Final = 30.0

log = structlog.get_logger("memory")


@dataclass(frozen=True, slots=True)
class LimitProblems:
    """Why limits cannot be set, in words that name what to do; "" where they can be."""

    memory: str = ""  # of ordinary memory, and so of hugepages, too
    pages: str = ""  # of hugepages


class WritableTree(PolledReading[LimitProblems]):
    """`value` has the problems as they were read last."""

    def __init__(self, read_problems: Callable[[], LimitProblems], driver: MemoryDriver, node: NodeState) -> None:
        """`read_problems` blocks."""
        super().__init__(read_problems, LimitProblems(), POLL_SECONDS)
        self._driver = driver
        self._node = node

    def changed(self) -> None:
        """Limits can be set again, or not any more, or for another reason."""
        if self.value.memory:
            log.error("memory cannot be limited and is not offered", error=self.value.memory)
        elif self.value.pages:
            log.error("hugepages cannot be limited and are not offered", error=self.value.pages)
        else:
            log.info("memory and hugepages can be limited again")
        self._driver.memory_can_be_limited = not self.value.memory
        self._driver.pages_can_be_limited = not (self.value.memory or self.value.pages)
        self._node.refresh()
