"""Streamed answers: watches, and logs that are followed."""

import asyncio
import math
from collections.abc import Callable
from typing import Final

from aiohttp import web

from dracpu_sandbox.apiserver import pods
from dracpu_sandbox.apiserver.handling import rendering_for, selection
from dracpu_sandbox.apiserver.kinds.kind import Kind
from dracpu_sandbox.apiserver.objects import Objects
from dracpu_sandbox.apiserver.rendering import Rendering, encoded
from dracpu_sandbox.apiserver.request import Request
from dracpu_sandbox.apiserver.selectors import selected_name
from dracpu_sandbox.apiserver.watches import Event, Scope, Watch, Watches

Logs = Callable[[str, str, str], str]  # namespace, pod, container -> text

_WATCH_SECONDS: Final = 1800
_BOOKMARK_SECONDS: Final = 60.0  # as kube-apiserver
_ENDS: Final = frozenset({"ERROR", "CUT", "END"})
_LOG_SECONDS: Final = 0.5  # between two reads of a followed log


async def stream_watch(http: web.BaseRequest, request: Request, kind: Kind, watches: Watches) -> web.StreamResponse:
    """Sends changes until the time is over, the history is lost, or the client disconnects."""
    name = selected_name(request.query.get("fieldSelector", ""))
    scope = Scope(kind.storage, request.namespace, name, selection(request, kind))
    since, requested = request.number("resourceVersion"), request.query.get("sendInitialEvents")
    initial = request.flag("sendInitialEvents") or (not since and requested is None)
    stream = _WatchStream(
        rendering_for(request, kind), bookmarks=request.flag("allowWatchBookmarks"), marks=requested is not None
    )
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(http)
    watch = watches.open(scope, since or None, initial=initial)
    try:
        seconds = request.number("timeoutSeconds", _WATCH_SECONDS)
        async with asyncio.timeout(seconds):
            await stream.run(watches, watch, response, seconds)
    except (TimeoutError, ConnectionError):
        pass  # the time is over, or the client has disconnected
    finally:
        watches.close(watch)
    if stream.cut and http.transport is not None:
        http.transport.abort()
    return response


class _WatchStream:
    """Writes the events of a watch."""

    def __init__(self, rendering: Rendering, *, bookmarks: bool, marks: bool) -> None:
        self.cut = False
        self._rendering = rendering
        self._bookmarks = bookmarks
        self._marks = marks  # whether the client requested a bookmark after the initial events

    async def run(self, watches: Watches, watch: Watch, response: web.StreamResponse, seconds: float) -> None:
        """Runs until the watch ends. There is a bookmark each minute, and one shortly before the time is over."""
        now = asyncio.get_running_loop().time
        last_bookmark = now() + seconds - watches.last_bookmark_seconds
        if seconds <= watches.last_bookmark_seconds:
            last_bookmark = math.inf
        while True:
            try:
                async with asyncio.timeout_at(min(now() + _BOOKMARK_SECONDS, last_bookmark)):
                    events = await watch.next()
            except TimeoutError:
                events = [watches.bookmark_now()]
                if now() >= last_bookmark:
                    last_bookmark = math.inf
            await watches.flowing.wait()
            end = next((number for number, event in enumerate(events) if event.type in _ENDS), None)
            sent = events if end is None else events[: end + 1]  # changes may have followed before the client read it
            await response.write(b"".join(self._line(event) for event in sent))
            if end is not None:
                self.cut = sent[-1].type == "CUT"
                return

    def _line(self, event: Event) -> bytes:
        if event.object is not None:
            return self._rendering.event(event.type, event.object)
        if event.type == "ERROR":
            return encoded({"type": "ERROR", "object": event.status}) + b"\n"
        if event.type == "BOOKMARK" and self._bookmarks and (self._marks or not event.ends_initial):
            return self._rendering.bookmark(event.revision, initial_events_end=event.ends_initial)
        return b""


async def stream_logs(
    http: web.BaseRequest, request: Request, kind: Kind, objects: Objects, logs: Logs
) -> web.StreamResponse:
    """Sends a container's log. A followed log is sent until the pod has finished or is removed."""
    place = (request.namespace, request.name)
    container = pods.container_for_logs(objects, kind, *place, request.query.get("container", ""))
    text = logs(*place, container)
    tail = request.number("tailLines", -1)
    shown = text if tail < 0 else "".join(text.splitlines(keepends=True)[len(text.splitlines()) - tail :])
    if not request.flag("follow"):
        return web.Response(text=shown, content_type="text/plain")
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    await response.prepare(http)
    await response.write(shown.encode())
    while _runs(objects, kind, place):
        await asyncio.sleep(_LOG_SECONDS)
        if objects.store.get(kind.storage, place) is None:
            break
        present = logs(*place, container)
        added = present.removeprefix(text)
        text = present
        await response.write(added.encode())
    return response


def _runs(objects: Objects, kind: Kind, place: tuple[str, str]) -> bool:
    pod = objects.store.get(kind.storage, place)
    return pod is not None and (pod.object.get("status") or {}).get("phase") not in {"Failed", "Succeeded"}
