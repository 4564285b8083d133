"""Finds pods whose memory requests do not cover their claims, and reports each with one Event."""

from collections.abc import Iterator
from typing import Final, NoReturn

import structlog

from dracpu_agent.cluster.events import Events, Subject
from dracpu_agent.drivers.memory import MemoryDriver
from dracpu_agent.memory.counted import request_covers
from dracpu_agent.memory.kinds import MEMORY
from dracpu_agent.node import NodeState
from dracpu_agent.work.changes import Changes, Follower
from dracpu_agent.work.memory_users import MemoryUser, memory_users
from dracpu_api.quantity import format_binary

REASON: Final = "NotCounted"

log = structlog.get_logger("memory")


class CountedClaims:
    """Follows the containers. `pods` has the names of the pods whose requests are too small, by UID."""

    def __init__(self, node: NodeState, driver: MemoryDriver, changes: Changes, events: Events) -> None:
        self._node = node
        self._driver = driver
        self._changes = changes
        self._follower = Follower(changes)
        self._events = events
        self.pods: dict[str, str] = {}

    async def run(self) -> NoReturn:
        """Runs until cancelled."""
        while True:
            await self._follower.next()
            found = {user.container.pod_uid: user for user in self._not_covered()}
            for pod_uid, user in found.items():
                if pod_uid not in self.pods:
                    self._report(user)
            former, self.pods = self.pods, {uid: _name_of(user) for uid, user in sorted(found.items())}
            if self.pods != former:
                self._changes.report()

    def _not_covered(self) -> Iterator[MemoryUser]:
        capacity = sum(node.total for node in self._driver.inventory.nodes)
        for user in memory_users(self._node, self._driver):
            score = user.container.oom_score_adj
            if score is not None and not request_covers(_limit(user), score, capacity):
                yield user

    def _report(self, user: MemoryUser) -> None:
        container = user.container
        note = (
            f"{user.text(MEMORY)}, and container {container.name} requests less or nothing in its spec: the scheduler "
            "and the kubelet count requests alone, so the node may run short of memory, and the kubelet then evicts "
            f"this pod first; set the container's memory request to {format_binary(_limit(user))}"
        )
        log.info("a memory request does not cover the claim", container=str(container))
        pod = Subject.pod(container.namespace, container.pod_name, container.pod_uid)
        self._events.emit(pod, "Warning", REASON, "Create", note)


def _limit(user: MemoryUser) -> int:
    """How much the container can use: its claim, or the limit of its spec where that is smaller."""
    limit = user.container.memory_limit
    return user.ordinary if limit is None else min(user.ordinary, limit)


def _name_of(user: MemoryUser) -> str:
    return f"{user.container.namespace}/{user.container.pod_name}"
