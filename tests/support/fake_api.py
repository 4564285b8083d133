"""The sandbox's API server for tests, with direct access to its store, a record of its requests, and faults.

    async with FakeApi() as api:
        api.add("nodes", {"metadata": {"name": "n1"}})
        client = ApiClient(ApiAccess(api.url), version="test")
        ...
        await api.until(lambda: api.all("resourceslices"))

A test addresses objects by plural ("resourceslices") and name ("default/x" or "x"). Objects that are sent over HTTP are
validated as in the sandbox; objects that a test adds are stored unchanged. There is no garbage collection. `gates` has
the feature gates that are on; it begins with those of Kubernetes 1.37.

Faults: `fail` answers the next requests with an error, `lose_answer` executes them and cuts the connection,
`cut_watches` breaks the connections of watches, `end_watches` and `expire_watches` end them without an error and with
410, `hold_watches` delays their events, `add_to_schema` makes open watches show objects by an older schema, and `pause`
delays the answers to requests.
"""

import asyncio
import copy
import re
import ssl
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import yaml
from aiohttp import web

from dracpu_sandbox.apiserver import strategies
from dracpu_sandbox.apiserver.kinds.admission import admit
from dracpu_sandbox.apiserver.kinds.gates import ON_BY_DEFAULT
from dracpu_sandbox.apiserver.kinds.kind import Kind
from dracpu_sandbox.apiserver.objects import Writing, timestamp
from dracpu_sandbox.apiserver.refusal import RefusedError
from dracpu_sandbox.apiserver.request import Request
from dracpu_sandbox.apiserver.server import ApiServer, CutOffError
from dracpu_sandbox.apiserver.store import Key, Stored

JsonObject = dict[str, Any]

_CRDS: Final = Path(__file__).parents[2] / "crds"


@dataclass(slots=True)
class _Fault:
    what: str
    times: int
    refusal: RefusedError | None  # None: the request is executed, its answer is lost
    where: Callable[[Request], object] = lambda request: True


