"""The kubelet's Events about pods; one that repeats itself is counted, as kubectl shows it."""

import asyncio
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import structlog

from dracpu_sandbox.client import KubeClient, KubeError, UnreachableError
from dracpu_sandbox.node.pods import Pod
from dracpu_sandbox.resources import EVENTS, JsonObject

_REMEMBERED: Final = 1000
_LONGEST_NOTE: Final = 1024  # the API's limit

log = structlog.get_logger("kubelet")


@dataclass(frozen=True, slots=True)
class _Said:
    pod: Pod
    kind: str
    reason: str
    note: str

    @property
    def key(self) -> tuple[str, str, str]:
        return self.pod.uid, self.reason, self.note


class EventRecorder:
    """Tells and forgets: nobody waits for an Event, and one that cannot be written is lost."""

    def __init__(self, client: KubeClient, node_name: str) -> None:
        self._client = client
        self._node_name = node_name
        self._queue: asyncio.Queue[_Said] = asyncio.Queue()
        self._written: dict[tuple[str, str, str], tuple[str, int]] = {}  # name and how often

    def emit(self, pod: Pod, reason: str, note: str, *, warning: bool = False) -> None:
        """Something has happened to a pod."""
        self._queue.put_nowait(_Said(pod, "Warning" if warning else "Normal", reason, note))

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            said = await self._queue.get()
            try:
                await self._write(said)
            except (KubeError, UnreachableError) as error:
                log.warning("an Event was not written", reason=said.reason, pod=said.pod.name, error=str(error))

    async def _write(self, said: _Said) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        name, count = self._written.pop(said.key, ("", 0))
        if name:
            patch = {"series": {"count": count + 1, "lastObservedTime": now}}
            await self._client.patch(EVENTS, name, patch, said.pod.namespace)
        else:
            name = f"{said.pod.name}.{secrets.token_hex(8)}"
            await self._client.create(EVENTS, self._event(said, name, now))
        self._written[said.key] = (name, count + 1)
        if len(self._written) > _REMEMBERED:
            self._written.pop(next(iter(self._written)))

    def _event(self, said: _Said, name: str, now: str) -> JsonObject:
        return {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": name, "namespace": said.pod.namespace},
            "eventTime": now,
            "reportingController": "kubelet",
            "reportingInstance": self._node_name,
            "action": said.reason,
            "reason": said.reason,
            "regarding": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": said.pod.namespace,
                "name": said.pod.name,
                "uid": said.pod.uid,
            },
            "note": said.note[:_LONGEST_NOTE],
            "type": said.kind,
        }
