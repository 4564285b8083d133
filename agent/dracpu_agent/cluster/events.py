"""Events for claims, pods and the CpuNode: told and forgotten, never in anybody's way."""

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal, NoReturn

import structlog

from dracpu_agent.cluster.client import ApiClient
from dracpu_api.backoff import Backoff
from dracpu_api.errors import ApiError, UnavailableError
from dracpu_api.resources import CPU_NODES, EVENTS, RESOURCE_CLAIMS, JsonObject

log = structlog.stdlib.get_logger(__name__)

_QUEUE: Final = 256
_ATTEMPTS: Final = 3
_NOTE_BYTES: Final = 1024  # events.k8s.io/v1 refuses longer notes
_NAME_LENGTH: Final = 253

Severity = Literal["Normal", "Warning"]


@dataclass(frozen=True, slots=True)
class Subject:
    """What an Event is about."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""  # "": not in a namespace; its Events go to "default"
    uid: str = ""

    @classmethod
    def claim(cls, namespace: str, name: str, uid: str) -> "Subject":
        """A ResourceClaim."""
        return cls(RESOURCE_CLAIMS.api_version, RESOURCE_CLAIMS.kind, name, namespace, uid)

    @classmethod
    def pod(cls, namespace: str, name: str, uid: str) -> "Subject":
        """A Pod."""
        return cls("v1", "Pod", name, namespace, uid)

    @classmethod
    def cpu_node(cls, name: str, uid: str = "") -> "Subject":
        """The node's CpuNode."""
        return cls(CPU_NODES.api_version, CPU_NODES.kind, name, uid=uid)


@dataclass(frozen=True, slots=True)
class _Event:
    subject: Subject
    severity: Severity
    reason: str
    action: str
    note: str


class EventLimiter:
    """Which Events are worth sending: the same one every ten minutes, and of one subject not too many different ones.
    Pure: the time is passed in."""

    def __init__(self, period: float = 600.0, per_subject: int = 20, remembered: int = 1024) -> None:
        self._period = period
        self._per_subject = per_subject
        self._remembered = remembered
        self._sent: OrderedDict[tuple[Subject, str, str], float] = OrderedDict()  # the oldest first

    def allows(self, subject: Subject, reason: str, note: str, now: float) -> bool:
        """True, and remembered as sent, or False."""
        while self._sent and (
            next(iter(self._sent.values())) <= now - self._period or len(self._sent) >= self._remembered
        ):
            self._sent.popitem(last=False)
        if (subject, reason, note) in self._sent:
            return False
        if sum(1 for known, _, _ in self._sent if known == subject) >= self._per_subject:
            return False
        self._sent[(subject, reason, note)] = now
        return True


class Events:
    """`emit` only queues; `run` sends. What cannot be sent is dropped with a line in the log."""

    def __init__(
        self,
        api: ApiClient,
        node_name: str,
        component: str,
        *,
        limiter: EventLimiter | None = None,
        backoff: Backoff | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._api = api
        self._node_name = node_name
        self._component = component
        self._limiter = limiter or EventLimiter()
        self._backoff = backoff or Backoff()
        self._clock = clock
        self._queue: asyncio.Queue[_Event] = asyncio.Queue(_QUEUE)

    def emit(self, subject: Subject, severity: Severity, reason: str, action: str, note: str) -> None:
        """`reason` and `action` are CamelCase: what came of it and what was being done (PrepareFailed, Prepare)."""
        if not self._limiter.allows(subject, reason, note, asyncio.get_running_loop().time()):
            return
        try:
            self._queue.put_nowait(_Event(subject, severity, reason, action, note))
        except asyncio.QueueFull:
            log.warning("too many Events at once, one is dropped", reason=reason, subject=subject.name, note=note)

    async def run(self) -> NoReturn:
        """Until cancelled."""
        while True:
            await self._send(await self._queue.get())

    async def _send(self, event: _Event) -> None:
        body = self._render(event)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                await self._api.create(EVENTS, body, namespace=body["metadata"]["namespace"])
            except UnavailableError as error:
                if attempt == _ATTEMPTS:
                    log.warning("an Event was not sent", reason=event.reason, error=error.message)
                else:
                    await asyncio.sleep(self._backoff.next(error))
            except ApiError as error:
                log.warning("an Event was refused", reason=event.reason, error=error.message)
                return
            else:
                self._backoff.reset()
                return

    def _render(self, event: _Event) -> JsonObject:
        subject = event.subject
        regarding = {"apiVersion": subject.api_version, "kind": subject.kind, "name": subject.name}
        if subject.namespace:
            regarding["namespace"] = subject.namespace
        if subject.uid:
            regarding["uid"] = subject.uid
        suffix = f".{secrets.token_hex(8)}"
        return {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {
                "name": subject.name[: _NAME_LENGTH - len(suffix)].rstrip(".-") + suffix,
                "namespace": subject.namespace or "default",
            },
            "eventTime": self._clock().strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "reportingController": self._component,
            "reportingInstance": self._node_name,
            "type": event.severity,
            "reason": event.reason,
            "action": event.action,
            "note": event.note.encode()[:_NOTE_BYTES].decode(errors="ignore"),
            "regarding": regarding,
        }
