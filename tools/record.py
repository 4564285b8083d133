"""Records anew everything that the repository keeps of a real Kubernetes, for a version that is named.

make record ARGS=v1.37.1        with the binaries in $KUBEBUILDER_ASSETS, or else with those that `make lab` has built

It starts etcd, kube-apiserver and then kube-scheduler on loopback and writes
- sandbox/dracpu_sandbox/apiserver/kinds/builtin.json, the description of the built-in kinds (record_kinds.py),
- tests/support/recorded/*.jsonl, the answers to the questions that these files hold (scheduler.jsonl: those of
  kube-scheduler, see record_scheduler.py),
- tests/vectors, the answers of the kubelet's CPU manager (record_vectors.py, which needs Go).
"""

import argparse
import asyncio
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import aiohttp
import corpus_files
import record_kinds
import record_scheduler
import record_vectors
from lab.errors import LabError
from lab.paths import Paths
from lab.versions import Versions
from record_errors import RecordError
from recorded_answers import FOLDER, Recorded, definitions, lines

from dracpu_agent.cluster.access import from_kubeconfig
from dracpu_sandbox.apiserver.kinds import schemas
from dracpu_sandbox.binaries import API_SERVER, ETCD, SCHEDULER, real
from dracpu_sandbox.errors import SandboxError

JsonObject = dict[str, Any]

KINDS_FILE: Final = Path(schemas.__file__).with_name("builtin.json")
_SERVERS: Final = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "namespace")
_CONSEQUENCE: Final = "some validation rules were not checked"  # a cause that only says that there are others
_SERVED_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.1
_DELETE_NOW: Final = {"gracePeriodSeconds": "0"}


class Api:
    """A real API server."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._collections: dict[str, str] = {}  # plural -> the path of its objects

    async def call(self, method: str, path: str, body: Any = None, **query: str) -> tuple[int, JsonObject]:
        """The code and the document that answer a request."""
        async with self._session.request(method, path, json=body, params=query) as answer:
            text = await answer.text()
            return answer.status, json.loads(text) if answer.content_type == "application/json" else {"message": text}

    async def get(self, path: str) -> JsonObject:
        """The document at a path."""
        code, document = await self.call("GET", path)
        if code != 200:
            raise RecordError(f"GET {path} is answered with {code}: {document.get('message')}")
        return document

    async def good(self, method: str, path: str, body: Any = None, **query: str) -> JsonObject:
        """The document that answers a request which has to succeed."""
        code, document = await self.call(method, path, body, **query)
        if code >= 300:
            raise RecordError(f"{method} {path} is answered with {code}: {document.get('message')}")
        return document

    async def learn(self, kinds: list[JsonObject]) -> None:
        """Defines the custom kinds, and remembers where the objects of all kinds are."""
        for kind in kinds:
            if (kind["group"], kind["plural"]) != ("", "events"):
                self._learn(kind["group"], kind["version"], kind["plural"], namespaced=kind["namespaced"])
        crds = self._collections["customresourcedefinitions"]
        for definition in definitions():
            await self.good("POST", crds, definition)
            spec = definition["spec"]
            plural, namespaced = spec["names"]["plural"], spec["scope"] == "Namespaced"
            self._learn(spec["group"], spec["versions"][0]["name"], plural, namespaced=namespaced)
            await self._until_served(self._collections[plural])

    def _learn(self, group: str, version: str, plural: str, *, namespaced: bool) -> None:
        root = f"/apis/{group}/{version}" if group else f"/api/{version}"
        self._collections[plural] = f"{root}{'/namespaces/default' if namespaced else ''}/{plural}"

    async def _until_served(self, path: str) -> None:
        """A kind is served some moments after its definition was accepted."""
        async with asyncio.timeout(_SERVED_SECONDS):
            while True:
                code, _ = await self.call("GET", path)
                if code == 200:
                    return
                await asyncio.sleep(_LOOK_SECONDS)

    async def ask(self, question: Recorded) -> JsonObject:
        """The server's answer: the object as it would store it, or the code and the fields that are wrong."""
        place = self._collections[question.kind]
        tried = {"dryRun": "All", "fieldValidation": question.validation}
        if question.old is None:
            return _answer(*await self.call("POST", place, question.new, **tried))
        live = await self.good("POST", place, question.old)
        one = f"{place}/{live['metadata']['name']}"
        try:
            if question.old_status is not None:
                live = await self.good("PUT", f"{one}/status", {**live, "status": question.old_status})
            version = {"resourceVersion": live["metadata"]["resourceVersion"]}
            new = {**question.new, "metadata": {**question.new["metadata"], **version}}
            path = f"{one}/{question.subresource}" if question.subresource else one
            return _answer(*await self.call("PUT", path, new, **tried))
        finally:
            await self.good("DELETE", one, **_DELETE_NOW)


