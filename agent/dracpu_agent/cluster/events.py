"""Sends Events about the CpuNode and about pods in the background; no caller waits for them."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NoReturn

import structlog

from dracpu_agent.cluster.client import ApiClient
from dracpu_api.backoff import Backoff
from dracpu_api.errors import ApiError, UnavailableError
from dracpu_api.events import Event, Severity, event_body
from dracpu_api.resources import CPU_NODES, EVENTS, PODS, JsonObject

log = structlog.stdlib.get_logger(__name__)

_QUEUE: Final = 256
_ATTEMPTS: Final = 3


@dataclass(frozen=True, slots=True)
class Subject:
    """The object that an Event is about."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""  # of an object that has one
    uid: str = ""  # "" where it is not known

    @classmethod
    def cpu_node(cls, name: str) -> "Subject":
        """A node's CpuNode."""
        return cls(CPU_NODES.api_version, CPU_NODES.kind, name)

    @classmethod
    def pod(cls, namespace: str, name: str, uid: str) -> "Subject":
        """A pod of this node."""
        return cls(PODS.api_version, PODS.kind, name, namespace, uid)

    def reference(self) -> JsonObject:
        """The reference to it in an Event."""
        known = {"namespace": self.namespace, "uid": self.uid}
        named = {"apiVersion": self.api_version, "kind": self.kind, "name": self.name}
        return named | {field: text for field, text in known.items() if text}


class EventLimiter:
    """Suppresses an Event that repeats an earlier one within the period, and too many Events about one subject.
    Pure: the time is passed in."""

    def __init__(self, period: float = 600.0, per_subject: int = 20, remembered: int = 1024) -> None:
        self._period = period
        self._per_subject = per_subject
        self._remembered = remembered
        self._sent: OrderedDict[tuple[Subject, str, str], float] = OrderedDict()  # the oldest first

    def allows(self, subject: Subject, reason: str, note: str, now: float) -> bool:
        """Whether to send the Event; if so, it is remembered as sent."""
        while self._sent and (
            next(iter(self._sent.values())) <= now - self._period or len(self._sent) >= self._remembered
        ):
            self._sent.popitem(last=False)
        if (subject, reason, note) in self._sent:
            return False
        if sum(1 for sent_subject, _, _ in self._sent if sent_subject == subject) >= self._per_subject:
            return False
        self._sent[(subject, reason, note)] = now
        return True


class Events:
    """`emit` queues Events, `run` sends them. An Event that cannot be sent is logged and dropped."""

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
        self._queue: asyncio.Queue[tuple[Subject, Event]] = asyncio.Queue(_QUEUE)

    def emit(self, subject: Subject, severity: Severity, reason: str, action: str, note: str) -> None:
        """Queues an Event. `reason` and `action` are CamelCase: the outcome and the action (PrepareFailed, Prepare)."""
        if not self._limiter.allows(subject, reason, note, asyncio.get_running_loop().time()):
            return
        try:
            self._queue.put_nowait((subject, Event(severity, reason, action, note)))
        except asyncio.QueueFull:
            log.warning("Event dropped: the queue is full", reason=reason, subject=subject.name, note=note)

    async def run(self) -> NoReturn:
        """Runs until cancelled."""
        while True:
            await self._send(*await self._queue.get())

    async def _send(self, subject: Subject, event: Event) -> None:
        body = event_body(
            event,
            regarding=subject.reference(),
            controller=self._component,
            instance=self._node_name,
            at=self._clock(),
        )
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                await self._api.create(EVENTS, body, namespace=body["metadata"]["namespace"])
            except UnavailableError as error:
                if attempt == _ATTEMPTS:
                    log.warning("cannot send Event", reason=event.reason, error=error.message)
                else:
                    await asyncio.sleep(self._backoff.next(error))
            except ApiError as error:
                log.warning("the API server refused an Event", reason=event.reason, error=error.message)
                return
            else:
                self._backoff.reset()
                return
