"""The node's CpuNode: watches its spec and writes its status."""

import asyncio
import contextlib
import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NoReturn

import structlog

from dracpu_agent.cluster.client import ApiClient
from dracpu_agent.cluster.status_plan import Written, due_in, status_patch, with_transition_times
from dracpu_agent.cluster.watch import Reflector, Snapshot
from dracpu_api.backoff import Backoff
from dracpu_api.errors import ApiError, ConflictError, NotFoundError
from dracpu_api.resources import CPU_NODES, JsonObject, resource_version

log = structlog.stdlib.get_logger(__name__)


class CpuNodeWatch:
    """Calls `on_spec` with the CpuNode's spec (None: there is no CpuNode) once and after each change of it, and
    `on_object` after any change, for `StatusWriter.observe`."""

    def __init__(
        self,
        api: ApiClient,
        node_name: str,
        on_spec: Callable[[JsonObject | None], None],
        on_object: Callable[[JsonObject | None, float], None] = lambda cpu_node, listed_at: None,
        *,
        backoff: Backoff | None = None,
    ) -> None:
        self._node_name = node_name
        self._on_spec = on_spec
        self._on_object = on_object
        self._known = False
        self._spec: JsonObject | None = None
        self._reflector = Reflector(
            api,
            CPU_NODES,
            field_selector=f"metadata.name={node_name}",
            on_change=self._on_change,
            backoff=backoff,
        )

    async def run(self) -> NoReturn:
        """Runs until cancelled."""
        await self._reflector.run()

    def _on_change(self, snapshot: Snapshot) -> None:
        cpu_node = snapshot.objects.get(self._node_name)
        self._on_object(cpu_node, snapshot.listed_at)
        spec = None if cpu_node is None else cpu_node.get("spec") or {}
        if not self._known or spec != self._spec:
            self._known, self._spec = True, spec
            self._on_spec(spec)


class StatusWriter:
    """Writes CpuNode/status by merge patches that contain only the differences.

    It does not use server-side apply, which is refused as a whole when the cluster's CRD lacks a field of this agent.
    """

    def __init__(
        self,
        api: ApiClient,
        node_name: str,
        *,
        interval: float = 5.0,
        backoff: Backoff | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._api = api
        self._node_name = node_name
        self._interval = interval
        self._backoff = backoff or Backoff(cap=60)
        self._clock = clock
        self._desired: Mapping[str, Any] | None = None
        self._object: JsonObject | None = None  # the latest CpuNode, watched or answered; None: there is none
        self._written: Written | None = None
        self._written_at: float | None = None
        self._answered_at = -math.inf  # when the API server last answered with the object
        self._wake = asyncio.Event()
        self._failing = False

    def set(self, status: Mapping[str, Any]) -> None:
        """Sets the status to write; conditions lack lastTransitionTime, which is added."""
        self._desired = status
        self._wake.set()

    def observe(self, cpu_node: JsonObject | None, listed_at: float = -math.inf) -> None:
        """Receives the CpuNode from the watch, which began with a list that was requested at `listed_at`."""
        if (
            cpu_node is not None
            and self._object is not None
            and listed_at <= self._answered_at
            and resource_version(cpu_node) < resource_version(self._object)
        ):
            return  # the watch lags behind the answer to our own write
        self._take_over(cpu_node)

    async def run(self) -> NoReturn:
        """Runs until cancelled."""
        delay: float | None = None
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._wake.wait()
            self._wake.clear()
            delay = self._due_in()
            if delay == 0:
                await self._write()
                delay = self._due_in()

    def _take_answer(self, answer: JsonObject, before: JsonObject) -> None:
        """Takes over the answer to a request; `before` is the CpuNode as it was known when the request was sent."""
        self._answered_at = asyncio.get_running_loop().time()
        known = self._object
        # unless the watch has shown a later change meanwhile
        if known is before or known is None or resource_version(answer) >= resource_version(known):
            self._take_over(answer)

    def _take_over(self, cpu_node: JsonObject | None) -> None:
        former = self._object
        if cpu_node is None or former is None or cpu_node["metadata"]["uid"] != former["metadata"]["uid"]:
            self._written = None  # it was written to a former object
        self._object = cpu_node
        self._wake.set()

    def _due_in(self) -> float | None:
        if self._desired is None or self._object is None:
            return None
        since = None if self._written_at is None else asyncio.get_running_loop().time() - self._written_at
        current = self._object.get("status") or {}
        return due_in(self._desired, current, self._written, since_write=since, interval=self._interval)

    async def _write(self) -> None:
        assert self._desired is not None
        assert self._object is not None
        desired, before = self._desired, self._object
        stamp = self._clock().strftime("%Y-%m-%dT%H:%M:%SZ")
        current = before.get("status") or {}
        patch = {
            # the patch is a difference: it is valid only for the object that it was computed from
            "metadata": {"resourceVersion": before["metadata"]["resourceVersion"]},
            "status": status_patch(with_transition_times(desired, current, stamp), current),
        }
        try:
            answer = await self._api.merge_patch(CPU_NODES, self._node_name, patch, subresource="status")
        except NotFoundError as error:
            await self._record_failure(error)
            await self._list_again()
        except ConflictError:
            await asyncio.sleep(self._backoff.next())  # until the watch has shown the change
        except ApiError as error:
            await self._record_failure(error)
        else:
            self._failing = False
            self._backoff.reset()
            self._written_at = asyncio.get_running_loop().time()
            self._take_answer(answer, before)
            self._written = Written(desired, answer.get("status") or {})

    async def _record_failure(self, error: ApiError) -> None:
        """Logs the first failure in a row, and waits before the next attempt."""
        if not self._failing:
            log.warning("cannot write the CpuNode's status, retrying", node=self._node_name, error=error.message)
        self._failing = True
        await asyncio.sleep(self._backoff.next(error))

    async def _list_again(self) -> None:
        """Lists the CpuNode after a write did not find it. The watch reports one that is created anew, but not one that
        was there all the time."""
        before = self._object
        if before is None:
            return
        try:
            listed = await self._api.list(CPU_NODES, field_selector=f"metadata.name={self._node_name}")
        except ApiError:  # the next write fails, too, or finds the object
            return
        if items := listed.get("items"):
            self._take_answer(items[0], before)
        elif self._object is before:
            self._take_over(None)
