"""Makes the hugepages that the settings name, and gives back its own that they do not name any more.

memory/provision.py decides which pages. The kernel may make fewer than it is asked for; they are asked for again after
a minute, after two, and so on up to half an hour while none comes, and at once when the settings or the machine's pages
change, or less is promised to claims. Large numbers are written in steps, because the kernel moves memory
about while it makes pages: what is free is read again before each step. Before the first step, everything that will
change is taken off what is offered; what has come of it is offered when the last step has ended, and after a long time
in between. So the node's slices are not written with each step.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Final, NoReturn, Protocol

import structlog

from dracpu_agent.checkpoint.statefile import StateFile
from dracpu_agent.drivers.memory import MemoryDriver
from dracpu_agent.errors import ClaimError
from dracpu_agent.file_threads import in_file_thread
from dracpu_agent.host.page_pools import PoolError
from dracpu_agent.memory.inventory import Inventory
from dracpu_agent.memory.kinds import Place
from dracpu_agent.memory.own_pages import Change, count
from dracpu_agent.memory.provision import Found, lacking, plan, too_many
from dracpu_agent.node import NodeState
from dracpu_agent.topology.topology import TopologyError
from dracpu_agent.work.changes import Changes, Follower

AGAIN_SECONDS: Final = 60.0  # while pages are missing, or cannot be given back yet
LONGEST_SECONDS: Final = 1800.0  # the time doubles up to this one while nothing comes of it
REFRESH_SECONDS: Final = 10.0  # how often what has changed is offered while a change goes on
STEP: Final = 1024**3  # bytes of pages that are made by one write

FEWER: Final = "the kernel found no more memory in one piece; the agent tries again from time to time"

log = structlog.get_logger("provision")


class Pools(Protocol):
    """The hugepages of the machine. The methods block."""

    def look(self) -> Found:
        """Reads what there is; raises TopologyError."""

    def check(self, change: Change) -> None:
        """Raises PoolError if the number of pages cannot be written, or has changed meanwhile."""

    def write(self, change: Change) -> None:
        """Asks the kernel for a number of pages; raises PoolError."""


class Use(Protocol):
    """The use of claims by their containers."""

    async def look(self) -> None:
        """Reads it."""

    def used(self) -> Mapping[Place, int]:
        """Bytes by place, as they were read last."""


class Provisioning:
    """Brings the pages to the number in the settings, and keeps them there. `problem` is why pages are missing, or why
    they cannot be given back; "" without a reason."""

    def __init__(
        self, node: NodeState, driver: MemoryDriver, pools: Pools, use: Use, state_file: StateFile, changes: Changes
    ) -> None:
        self._node = node
        self._driver = driver
        self._pools = pools
        self._use = use
        self._state_file = state_file
        self._changes = changes
        self._follower = Follower(changes)
        self._tried: Mapping[Place, int] = {}  # what was wanted when it was tried last
        self._promised: Mapping[Place, int] = {}  # what claims had then
        self._machine: Inventory | None = None  # what there was then
        self._waits = 0  # how often in a row nothing came of it
        self._aims: dict[Place, int] = {}  # how many pages places will have when the change that goes on has ended
        self._changed = False  # whether there are pages that are not offered yet, or have gone
        self._refreshed = 0.0  # when the node was refreshed last, by the loop's clock
        self._due: float | None = None  # when it is tried again, by the loop's clock
        self.problem = ""

    async def run(self) -> NoReturn:
        """Follows the settings and the machine until cancelled."""
        while True:
            await self._follower.next(until=self._due)
            await self._follow(asyncio.get_running_loop().time)

    async def _follow(self, now: Callable[[], float]) -> None:
        # settings of a newer agent cannot be read after a downgrade: they may want all pages that it has made
        if not self._driver.settings_known or self._driver.settling or not self._pending():
            self._due, self._waits = None, 0
            self._set_problem("")
            return
        if changed := self._is_new():
            self._waits = 0
        if changed or self._due is None or now() >= self._due:
            before = self._driver.inventory
            await self._try()
            self._machine, self._promised = self._driver.inventory, self._driver.promised()
            self._waits = self._waits + 1 if self._machine == before else 1
            self._due = now() + self._wait() if self._pending() else None

    def _wait(self) -> float:
        driver = self._driver
        if too_many(driver.inventory, driver.wanted_pages(), driver.own_pages):
            return AGAIN_SECONDS  # pods end and leave pages free, which no change of the node shows
        return min(LONGEST_SECONDS, AGAIN_SECONDS * 2.0 ** min(self._waits - 1, 10))

    def _is_new(self) -> bool:
        """Whether something may come of a try that did not come of the last one."""
        driver = self._driver
        promised = driver.promised()
        ended = any(promised.get(place, 0) < size for place, size in self._promised.items())
        return ended or driver.wanted_pages() != self._tried or driver.inventory != self._machine

    def _pending(self) -> bool:
        driver, wanted = self._driver, self._driver.wanted_pages()
        machine, own = driver.inventory, driver.own_pages
        return bool(lacking(machine, wanted) or too_many(machine, wanted, own)) or not own.agrees_with(machine)

    async def _try(self) -> None:
        self._tried = self._driver.wanted_pages()
        try:
            reasons = await self._change_pages()
        except (TopologyError, PoolError, ClaimError) as error:
            self._set_problem(str(error))
        else:
            if self._driver.wanted_pages() == self._tried:
                self._set_problem("; ".join(self._missing(reasons)))

    async def _change_pages(self) -> Mapping[Place, str]:
        """Changes as many pages as can be changed now, for the settings as they are now; returns why places have fewer
        pages than wanted. Raises TopologyError, PoolError and, if the checkpoint cannot be written, ClaimError."""
        self._refreshed = asyncio.get_running_loop().time()
        try:
            return await self._steps(await self._look())
        finally:
            self._end_change()

    async def _steps(self, found: Found) -> Mapping[Place, str]:
        fewer: dict[Place, str] = {}  # where the kernel has made fewer pages than it was asked for
        while self._driver.wanted_pages() == self._tried:
            change, reasons = self._next(found, fewer)
            if change is None:
                return {**reasons, **fewer}
            await in_file_thread(self._pools.check, change)
            if change != self._next(found, fewer)[0]:
                continue  # claims have been granted or have ended meanwhile
            found = await self._write(change)
            if count(found.inventory, change.place) != change.then:
                fewer[change.place] = FEWER
        return fewer  # the change for the new settings begins at once

    def _next(self, found: Found, done: Collection[Place]) -> tuple[Change | None, Mapping[Place, str]]:
        """The first step of the next change; and why places get fewer pages than wanted."""
        driver = self._driver
        promises = replace(driver.promises(), used=self._use.used())
        planned = plan(found, driver.wanted_pages(), driver.own_pages, promises)
        changes = [change for change in planned.changes if change.place not in done]
        self._aim({change.place: change.then for change in changes})
        steps = (_step(change, self._aims[change.place]) for change in changes)
        return next((step for step in steps if step is not None), None), planned.reasons

    def _aim(self, totals: Mapping[Place, int]) -> None:
        """Takes the pages that will come or go off what is offered. Later steps go no further, so that this happens
        once for each place."""
        if totals.keys() - self._aims.keys():
            self._aims = {**totals, **self._aims}
            self._driver.own_pages = self._driver.own_pages.aiming(self._aims)
            if not self._waits:  # most tries that follow one in vain are in vain, too
                self._refresh()

    def _end_change(self) -> None:
        if self._aims:
            self._aims = {}
            self._driver.own_pages = self._driver.own_pages.aiming({})
            self._changed = True
        if self._changed:
            self._refresh()

    def _refresh(self) -> None:
        self._changed, self._refreshed = False, asyncio.get_running_loop().time()
        self._node.refresh()

    async def _write(self, change: Change) -> Found:
        """Returns what there is then."""
        driver, before = self._driver, self._driver.own_pages
        driver.own_pages = before.intending(change)
        try:
            if change.grows:
                await self._state_file.save()  # so that the next agent counts them as its own, if this one is killed
            await in_file_thread(self._pools.write, change)
        except (PoolError, ClaimError):
            driver.own_pages = before
            raise
        found = await self._look()
        if (now := count(found.inventory, change.place)) != change.now:
            log.info(
                "hugepages made" if change.grows else "hugepages given back",
                place=str(change.place),
                before=change.now,
                asked=change.then,
                now=now,
                own=driver.own_pages.of(change.place),
            )
        return found

    async def _look(self) -> Found:
        """Counts the pages."""
        if self._driver.claims():
            await self._use.look()
        found = await in_file_thread(self._pools.look)
        driver = self._driver
        own = driver.own_pages.observed(found.inventory, found.boot)
        changed = own != driver.own_pages
        driver.own_pages = own
        self._changed = driver.follow_machine(found.inventory) or changed or self._changed
        if self._changed and asyncio.get_running_loop().time() >= self._refreshed + REFRESH_SECONDS:
            self._refresh()
        return found

    def _missing(self, reasons: Mapping[Place, str]) -> Iterator[str]:
        wanted = self._driver.wanted_pages()
        for place, pages in sorted(lacking(self._driver.inventory, wanted).items()):
            there = f"{wanted[place] - pages} of {wanted[place]} pages of {place} are there"
            yield f"{there}: {reasons[place]}" if place in reasons else there

    def _set_problem(self, problem: str) -> None:
        if problem != self.problem:
            self.problem = problem
            if problem:
                log.warning("hugepages are missing, or cannot be given back", reason=problem)
            self._changes.report()


def _step(change: Change, aim: int) -> Change | None:
    """The first step of a change that goes no further than to a number of pages; None if there is none."""
    most = max(1, STEP // change.place.kind.page)
    then = min(change.then, aim, change.now + most) if change.grows else max(change.then, aim)
    step = replace(change, then=then)
    return step if then != change.now and step.grows == change.grows else None
