"""Makes Events about pods and conditions of pods, as the scheduler, the controllers and the kubelets write them."""

import asyncio
import logging
from datetime import UTC, datetime
from typing import Final, NoReturn
from uuid import uuid4

from dracpu_sandbox.client import KubeClient
from dracpu_sandbox.errors import SandboxError
from dracpu_sandbox.resources import EVENTS, JsonObject, conditions_of

_LONGEST_NOTE: Final = 1024  # the API's limit

_log = logging.getLogger(__name__)


def now() -> str:
    """Returns the current time in whole seconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition(kind: str, status: bool, reason: str = "", message: str = "") -> JsonObject:
    """Returns a condition of a pod that changes now."""
    found = {"type": kind, "status": "True" if status else "False", "lastTransitionTime": now()}
    return found | {name: text for name, text in (("reason", reason), ("message", message)) if text}


def has_condition(pod: JsonObject, expected: JsonObject) -> bool:
    """Whether the pod's status already has this condition."""
    known = conditions_of(pod).get(expected["type"], {})
    return all(known.get(name) == expected.get(name) for name in ("status", "reason", "message"))


class EventRecorder:
    """Writes Events about pods in the background: no caller waits for an Event, and an Event that fails is dropped.

    An Event that repeats the previous one about its pod is skipped.
    """

    def __init__(self, client: KubeClient, reporter: str, instance: str = "sandbox") -> None:
        self._client = client
        self._reporter = reporter
        self._instance = instance
        self._queue: asyncio.Queue[JsonObject] = asyncio.Queue()
        self._last: dict[str, tuple[str, str]] = {}  # reason and note of the last Event, by the pod's UID

    def emit(self, pod: JsonObject, reason: str, note: str, *, action: str = "", warning: bool = False) -> None:
        """Queues an Event about a pod."""
        uid = pod["metadata"]["uid"]
        if self._last.get(uid) != (reason, note):
            self._last[uid] = reason, note
            self._queue.put_nowait(self._event(pod, reason, note, action or reason, warning))

    async def run(self) -> NoReturn:
        """Writes Events until it is cancelled."""
        while True:
            event = await self._queue.get()
            try:
                await self._client.create(EVENTS, event)
            except SandboxError as error:
                _log.info("an Event was not written: %s: %s", event["note"], error)

    def _event(self, pod: JsonObject, reason: str, note: str, action: str, warning: bool) -> JsonObject:
        metadata = pod["metadata"]
        return {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": f"{metadata['name']}.{uuid4().hex[:16]}", "namespace": metadata["namespace"]},
            "regarding": {
                "apiVersion": "v1",
                "kind": "Pod",
                **{name: metadata[name] for name in ("name", "namespace", "uid")},
            },
            "reason": reason,
            "note": note[:_LONGEST_NOTE],
            "type": "Warning" if warning else "Normal",
            "action": action,
            "eventTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "reportingController": self._reporter,
            "reportingInstance": self._instance,
        }
