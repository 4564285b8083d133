"""The node's CpuNode: watches its spec and writes its status."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NoReturn

import structlog

from dracpu_agent.cluster.client import ApiClient
from dracpu_agent.cluster.status_plan import Written, difference, due_in, with_transition_times
from dracpu_agent.cluster.watch import Reflector, Snapshot
from dracpu_api.backoff import Backoff
from dracpu_api.errors import ApiError, ConflictError, NotFoundError
from dracpu_api.resources import CPU_NODES, JsonObject, resource_version

log = structlog.stdlib.get_logger(__name__)


class CpuNodeWatch:
    """Calls `on_spec` with the CpuNode's spec (None: there is no CpuNode) once and after each change of it, and
    `on_object` with the object after any change, for `StatusWriter.observe`."""

    def __init__(
        self,
        api: ApiClient,
        node_name: str,
        on_spec: Callable[[JsonObject | None], None],
        on_object: Callable[[JsonObject | None], None] = lambda cpu_node: None,
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
        self._on_object(cpu_node)
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
        self._wake = asyncio.Event()
        self._failing = False

    def set(self, status: Mapping[str, Any]) -> None:
        """Sets the status to write; conditions lack lastTransitionTime, which is added."""
        self._desired = status
        self._wake.set()

    def observe(self, cpu_node: JsonObject | None) -> None:
        """Receives the CpuNode from the watch."""
        if cpu_node is None or self._object is None:
            self._written = None  # it was written to a former object
        elif resource_version(cpu_node) < resource_version(self._object):
            return  # the watch lags behind the answer to our own write
        elif cpu_node["metadata"]["uid"] != self._object["metadata"]["uid"]:
            self._written = None
        self._object = cpu_node
        self._wake.set()

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

    def _due_in(self) -> float | None:
        if self._desired is None or self._object is None:
            return None
        since = None if self._written_at is None else asyncio.get_running_loop().time() - self._written_at
        current = self._object.get("status") or {}
        return due_in(self._desired, current, self._written, since_write=since, interval=self._interval)

    async def _write(self) -> None:
        assert self._desired is not None
        assert self._object is not None
        desired = self._desired
        stamp = self._clock().strftime("%Y-%m-%dT%H:%M:%SZ")
        current = self._object.get("status") or {}
        patch = {
            # the patch is a difference: it is valid only for the object that it was computed from
            "metadata": {"resourceVersion": self._object["metadata"]["resourceVersion"]},
            "status": difference(with_transition_times(desired, current, stamp), current),
        }
        try:
            answer = await self._api.merge_patch(CPU_NODES, self._node_name, patch, subresource="status")
        except NotFoundError:
            self.observe(None)  # deleted; the watch reports a new one
        except ConflictError:
            await asyncio.sleep(self._backoff.next())  # until the watch has shown the change
        except ApiError as error:
            if not self._failing:
                log.warning("cannot write the CpuNode's status, retrying", node=self._node_name, error=error.message)
            self._failing = True
            await asyncio.sleep(self._backoff.next(error))
        else:
            self._failing = False
            self._backoff.reset()
            self._written_at = asyncio.get_running_loop().time()
            self._written = Written(desired, answer.get("status") or {})
            self.observe(answer)