class FakeApi:
    """An API server whose store a test reads and changes directly."""

    def __init__(self, *, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[Request] = []
        self.tokens: set[str] = set()  # if not empty, other tokens are answered with 401
        self.gates = set(ON_BY_DEFAULT)
        self._server = ApiServer(crds=_definitions(), tls=tls, admit=self._admit, collects_garbage=False)
        self._server.around = self._around
        self._server.watches.on_count = self._notify
        self._server.watches.last_bookmark_seconds = 2.99  # almost at once in a watch that is to last three seconds
        self._objects = self._server.objects
        self._objects.store.listeners.append(lambda storage, change: self._notify())
        self._kinds = {kind.plural: kind for kind in self._objects.registry.all()}
        self._faults: list[_Fault] = []
        self._changed = asyncio.Event()
        self._running = asyncio.Event()
        self._running.set()

    async def __aenter__(self) -> Self:
        await self._server.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.resume()
        await self._server.__aexit__(kind, error, trace)

    @property
    def url(self) -> str:
        """Returns the server's URL."""
        return self._server.url

    # Direct access to the store

    def add(self, plural: str, body: JsonObject, *, namespace: str = "") -> JsonObject:
        """Creates an object."""
        kind = self._kinds[plural]
        given = body.get("metadata", {})
        metadata = {"uid": str(uuid.uuid4()), "creationTimestamp": timestamp(), "generation": 1, **given}
        if namespace := namespace or given.get("namespace", ""):
            metadata["namespace"] = namespace
        new = {"apiVersion": kind.api_version, "kind": kind.kind, **copy.deepcopy(body), "metadata": metadata}
        key = (metadata.get("namespace", ""), metadata["name"])
        assert self._objects.store.get(kind.storage, key) is None, f"{plural} {key} exists already"
        return self._put(kind, key, new)

    def get(self, plural: str, key: str) -> JsonObject:
        """Reads an object by "name" or "namespace/name"."""
        kind = self._kinds[plural]
        namespace, _, name = key.rpartition("/")
        return _copied(kind, self._objects.get(kind, namespace, name))

    def all(self, plural: str) -> list[JsonObject]:
        """Returns all objects of a kind, ordered by name."""
        kind = self._kinds[plural]
        return [_copied(kind, stored) for stored in self._objects.store.all(kind.storage)]

    def edit(self, plural: str, key: str, change: Callable[[JsonObject], object]) -> JsonObject:
        """Changes an object without a check of its version."""
        kind, before, edited = self._kinds[plural], self.get(plural, key), self.get(plural, key)
        change(edited)
        if edited == before:
            return before
        namespace, _, name = key.rpartition("/")
        return self._put(kind, (namespace, name), strategies.with_generation(kind, before, edited))

    def write(
        self, manager: str, plural: str, key: str, change: Callable[[JsonObject], object], subresource: str = ""
    ) -> JsonObject:
        """Changes an object as a client, which becomes the field manager of the changed fields."""

        def changed(stored: JsonObject) -> JsonObject:
            edited = copy.deepcopy(stored)
            change(edited)
            return edited

        kind = self._kinds[plural]
        namespace, _, name = key.rpartition("/")
        written = self._objects.patch(kind, namespace, name, changed, Writing(manager), subresource)
        return _copied(kind, written.stored)

    def remove(self, plural: str, key: str) -> None:
        """Deletes an object, even if it has finalizers."""
        namespace, _, name = key.rpartition("/")
        self._objects.store.remove(self._kinds[plural].storage, (namespace, name))

    def written(self) -> list[str]:
        """Returns the writing requests as texts like "POST resourceslices"."""
        return [str(request) for request in self.requests if request.method != "GET"]

    async def until(self, condition: Callable[[], object], seconds: float = 10.0) -> None:
        """Waits until the condition holds; it is checked after each change and each request."""
        async with asyncio.timeout(seconds):
            while not condition():
                await self._changed.wait()

    async def until_idle(self, seconds: float = 0.05) -> None:
        """Waits until there was no request for this time, for tests that show that nothing is written."""
        count = -1
        while count != len(self.requests):
            count = len(self.requests)
            await asyncio.sleep(seconds)

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
        details: JsonObject | None = None,
        where: Callable[[Request], object] = lambda request: True,
    ) -> None:
        """Refuses the next `times` requests that match `what`, a regular expression like "PUT resourceslices", and
        `where`."""
        refusal = RefusedError(code, reason or "Injected", message, details=details, retry_after=retry_after)
        self._faults.append(_Fault(what, times, refusal, where))

    def lose_answer(self, what: str, *, times: int = 1) -> None:
        """Executes the next matching requests, and cuts their connections instead of sending an answer."""
        self._faults.append(_Fault(what, times, None))

    def heal(self) -> None:
        """Ends all faults of `fail` and `lose_answer`."""
        self._faults.clear()

    def pause(self) -> None:
        """Delays the answers to requests until `resume`."""
        self._running.clear()

    def resume(self) -> None:
        """Ends `pause`."""
        self._running.set()

    def hold_watches(self) -> None:
        """Holds the events of watches back until `release_watches`."""
        self._server.watches.hold()

    def release_watches(self) -> None:
        """Ends `hold_watches`, and sends the held events in order."""
        self._server.watches.release()

    def cut_watches(self) -> None:
        """Aborts the connections of all watches."""
        self._server.watches.cut()

    def add_to_schema(self, plural: str, field: str) -> None:
        """Simulates the replacement of a CRD by one that has this field of the spec, too: the watches that are open now
        show objects without it. The API server ends them some time later: see `end_watches`."""

        def by_former_schema(body: JsonObject) -> JsonObject:
            return {**body, "spec": {name: value for name, value in body["spec"].items() if name != field}}

        self._server.watches.keep_schema(self._kinds[plural].storage, by_former_schema)

    def end_watches(self) -> None:
        """Ends all watches without an error."""
        self._server.watches.end()

    def expire_watches(self) -> None:
        """Ends open watches, and later watches from an older revision, with 410."""
        self._server.watches.expire()

    def backup(self) -> Callable[[], None]:
        """Returns a function that restores the present objects with their resourceVersions, as from a backup of etcd;
        no watch reports that."""
        return self._objects.store.backup()

    def hide_from_discovery(self, *groups: str) -> None:
        """Serves the objects of these groups without describing the groups; of no group: describes all again."""
        self._server.undiscovered = set(groups)

    def bookmark(self) -> None:
        """Sends a bookmark to all watches."""
        self._server.watches.bookmark()

    @property
    def watching(self) -> int:
        """Returns the number of open watches."""
        return len(self._server.watches)

    # Internals

    async def _around(
        self, request: Request, proceed: Callable[[], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        self.requests.append(request)
        self._notify()
        await self._running.wait()
        try:
            fault = self._fault(request)
            if fault is not None and fault.refusal is not None:
                raise fault.refusal
            self._authenticate(request)
            answer = await proceed()
        finally:
            self._notify()
        if fault is not None:
            raise CutOffError
        return answer

    def _fault(self, request: Request) -> _Fault | None:
        for fault in self._faults:
            if fault.times > 0 and re.match(fault.what, str(request)) and fault.where(request):
                fault.times -= 1
                return fault
        return None

    def _authenticate(self, request: Request) -> None:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if self.tokens and token not in self.tokens:
            raise RefusedError(401, "Unauthorized", "Unauthorized")

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _put(self, kind: Kind, key: Key, body: JsonObject) -> JsonObject:
        return _copied(kind, self._objects.store.put(kind.storage, key, kind.to_stored(body)))

    def _admit(self, kind: Kind, new: JsonObject, old: JsonObject | None, *, subresource: str = "") -> JsonObject:
        return admit(kind, new, old, subresource=subresource, gates=self.gates)


def _copied(kind: Kind, stored: Stored) -> JsonObject:
    return copy.deepcopy(kind.from_stored(stored.object))


@cache
def _definitions() -> tuple[JsonObject, ...]:
    return tuple(yaml.safe_load(path.read_text()) for path in sorted(_CRDS.glob("*.yaml")))
