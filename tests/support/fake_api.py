"""A small Kubernetes API server in memory, over real HTTP, for the objects that the agent and its tests touch.

    async with FakeApi() as api:
        api.add("nodes", {"metadata": {"name": "n1"}})
        client = ApiClient(ApiAccess(api.url), version="test")
        ...
        await api.until(lambda: api.all("resourceslices"))

Objects are addressed by their plural ("resourceslices"), "default/x" or "x". What it does like the real one: one
resourceVersion counter, generateName, UIDs, conflicts, preconditions, no new version for a write that changes
nothing, status as a subresource, merge patch, server-side apply (one field manager's former fields go away), field
selectors by path, dry run, watches with bookmarks and 410, fields of disabled feature gates dropped without a word.
What it does not do: schemas, validation, authorisation, finalizers, garbage collection.

Faults: `fail` answers the next requests with an error, `lose_answer` does what is asked and cuts the connection,
`cut_watches`, `expire_watches` (410), `hold_watches` (they lag), `pause` (requests hang).
"""

import asyncio
import json
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from aiohttp import web
from fake_api_discovery import discover
from fake_api_store import JsonObject, ObjectStore, StatusError

_PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/(?P<version>[^/]+)(?:/namespaces/(?P<namespace>[^/]+)(?=/))?"
    r"/(?P<plural>[^/]+)(?:/(?P<name>[^/]+))?(?:/(?P<subresource>[^/]+))?"
)


@dataclass(frozen=True, slots=True)
class Request:
    """One request, as it came in."""

    method: str
    plural: str
    name: str
    subresource: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any

    @property
    def watches(self) -> bool:
        """True for a watch, which is a GET too."""
        return self.query.get("watch") == "true"

    def __str__(self) -> str:
        verb = "WATCH" if self.watches else self.method
        return " ".join([verb, "/".join(part for part in (self.plural, self.name, self.subresource) if part)])


@dataclass(slots=True)
class _Fault:
    what: str
    times: int
    refusal: StatusError | None  # None: the request is done, its answer is lost


@dataclass(eq=False, slots=True)
class _Watcher:
    plural: str
    selects: Callable[[JsonObject], bool]
    bookmarks: bool
    events: asyncio.Queue[JsonObject | None] = field(default_factory=asyncio.Queue)  # None: cut the connection


