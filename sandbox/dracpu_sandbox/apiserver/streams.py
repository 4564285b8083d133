"""Answers that go on: watches, and logs that are followed."""

import asyncio
from collections.abc import Callable
from typing import Final

from aiohttp import web

from dracpu_sandbox.apiserver import pods
from dracpu_sandbox.apiserver.handling import rendering_for
from dracpu_sandbox.apiserver.kinds.model import Kind
from dracpu_sandbox.apiserver.objects import Objects
from dracpu_sandbox.apiserver.rendering import Rendering, encoded
from dracpu_sandbox.apiserver.request import Request
from dracpu_sandbox.apiserver.selectors import selected_name, selects
from dracpu_sandbox.apiserver.watches import Scope, Told, Watch, Watches

Logs = Callable[[str, str, str], str]  # namespace, pod, container -> text

_WATCH_SECONDS: Final = 1800
_BOOKMARK_SECONDS: Final = 60.0  # as kube-apiserver
_LOG_SECONDS: Final = 0.5  # between two looks at a log that is followed


async def stream_watch(http: web.BaseRequest, request: Request, kind: Kind, watches: Watches) -> web.StreamResponse:
    """Tells of changes until the time is over, the history is lost, or who watches goes away."""
    fields = request.query.get("fieldSelector", "")
    chosen = selects(kind, request.query.get("labelSelector", ""), fields)
    scope = Scope(kind.storage, request.namespace, selected_name(fields), chosen)
    since, asked = request.number("resourceVersion"), request.query.get("sendInitialEvents")
    initial = request.flag("sendInitialEvents") or (not since and asked is None)
    stream = _WatchStream(
        rendering_for(request, kind), bookmarks=request.flag("allowWatchBookmarks"), marks=asked is not None
    )
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(http)
    watch = watches.open(scope, since or None, initial=initial)
    try:
        async with asyncio.timeout(request.number("timeoutSeconds", _WATCH_SECONDS)):
            await stream.run(watches, watch, response)
    except (TimeoutError, ConnectionError):
        pass  # the time is over, or who watched has gone away
    finally:
        watches.close(watch)
    if stream.cut and http.transport is not None:
        http.transport.abort()
    return response


class _WatchStream:
    """Writes what a watch is told."""

    def __init__(self, rendering: Rendering, *, bookmarks: bool, marks: bool) -> None:
        self.cut = False
        self._rendering = rendering
        self._bookmarks = bookmarks
        self._marks = marks  # the end of the initial events
        self._first = True

    async def run(self, watches: Watches, watch: Watch, response: web.StreamResponse) -> None:
        """Until the watch is told that it is over."""
        while True:
            try:
                async with asyncio.timeout(_BOOKMARK_SECONDS):
                    told = await watch.next()
            except TimeoutError:
                told = [watches.bookmark_now()]
            await watches.flowing.wait()
            await response.write(b"".join(self._line(one) for one in told))
            last = told[-1].type
            if last in {"ERROR", "CUT", "END"}:
                self.cut = last == "CUT"
                return

    def _line(self, told: Told) -> bytes:
        if told.object is not None:
            first, self._first = self._first, False
            return self._rendering.event(told.type, told.object, first=first)
        if told.type == "ERROR":
            return encoded({"type": "ERROR", "object": told.status}) + b"\n"
        if told.type == "BOOKMARK" and self._bookmarks and (self._marks or not told.ends_initial):
            return self._rendering.bookmark(told.revision, initial_events_end=told.ends_initial)
        return b""


async def stream_logs(
    http: web.BaseRequest, request: Request, kind: Kind, objects: Objects, logs: Logs
) -> web.StreamResponse:
    """A container's log; one that is followed goes on until the pod is gone or has finished."""
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
