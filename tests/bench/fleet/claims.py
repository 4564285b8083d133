"""Measures what following claims costs while the mode of all nodes changes: the bytes that the API server sends to the
operator, its lists, and its memory. Claims come and go meanwhile.

The bytes are those that the API server counts itself; nobody else reads claims here. It compresses the pages of lists,
and these claims resemble each other more than real ones, so the size of what was listed is printed as well.
"""

import argparse
import asyncio
import itertools
import json
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn
from urllib.parse import parse_qs, urlsplit

from dracpu_api.resources import RESOURCE_CLAIMS, JsonObject
from fleet import bodies
from fleet.api import MERGE, Api, each
from fleet.cluster import PARALLEL, fill, object_bytes
from fleet.errors import BenchError
from fleet.measure import Run, background
from fleet.plane import Plane, control_plane

_NAMESPACE: Final = "default"
_CHANGES: Final = 10.0  # claims that are allocated or deallocated each second during the rollout
_MIB: Final = 2**20
_LISTED: Final = re.compile(
    r'^apiserver_response_sizes_sum\{[^}]*resource="resourceclaims"[^}]*verb="LIST"[^}]*\} (\S+)', re.MULTILINE
)
_WATCHED: Final = re.compile(
    r'^apiserver_watch_events_sizes_sum\{[^}]*(?:kind="ResourceClaim"|resource="resourceclaims")[^}]*\} (\S+)',
    re.MULTILINE,
)


class Claims:
    """Claims that are allocated on the devices of nodes in grouped mode, as many on each node."""

    def __init__(self, api: Api, nodes: Sequence[str], count: int) -> None:
        self.names = [f"training-{number:05}-cpus-x7k2p" for number in range(count)]
        self._api = api
        self._node = dict(zip(self.names, itertools.cycle(nodes), strict=False))

    async def create(self, names: Sequence[str]) -> None:
        """Creates and allocates claims."""
        await each(names, self._create, PARALLEL)

    async def deallocate(self, name: str) -> None:
        """Takes its devices from a claim."""
        await self._write(name, {"allocation": None, "reservedFor": None, "devices": None})

    async def change(self) -> NoReturn:
        """Deallocates and allocates claims, until cancelled."""
        for name in itertools.cycle(self.names):
            await self.deallocate(name)
            await asyncio.sleep(1 / _CHANGES)
            await self._write(name, self._status(name))
            await asyncio.sleep(1 / _CHANGES)
        raise AssertionError("a cycle has no end")

    async def _create(self, name: str) -> None:
        body = bodies.claim(name, _NAMESPACE)
        await self._api.send("POST", RESOURCE_CLAIMS.path(namespace=_NAMESPACE), body)
        await self._write(name, self._status(name))

    async def _write(self, name: str, status: JsonObject) -> None:
        path = RESOURCE_CLAIMS.path(name, namespace=_NAMESPACE, subresource="status")
        await self._api.send("PATCH", path, {"status": status}, content_type=MERGE)

    def _status(self, name: str) -> JsonObject:
        return bodies.claim_status(name, self._node[name])


async def measure(nodes: int, claims: int, folder: Path) -> None:
    """Prints the figures of one cluster."""
    async with control_plane(folder) as plane:
        made = await fill(plane.admin, nodes)
        run = Run(plane, made, print)
        async with run.agents() as agents:
            async with run.operator() as running:
                await run.first_convergence(running, agents)
                await run.agents_answer(running, agents)
                without = running.memory()[0]
            held = Claims(plane.admin, made.names, claims)
            began = time.monotonic()
            await held.create(held.names)
            size = claims * await object_bytes(plane.admin, RESOURCE_CLAIMS.path(held.names[0], namespace=_NAMESPACE))
            print(f"{claims} claims created in {time.monotonic() - began:.0f} s: {size / _MIB:.0f} MiB")
            before, log = await _bytes(plane), ClaimsLog(plane.audit.file)
            async with run.operator() as running:
                await _until_listed(plane, before)
                with_claims = running.memory()[0]
                async with background(held.change()):
                    await run.rollout(running, "mode change, 25 %", "25%", {"mode": "individual"})
                now, peak = running.memory()
            after = await _bytes(plane)
    lists, probes, watches = log.counts()
    sent, watched = after[0] - before[0], after[1] - before[1]
    print(
        f"\n{nodes} nodes, {claims} claims of {size / claims:.0f} bytes, {_CHANGES:.0f} changes of claims each second"
    )
    print(f"lists of all claims: {lists}, lists of one claim: {probes}, watches: {watches}")
    print(f"listed: {lists * size / _MIB:.0f} MiB, sent as {sent / _MIB:.1f} MiB; watched: {watched / _MIB:.1f} MiB")
    print(f"read: {(lists * size + watched) / size:.2f} times the size of all claims")
    print(f"memory: {without:.0f} MiB without claims, {with_claims:.0f} with claims, {now:.0f} after, {peak:.0f} peak")


class ClaimsLog:
    """The operator's requests for claims in the audit log, from now on."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._offset = file.stat().st_size

    def counts(self) -> tuple[int, int, int]:
        """How often all claims were listed, how often one of them, and how many watches were opened."""
        with self._file.open("rb") as log:
            log.seek(self._offset)
            begun = [json.loads(line)["requestURI"] for line in log if line.endswith(b"\n")]
        found = [urlsplit(uri) for uri in begun]
        queries = [parse_qs(uri.query) for uri in found if uri.path == RESOURCE_CLAIMS.path()]
        lists = [query for query in queries if "watch" not in query and "continue" not in query]
        probes = sum(query["limit"] == ["1"] for query in lists)
        # a watch is logged when it begins and when it ends
        watches = {(query["resourceVersion"][0], query["timeoutSeconds"][0]) for query in queries if "watch" in query}
        return len(lists) - probes, probes, len(watches)


async def _bytes(plane: Plane) -> tuple[float, float]:
    """What the API server has sent about claims since its start, by lists and by watches."""
    text = (await plane.admin.send("GET", "/metrics")).decode()
    listed, watched = (sum(float(value) for value in found.findall(text)) for found in (_LISTED, _WATCHED))
    return listed, watched


async def _until_listed(plane: Plane, before: tuple[float, float]) -> None:
    """Waits until the operator has listed claims, and has done nothing more for some seconds."""
    last = before[0]
    async with asyncio.timeout(300):
        while True:
            await asyncio.sleep(5)
            listed, _ = await _bytes(plane)
            if listed == last > before[0]:
                return
            last = listed


def main() -> None:
    """Runs the measurement."""
    parser = argparse.ArgumentParser(prog="make bench-claims", description=__doc__)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--claims", type=int, default=50_000)
    parsed = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="fleet-") as folder:
            asyncio.run(measure(parsed.nodes, parsed.claims, Path(folder)))
    except BenchError as error:
        sys.exit(f"bench-claims: {error}")


if __name__ == "__main__":
    main()