class FakeApi:
    """See the module."""

    def __init__(self, *, tls: ssl.SSLContext | None = None) -> None:
        self.url = ""
        self.requests: list[Request] = []
        self.tokens: set[str] = set()  # when not empty, others are answered 401
        self._tls = tls
        self._store = ObjectStore(self._tell)
        self._history: list[tuple[int, str, JsonObject]] = []  # revision, plural, event
        self._oldest = 0  # watches from before this revision are answered 410
        self._watchers: set[_Watcher] = set()
        self._faults: list[_Fault] = []
        self._changed = asyncio.Event()
        self._running = asyncio.Event()
        self._running.set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._tls)
        await site.start()
        port = self._runner.addresses[0][1]
        self.url = f"{'https' if self._tls else 'http'}://127.0.0.1:{port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.resume()
        self.release_watches()
        self.cut_watches()
        assert self._runner is not None
        await self._runner.cleanup()

    # What a test sees and does behind the agent's back

    @property
    def disabled_gates(self) -> set[str]:
        """Feature gates whose fields are dropped: DRAConsumableCapacity, DRADeviceTaints."""
        return self._store.disabled_gates

    @property
    def admission(self) -> list[Callable[[str, JsonObject], JsonObject]]:
        """Functions (plural, object) -> what is stored instead."""
        return self._store.admission

    def add(self, plural: str, body: JsonObject, *, namespace: str = "") -> JsonObject:
        """Creates an object."""
        return self._store.create(plural, namespace or body.get("metadata", {}).get("namespace", ""), body)

    def get(self, plural: str, key: str) -> JsonObject:
        """An object by "name" or "namespace/name"."""
        return self._store.get(plural, key)

    def all(self, plural: str) -> list[JsonObject]:
        """All objects of a kind, by name."""
        return list(self._store.all(plural).values())

    def edit(self, plural: str, key: str, change: Callable[[JsonObject], object]) -> JsonObject:
        """Changes an object in place, whatever its version."""
        edited = self.get(plural, key)
        change(edited)
        return self._store.put(plural, key, edited)

    def remove(self, plural: str, key: str) -> None:
        """Deletes an object."""
        self._store.delete(plural, key)

    def written(self) -> list[str]:
        """The requests that change something, as text: "POST resourceslices"."""
        return [str(one) for one in self.requests if one.method != "GET"]

    async def until(self, condition: Callable[[], object], seconds: float = 10.0) -> None:
        """Waits until the condition holds; it is looked at after each change and each request."""
        async with asyncio.timeout(seconds):
            while not condition():
                await self._changed.wait()

    async def settled(self, quiet: float = 0.05) -> None:
        """Waits until the server has been asked nothing for a while, for tests that show that nothing happens."""
        seen = -1
        while seen != len(self.requests):
            seen = len(self.requests)
            await asyncio.sleep(quiet)

    # Faults

    def fail(
        self,
        what: str,
        code: int,
        reason: str = "",
        message: str = "injected",
        *,
        times: int = 1,
        retry_after: int | None = None,
    ) -> None:
        """The next `times` requests that match `what` ("PUT resourceslices", a regular expression) are refused."""
        self._faults.append(_Fault(what, times, StatusError(code, reason or "Injected", message, retry_after)))

    def lose_answer(self, what: str, *, times: int = 1) -> None:
        """The next requests that match are carried out, but the connection is cut instead of an answer."""
        self._faults.append(_Fault(what, times, None))

    def pause(self) -> None:
        """Requests hang from now on."""
        self._running.clear()

    def resume(self) -> None:
        """The end of `pause`."""
        self._running.set()

    def hold_watches(self) -> None:
        """Watches show nothing new until `release_watches`."""
        self._flowing.clear()

    def release_watches(self) -> None:
        """The end of `hold_watches`: what was held comes in order."""
        self._flowing.set()

    def cut_watches(self) -> None:
        """Breaks the connections of all watches."""
        for watcher in self._watchers:
            watcher.events.put_nowait(None)

    def expire_watches(self) -> None:
        """Forgets the history: open watches end with 410, and so do those that begin at an older revision."""
        self._store.revision += 1
        self._oldest = self._store.revision
        self._history.clear()
        for watcher in self._watchers:
            watcher.events.put_nowait({"type": "ERROR", "object": _expired().body})

    def bookmark(self) -> None:
        """Sends a bookmark to all watches."""
        for watcher in self._watchers:
            if watcher.bookmarks:
                metadata = {"resourceVersion": str(self._store.revision)}
                watcher.events.put_nowait({"type": "BOOKMARK", "object": {"metadata": metadata}})

    @property
    def watching(self) -> int:
        """How many watches are open."""
        return len(self._watchers)

    # HTTP

    async def _handle(self, http: web.Request) -> web.StreamResponse:
        if (found := discover(http.path)) is not None:
            return _answer(found, 200)
        match = _PATH.fullmatch(http.path)
        if match is None:
            return _answer(StatusError(404, "NotFound", f"no such path: {http.path}").body, 404)
        payload = await http.read()
        request = Request(
            http.method,
            match["plural"],
            match["name"] or "",
            match["subresource"] or "",
            dict(http.query),
            dict(http.headers),
            json.loads(payload) if payload else None,
        )
        self.requests.append(request)
        self._notify()
        await self._running.wait()
        try:
            fault = self._fault(request)
            if fault is not None and fault.refusal is not None:
                raise fault.refusal
            self._authenticate(request)
            if request.watches:
                return await self._watch(http, request)
            body = self._serve(request, match["namespace"] or "")
        except StatusError as error:
            headers = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
            return _answer(error.body, error.code, headers)
        finally:
            self._notify()
        if fault is not None and http.transport is not None:
            http.transport.abort()
        return _answer(body, 201 if request.method == "POST" else 200)

    def _serve(self, request: Request, namespace: str) -> JsonObject:
        store, plural, body, sub = self._store, request.plural, request.body, request.subresource
        key = "/".join(part for part in (namespace, request.name) if part)
        match request.method:
            case "GET" if request.name:
                answer = store.get(plural, key)
            case "GET":
                limit, onward = int(request.query.get("limit", 0)), request.query.get("continue", "")
                answer = store.page(plural, _selector(request.query), limit, onward)
            case "POST":
                answer = store.create(plural, namespace, body, dry_run="dryRun" in request.query)
            case "PUT":
                answer = store.replace(plural, key, body, sub)
            case "PATCH" if request.headers["Content-Type"] == "application/apply-patch+yaml":
                answer = store.apply(plural, key, body, request.query["fieldManager"], sub)
            case "PATCH":
                answer = store.merge(plural, key, body, sub)
            case "DELETE" if request.name:
                store.check(plural, key, (body or {}).get("preconditions") or {})
                answer = store.delete(plural, key)
            case "DELETE":
                selects = _selector(request.query)
                for doomed in [key for key, one in store.all(plural).items() if selects(one)]:
                    store.delete(plural, doomed)
                answer = {"kind": "Status", "status": "Success"}
            case _:
                raise StatusError(405, "MethodNotAllowed", f"{request.method} is not supported")
        return answer

    async def _watch(self, http: web.Request, request: Request) -> web.StreamResponse:
        since = int(request.query["resourceVersion"])
        bookmarks = request.query.get("allowWatchBookmarks") == "true"
        watcher = _Watcher(request.plural, _selector(request.query), bookmarks)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(http)
        self._watchers.add(watcher)
        if since < self._oldest:
            watcher.events.put_nowait({"type": "ERROR", "object": _expired().body})
        for revision, plural, event in self._history:
            if revision > since and plural == request.plural and watcher.selects(event["object"]):
                watcher.events.put_nowait(event)
        try:
            self._notify()
            async with asyncio.timeout(float(request.query.get("timeoutSeconds", 300))):
                while (queued := await watcher.events.get()) is not None:
                    await self._flowing.wait()
                    await response.write(json.dumps(queued).encode() + b"\n")
                    if queued["type"] == "ERROR":
                        return response
            if http.transport is not None:
                http.transport.abort()
        except (TimeoutError, ConnectionError):
            pass
        finally:
            self._watchers.discard(watcher)
            self._notify()
        return response

    def _fault(self, request: Request) -> _Fault | None:
        for fault in self._faults:
            if fault.times > 0 and re.match(fault.what, str(request)):
                fault.times -= 1
                return fault
        return None

    def _authenticate(self, request: Request) -> None:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if self.tokens and token not in self.tokens:
            raise StatusError(401, "Unauthorized", "Unauthorized")

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _tell(self, plural: str, event: JsonObject) -> None:
        self._history.append((self._store.revision, plural, event))
        for watcher in self._watchers:
            if watcher.plural == plural and watcher.selects(event["object"]):
                watcher.events.put_nowait(event)
        self._notify()


def _answer(body: JsonObject, code: int, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.json_response(body, status=code, headers=headers)


def _expired() -> StatusError:
    return StatusError(410, "Expired", "too old resource version")


def _selector(query: Mapping[str, str]) -> Callable[[JsonObject], bool]:
    wanted = [part.split("=", 1) for part in query.get("fieldSelector", "").split(",") if part]

    def selects(subject: JsonObject) -> bool:
        return all(_at(subject, path) == value for path, value in wanted)

    return selects


def _at(subject: Any, path: str) -> Any:
    for name in path.split("."):
        subject = subject.get(name, {}) if isinstance(subject, dict) else {}
    return subject
