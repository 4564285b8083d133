"""Simulates the agents of all nodes: it follows all CpuNodes and answers each change of settings."""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dracpu_api.conditions import Phase
from dracpu_api.resources import CPU_NODES, Json
from dracpu_api.settings import decode_spec
from fleet import bodies
from fleet.api import MERGE, Api
from fleet.errors import RefusedError

_WRITERS: Final = 24
_NOT_FOUND: Final = 404


@dataclass(frozen=True, slots=True)
class Given:
    """The settings that a node was given."""

    revision: str
    config: str
    representation: object
    settle_seconds: int
    at: float  # of the event, by time.monotonic


class Agents:
    """`given` has the present settings of each node, `applied` the revisions that agents have reported."""

    def __init__(self, api: Api) -> None:
        self.given: dict[str, Given] = {}
        self.applied: dict[str, str] = {}
        self._api = api
        self._answering = False
        self._settled: dict[str, object] = {}  # the representation of the devices that a node publishes
        self._queue: deque[tuple[str, Given]] = deque()
        self._work = asyncio.Event()
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Runs until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow(group))
            for _ in range(_WRITERS):
                group.create_task(self._write())

    def answer(self) -> None:
        """Starts the agents: until then no CpuNode has a status."""
        self._answering = True
        for name, given in self.given.items():
            self._enqueue(name, given)

    async def until(self, holds: Callable[[], bool], seconds: float) -> float:
        """Waits until a condition holds, which is tried after each change; returns the time by time.monotonic."""
        async with asyncio.timeout(seconds):
            while not holds():
                self._changed.clear()
                await self._changed.wait()
        return time.monotonic()

    async def _follow(self, group: asyncio.TaskGroup) -> None:
        listed, version = await self._api.items(CPU_NODES.path())
        for raw in listed:
            self._observe(raw, group)
        while True:
            async for event in self._api.watch(CPU_NODES.path(), version):
                raw = event["object"]
                version = raw["metadata"]["resourceVersion"]
                if event["type"] in {"ADDED", "MODIFIED"}:
                    self._observe(raw, group)
                elif event["type"] == "DELETED":
                    self.given.pop(raw["metadata"]["name"], None)
                    self._changed.set()

    def _observe(self, raw: Json, group: asyncio.TaskGroup) -> None:
        name, stored = raw["metadata"]["name"], raw["spec"]
        known = self.given.get(name)
        if known is not None and known.revision == stored["revision"]:
            return
        spec = decode_spec(stored)
        given = Given(
            spec.revision, spec.config_name, spec.settings.representation, spec.settle_seconds, time.monotonic()
        )
        self.given[name] = given
        self._changed.set()
        if not self._answering:
            return
        if self._settled.get(name, given.representation) == given.representation or not given.settle_seconds:
            self._enqueue(name, given)
        else:
            group.create_task(self._settle(name, given))

    async def _settle(self, name: str, given: Given) -> None:
        await self._patch(name, bodies.settling())
        await asyncio.sleep(given.settle_seconds)
        self._enqueue(name, given)

    def _enqueue(self, name: str, given: Given) -> None:
        self._queue.append((name, given))
        self._work.set()

    async def _write(self) -> None:
        while True:
            if not self._queue:
                self._work.clear()
                await self._work.wait()
                continue
            name, given = self._queue.popleft()
            if self.given.get(name) != given:
                continue
            self._settled[name] = given.representation
            await self._patch(name, bodies.applied(given.revision))
            self.applied[name] = given.revision
            self._changed.set()

    async def _patch(self, name: str, status: Json) -> None:
        path = CPU_NODES.path(name, subresource="status")
        try:
            await self._api.send("PATCH", path, {"status": status}, content_type=MERGE)
        except RefusedError as error:
            if error.status != _NOT_FOUND:
                raise


def is_ready(status: Json) -> bool:
    """True when an agent has reported that its devices are published."""
    return status.get("phase") == Phase.READY