def _answer(code: int, document: JsonObject) -> JsonObject:
    if code < 300:
        metadata = {key: value for key, value in document["metadata"].items() if key not in _SERVERS}
        return {"stored": {**document, "metadata": metadata}}
    causes = (document.get("details") or {}).get("causes") or ()
    fields = {cause["field"] for cause in causes if _CONSEQUENCE not in cause["message"]}
    return {"code": code, "fields": sorted(fields)}


async def answered(api: Api, name: str) -> list[JsonObject]:
    """The questions of a file with the answers of this server."""
    return [{**entry, "answer": await api.ask(Recorded(**entry))} for entry in lines(name)]


async def corpus(api: Api) -> list[JsonObject]:
    """The server's answers to the objects in tests/support/corpus."""
    plurals = {
        definition["spec"]["names"]["kind"]: definition["spec"]["names"]["plural"] for definition in definitions()
    }
    entries = []
    for case in corpus_files.good() + corpus_files.bad():
        sent = Recorded(case.what, plurals[case.object["kind"]], case.object, {}, validation="Strict")
        answer = await api.ask(sent)
        kept = {"spec": answer["stored"].get("spec")} if "stored" in answer else answer
        entries.append({"what": str(case), **kept})
    return entries


async def record(version: str, assets: Path) -> None:
    """Writes what the API server answers; nothing, when a part of it cannot be recorded."""
    async with _api(assets, ETCD, API_SERVER) as api:
        running = (await api.get("/version"))["gitVersion"]
        if running != version:
            raise RecordError(f"kube-apiserver in {assets} is {running}, not {version}")
        described = await record_kinds.describe(api.get, version)
        await api.learn(json.loads(described)["kinds"])
        entries = {name: await answered(api, name) for name in ("builtin", "custom")}
        entries["corpus"] = await corpus(api)
    async with _api(assets, ETCD, API_SERVER, SCHEDULER) as api:
        entries["scheduler"] = await record_scheduler.answered(api.good)
    KINDS_FILE.write_text(described)
    for name, found in entries.items():
        (FOLDER / f"{name}.jsonl").write_text("".join(_lines(found)))
        sys.stdout.write(f"{name}.jsonl: {len(found)} answers\n")


def _lines(entries: list[JsonObject]) -> Iterator[str]:
    for entry in entries:
        yield f"{json.dumps(entry, ensure_ascii=False)}\n"


@contextlib.asynccontextmanager
async def _api(assets: Path, *names: str) -> AsyncIterator[Api]:
    with tempfile.TemporaryDirectory() as folder:
        programs = Path(folder) / "programs"  # these alone: others would change what is asked about
        programs.mkdir()
        for name in names:
            (programs / name).symlink_to(assets / name)
        async with real(programs, Path(folder) / "run", 0) as control_plane:
            kubeconfig = Path(folder) / "kubeconfig"
            kubeconfig.write_text(json.dumps(control_plane.kubeconfig))
            access = from_kubeconfig(kubeconfig)
            headers: Mapping[str, str] = {"Authorization": f"Bearer {access.token()}"} if access.token else {}
            connector = aiohttp.TCPConnector(ssl=access.tls() if access.tls else True)
            async with aiohttp.ClientSession(access.server, headers=headers, connector=connector) as session:
                yield Api(session)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", help="the version of Kubernetes, which the binaries have to have: v1.37.1")
    try:
        version = parser.parse_args().version
        built = Paths.default(Versions(kubernetes=version)).bin
        assets = Path(os.environ.get("KUBEBUILDER_ASSETS") or built).resolve()
        asyncio.run(record(version, assets))
        sys.stdout.write(f"tests/vectors: {record_vectors.record(version)} answers\n")
    except (LabError, RecordError, SandboxError) as error:
        sys.exit(f"record: {error}")


if __name__ == "__main__":
    main()
