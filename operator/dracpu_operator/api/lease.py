"""Reads and writes the Lease by which the operators agree which of them leads."""

import asyncio
from collections.abc import Awaitable
from datetime import UTC, datetime
from types import TracebackType
from typing import Final, Self

from kubernetes_asyncio.client import Configuration

from dracpu_api.errors import NotFoundError, UnavailableError
from dracpu_api.resources import LEASES, Json
from dracpu_operator.api.cluster import Cluster
from dracpu_operator.decide.leadership import RELEASED_SECONDS, Lease

NAME: Final = "dracpu-operator"

_TIME_FORMAT: Final = "%Y-%m-%dT%H:%M:%S.%fZ"  # MicroTime, for people: nothing decides by it


class LeaseFile:
    """The Lease as it was last read or written, as an async context manager. A write is refused with ConflictError when
    the Lease has changed since then. The Lease has a connection of its own, so that no other request delays a
    renewal."""

    def __init__(self, configuration: Configuration, namespace: str) -> None:
        self._cluster = Cluster(configuration)
        self._namespace = namespace
        self._known: Json | None = None

    async def __aenter__(self) -> Self:
        await self._cluster.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._cluster.__aexit__(kind, error, trace)

    async def read(self, seconds: float) -> Lease | None:
        """Returns the Lease, or None when it does not exist. Every method takes at most some seconds."""
        reading = self._cluster.read(LEASES, NAME, namespace=self._namespace)
        try:
            self._known = await _within(seconds, reading, "GET")
        except NotFoundError:
            self._known = None
            return None
        return _read(self._known)

    async def take(self, identity: str, duration: int, seconds: float) -> Lease:
        """Writes that `identity` leads from now on, or still leads, for a duration; creates a missing Lease."""
        now = datetime.now(UTC).strftime(_TIME_FORMAT)
        before = {} if self._known is None else self._known.get("spec") or {}
        spec = {**before, "holderIdentity": identity, "leaseDurationSeconds": duration, "renewTime": now}
        if before.get("holderIdentity") != identity:
            spec["acquireTime"] = now
            spec["leaseTransitions"] = (before.get("leaseTransitions") or 0) + (1 if before else 0)
        return await self._write(spec, seconds)

    async def release(self, seconds: float) -> None:
        """Writes that nobody leads."""
        before = {} if self._known is None else self._known.get("spec") or {}
        now = datetime.now(UTC).strftime(_TIME_FORMAT)
        await self._write(
            {**before, "holderIdentity": "", "leaseDurationSeconds": RELEASED_SECONDS, "renewTime": now}, seconds
        )

    async def _write(self, spec: Json, seconds: float) -> Lease:
        if self._known is None:
            body = {"metadata": {"name": NAME, "namespace": self._namespace}, "spec": spec}
            creating = self._cluster.create(LEASES, body, namespace=self._namespace)
            self._known = await _within(seconds, creating, "POST")
        else:
            replacing = self._cluster.replace(LEASES, {**self._known, "spec": spec})
            self._known = await _within(seconds, replacing, "PUT")
        return _read(self._known)


async def _within(seconds: float, request: Awaitable[Json], method: str) -> Json:
    try:
        async with asyncio.timeout(seconds):
            return await request
    except TimeoutError as error:
        raise UnavailableError(f"{method} of the Lease: no answer within {seconds:.3g} s") from error


def _read(raw: Json) -> Lease:
    spec = raw.get("spec") or {}
    return Lease(
        raw["metadata"]["resourceVersion"], spec.get("holderIdentity") or "", spec.get("leaseDurationSeconds") or 0
    )
