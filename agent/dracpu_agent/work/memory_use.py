"""Reads what containers use of their claims of memory and hugepages: when there are others, and from time to time."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NoReturn, Protocol

import structlog

from dracpu_agent.cluster.events import Events, Subject
from dracpu_agent.drivers.memory import MemoryDriver
from dracpu_agent.drivers.memory_promises import memory_by_cdi_device
from dracpu_agent.file_threads import in_cgroup_thread
from dracpu_agent.host.cgroup_errors import CgroupError
from dracpu_agent.host.container_usage import ContainerUsage
from dracpu_agent.memory.kinds import MEMORY, Kind, Place
from dracpu_agent.memory.use import (
    ClaimsUse,
    Shares,
    Sizes,
    Using,
    share_out,
    spread,
    steadily,
    summed,
    without_own_pages,
)
from dracpu_agent.node import NodeState
from dracpu_agent.work.changes import Changes, Follower
from dracpu_agent.work.memory_users import MemoryUser, memory_users

LOOK_SECONDS: Final = 30.0
PACE_SECONDS: Final = 5.0  # between two looks at least, when containers or claims come and go: each reads all of them
SHOWN_SECONDS: Final = 300.0
REASON: Final = "MemoryBeyondClaim"

log = structlog.get_logger("memory")


class Usages(Protocol):
    """The cgroups of containers."""

    def read(self, pod_uid: str, container_id: str) -> ContainerUsage | None:
        """Reads how much a container uses; None without its cgroup. Blocks, and raises CgroupError."""


class MemoryUse:
    """Keeps `driver.use` up to date, while there are claims."""

    def __init__(self, node: NodeState, driver: MemoryDriver, usages: Usages, changes: Changes, events: Events) -> None:
        self._node = node
        self._driver = driver
        self._usages = usages
        self._changes = changes
        self._follower = Follower(changes)
        self._asked = False
        self._promised: Sizes = {}  # when the CpuNode was given something to show
        self._shown_until = 0.0  # the loop's time before which it shows nothing else while promises stay the same
        self._one_look = asyncio.Lock()
        self._events = events
        self._beyond: Counter[Place] = Counter()
        self._failed: frozenset[str] = frozenset()  # containers whose cgroups could not be read

    def used(self) -> Sizes:
        """Bytes that containers use of their claims, by place."""
        return summed(self._driver.use.by_claim.values())

    def beyond(self) -> Sizes:
        """Bytes that they use beyond their claims, by place."""
        return self._beyond

    def look_again(self) -> None:
        """Reads at once instead of after LOOK_SECONDS."""
        self._asked = True
        self._changes.report()

    async def run(self) -> NoReturn:
        """Runs until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self._asked, seen = False, self._subjects()
            await self.look()
            looked = loop.time()
            due = looked + LOOK_SECONDS if seen else None
            while not self._asked and (due is None or loop.time() < due):
                if seen != self._subjects():
                    due = looked + PACE_SECONDS
                    if loop.time() >= due:
                        break
                await self._follower.next(due)

    def _subjects(self) -> frozenset[str]:
        """The claims, and the containers that have some."""
        containers = (user.container.id for user in memory_users(self._node, self._driver))
        return frozenset((*self._driver.claims(), *containers))

    async def look(self) -> None:
        """Reads once; a look begins when the one before it has ended, so that no older reading replaces a newer one."""
        async with self._one_look:
            await self._look()

    async def _look(self) -> None:
        users = list(memory_users(self._node, self._driver))
        read = await in_cgroup_thread(self._read, users)
        self._failed = frozenset(user.container.id for user in users).difference(read)
        known = [user for user in users if user.container.id in read]
        shares = share_out(Using(user.container.id, read[user.container.id], user.devices) for user in known)
        self._take_over(shares, {device for user in users if user not in known for device in user.devices})
        self._beyond = Counter()
        for user in known:
            self._note_beyond(user, shares.beyond[user.container.id])

    def _read(self, users: Sequence[MemoryUser]) -> Mapping[str, Sizes]:
        """How much each container uses, by its id: one that has ended uses nothing, unreadable ones are absent."""
        found: dict[str, Sizes] = {}
        for user in users:
            container = user.container
            try:
                usage = self._usages.read(container.pod_uid, container.id)
            except CgroupError as error:
                if container.id not in self._failed:
                    log.warning("the use of memory is not known", container=str(container), error=str(error))
                continue
            found[container.id] = {} if usage is None else _by_place(usage, user.sizes)
        return found

    def _take_over(self, shares: Shares, unknown: set[str]) -> None:
        by_claim: dict[str, Sizes] = {}
        not_read: dict[str, Sizes] = {}
        now: Counter[Place] = Counter()
        hidden: set[Place] = set()
        for uid, claim in self._driver.claims().items():
            devices = dict(memory_by_cdi_device(claim))
            if unknown & devices.keys():
                hidden.update(place for sizes in devices.values() for place in sizes)
                not_read[uid] = self._read_last(uid) or summed(devices.values())
                continue
            used: Counter[Place] = Counter()
            for device in devices:
                used.update(shares.of_devices.get(device, {}))
            by_claim[uid] = used
            now.update({place: used[place] for sizes in devices.values() for place in sizes})
        visible = {place: size for place, size in now.items() if place not in hidden}
        former = self._driver.use.shown
        self._driver.use = ClaimsUse(by_claim, not_read, self._to_show(former, visible))
        if self._driver.use.shown != former:
            self._changes.report()

    def _to_show(self, former: Sizes, now: Sizes) -> Sizes:
        """What the CpuNode shows: another amount at once when promises have changed, and else every SHOWN_SECONDS at
        most, as each is a write to the API server."""
        promised, time = self._driver.promised(), asyncio.get_running_loop().time()
        shown = steadily(former, now, promised)
        if promised == self._promised and shown != former:
            if time < self._shown_until:
                return former
            self._shown_until = time + SHOWN_SECONDS
        self._promised = promised
        return shown

    def _read_last(self, uid: str) -> Sizes:
        """What a claim used when it was read last; nothing as long as it used nothing."""
        use = self._driver.use
        used = use.by_claim.get(uid) or use.not_read.get(uid) or {}
        return {place: size for place, size in used.items() if size}

    def _note_beyond(self, user: MemoryUser, found: Sizes) -> None:
        """An Event for each kind on a node, whose text stays the same while it lasts, so that it is not repeated."""
        container = user.container
        beyond = without_own_pages(found, self._driver.pods.own(container.pod_uid))
        self._beyond.update(beyond)
        for place in sorted(beyond):
            note = (
                f"container {container.name} uses more {place} than its claims have there "
                f"({user.text(place.kind)}): other claims may lack it; request there what the program uses, or bind "
                "the program to the NUMA nodes of its claims"
            )
            pod = Subject.pod(container.namespace, container.pod_name, container.pod_uid)
            self._events.emit(pod, "Warning", REASON, "Look", note)


def _by_place(usage: ContainerUsage, claimed: Sizes) -> Sizes:
    """Anonymous memory and page cache, shared memory included, and the pages of each size."""
    found: dict[Place, int] = {}
    for numa, part in usage.numa.items():
        found[Place(numa, MEMORY)] = part.anon + part.file
        found |= {Place(numa, Kind(page)): size for page, size in part.pages.items()}
    counted = {page for part in usage.numa.values() for page in part.pages}
    # Linux before 5.17 counts the pages of a cgroup, and not on which NUMA node they are
    found |= spread({page: size for page, size in usage.pages.items() if page not in counted}, claimed)
    return found
