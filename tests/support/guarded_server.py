"""A real API server that has the chart's roles and admission policies, and clients with the tokens of agents.

There are two nodes with an agent each, and no component but etcd and the API server: nothing but the requests of a test
changes an object.
"""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
from api_caller import PATCHES, Answered
from helm_chart import NAMESPACE, Manifest, render
from lab.paths import Paths
from lab.programs import programs_of
from lab.versions import default_gates

from dracpu_agent.cluster.access import ApiAccess
from dracpu_agent.cluster.client import ApiClient
from dracpu_sandbox.binaries import real
from dracpu_sandbox.controlplane import ControlPlane

ACCOUNT: Final = "dracpu-agent"
USER: Final = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
NODE_OF_TOKEN: Final = "authentication.kubernetes.io/node-name"
NODES: Final = ("node-a", "node-b")
SLICES: Final = "/apis/resource.k8s.io/v1/resourceslices"
CLAIMS: Final = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"
POLICIES: Final = f"{ADMISSION}/validatingadmissionpolicies"

_COLLECTIONS: Final = {
    "ClusterRole": f"{RBAC}/clusterroles",
    "ClusterRoleBinding": f"{RBAC}/clusterrolebindings",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "ServiceAccount": f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts",
    "ValidatingAdmissionPolicy": POLICIES,
    "ValidatingAdmissionPolicyBinding": f"{ADMISSION}/validatingadmissionpolicybindings",
}
# starts a program with its arguments, without the replaced one, and with further ones
_STARTER: Final = """#!/bin/sh
for word; do shift; case $word in {replaced}) ;; *) set -- "$@" "$word" ;; esac; done
exec {file} "$@" {added}
"""


class Client:
    """Sends requests as one user."""

    def __init__(self, session: aiohttp.ClientSession, headers: Mapping[str, str]) -> None:
        self._session = session
        self._headers = headers

    def with_headers(self, headers: Mapping[str, str]) -> "Client":
        """Returns a client with other credentials, or one that asks the API server to take it for another user."""
        return Client(self._session, {**self._headers, **headers})

    async def call(self, method: str, path: str, body: Any = None, how: str = "", **query: str) -> Answered:
        """Sends a request; `how` is the kind of a patch. A text is sent as it is."""
        content_type = PATCHES[how] if how else "application/json"
        headers = {**self._headers, "Content-Type": content_type}
        data = body if body is None or isinstance(body, str) else json.dumps(body, separators=(",", ":"))
        async with self._session.request(method, path, params=query, data=data, headers=headers) as answer:
            text = await answer.text()
            is_json = answer.content_type == "application/json"
            return Answered(answer.status, json.loads(text) if is_json else text)

    async def good(self, method: str, path: str, body: Any = None, how: str = "", **query: str) -> Any:
        """Sends a request that must succeed, and returns the answer."""
        answered = await self.call(method, path, body, how, **query)
        assert answered.code < 300, answered.body
        return answered.body

    async def refused(self, method: str, path: str, body: Any = None, how: str = "", **query: str) -> str:
        """Sends a request that must be refused, and returns the message."""
        answered = await self.call(method, path, body, how, **query)
        assert answered.code in {403, 422}, answered
        return str(answered.body["message"])


@dataclass(frozen=True, slots=True)
class Guarded:
    """The API server and its users."""

    url: str
    tls: ssl.SSLContext
    admin: Client
    tokens: Mapping[str, str]  # node -> the token of its agent; for "" one that is bound to no pod

    def holder(self, node: str) -> Client:
        """Returns a client with the token of a node's agent and so with the rights that the chart gives to it."""
        return self.admin.with_headers({"Authorization": f"Bearer {self.tokens[node]}"})

    def unlimited(self, node: str) -> Client:
        """Returns a client that the API server takes for a node's agent, and whose requests RBAC never refuses, so that
        nothing but the policies can refuse them."""
        impersonated = {"Impersonate-User": USER, "Impersonate-Group": "system:masters"}
        if node:
            impersonated[f"Impersonate-Extra-{NODE_OF_TOKEN.replace('/', '%2f')}"] = node
        return self.admin.with_headers(impersonated)

    @contextlib.asynccontextmanager
    async def agent(self, node: str) -> AsyncIterator[ApiClient]:
        """Runs the agent's own client with the token of a node's agent."""
        access = ApiAccess(self.url, tls=lambda: self.tls, token=lambda: self.tokens[node])
        async with ApiClient(access, version="test") as client:
            yield client

    async def slices(self) -> list[Any]:
        """Returns all ResourceSlices."""
        listed = await self.admin.good("GET", SLICES)
        return list(listed["items"])

    async def claim(self, name: str) -> Any:
        """Returns a claim of the namespace `default`."""
        return await self.admin.good("GET", f"{CLAIMS}/{name}")


@contextlib.asynccontextmanager
async def guarded_server(folder: Path, *, options: str = "", controllers: bool = False) -> AsyncIterator[Guarded]:
    """Starts the programs that the lab has built, and installs the parts of the chart that confine agents.

    `options` are further ones of the API server. With `controllers`, the controller manager checks types in policies.
    """
    run = folder / "run"
    async with (
        real(assets(folder, options, controllers=controllers), run, 0) as plane,
        admin_of(plane, run) as admin,
    ):
        await _install(admin)
        tokens = {node: await _token(admin, node) for node in ("", *NODES)}
        guarded = Guarded(_address(plane), _trust(run), admin, tokens)
        await _until_guarded(guarded)
        yield guarded


@contextlib.asynccontextmanager
async def admin_of(plane: ControlPlane, run: Path) -> AsyncIterator[Client]:
    """Opens the administrator's client of a control plane that runs in a folder."""
    connector = aiohttp.TCPConnector(ssl=_trust(run))
    async with aiohttp.ClientSession(_address(plane), connector=connector) as session:
        yield Client(session, {"Authorization": f"Bearer {plane.kubeconfig['users'][0]['user']['token']}"})


def _address(plane: ControlPlane) -> str:
    return str(plane.kubeconfig["clusters"][0]["cluster"]["server"])


def _trust(run: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(run / "tls.crt"))


def assets(folder: Path, options: str = "", *, controllers: bool = False) -> Path:
    """Makes a folder with scripts that start the programs of the lab's versions, the API server with `options`."""
    wanted = {"etcd", "kube-apiserver"} | ({"kube-controller-manager"} if controllers else set())
    paths = Paths.default()
    files = {program.name: program.file(paths) for program in programs_of(paths.versions) if program.name in wanted}
    gates = f"--feature-gates={default_gates()}" if default_gates() else ""
    made = folder / "assets"
    made.mkdir(parents=True)
    for name, file in files.items():
        assert file.exists(), f"{file} is missing: run `make lab`"
        added = f"{gates} {options}" if name == "kube-apiserver" else ""
        replaced = "--authorization-mode=*" if "--authorization-config" in added else "none"
        script = made / name
        script.write_text(_STARTER.format(file=file, added=added, replaced=replaced))
        script.chmod(0o755)
    return made


async def _install(admin: Client) -> None:
    await admin.good("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    for manifest in render().manifests:
        if _confines_agents(manifest):
            await admin.good("POST", _COLLECTIONS[manifest["kind"]], manifest)
    for node in NODES:
        await admin.good("POST", "/api/v1/nodes", {"metadata": {"name": node}})
        spec = {"nodeName": node, "serviceAccountName": ACCOUNT, "containers": [{"name": "agent", "image": "none"}]}
        pod = {"metadata": {"name": f"agent-{node}"}, "spec": spec}
        await admin.good("POST", f"/api/v1/namespaces/{NAMESPACE}/pods", pod)


def _confines_agents(manifest: Manifest) -> bool:
    kind, name = manifest["kind"], manifest["metadata"]["name"]
    return kind == "CustomResourceDefinition" or (kind in _COLLECTIONS and name.startswith(ACCOUNT))


async def _token(admin: Client, node: str) -> str:
    bound = {}
    if node:
        pod = await admin.good("GET", f"/api/v1/namespaces/{NAMESPACE}/pods/agent-{node}")
        uid = pod["metadata"]["uid"]
        bound = {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": pod["metadata"]["name"], "uid": uid}}
    path = f"{_COLLECTIONS['ServiceAccount']}/{ACCOUNT}/token"
    answer = await admin.good("POST", path, {"spec": {"audiences": [], **bound}})
    return str(answer["status"]["token"])


async def _until_guarded(guarded: Guarded) -> None:
    """Waits until the API server applies the roles and each policy, which takes it some moments."""
    a, b = NODES
    pool = {"name": a, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "other.example", "nodeName": a, "pool": pool}
    forged = {"metadata": {"generateName": "forged-"}, "spec": spec}
    claim = {"metadata": {"name": "free"}, "spec": {"devices": {"requests": []}}}
    await guarded.admin.good("POST", CLAIMS, claim)
    settings = {"config": {"name": "default", "generation": 1}, "settings": {}, "revision": "1"}
    cpu_node = {"apiVersion": "dra.cpu/v1alpha1", "kind": "CpuNode", "metadata": {"name": b}, "spec": settings}
    probes = {
        "dracpu-agent-own-slices": ("POST", SLICES, forged),
        "dracpu-agent-own-claims": ("PATCH", f"{CLAIMS}/free/status", {"metadata": {"labels": {"a": "b"}}}),
        "dracpu-agent-own-cpunode": ("POST", "/apis/dra.cpu/v1alpha1/cpunodes", cpu_node),
    }
    unlimited, holder = guarded.unlimited(a), guarded.holder(a)

    async def has_rights() -> bool:
        return (await holder.call("GET", SLICES)).code == 200

    await eventually(has_rights)
    for policy, (method, path, body) in probes.items():

        async def is_in_force(policy: str = policy, method: str = method, path: str = path, body: Any = body) -> bool:
            how = "merge" if method == "PATCH" else ""
            return policy in str((await unlimited.call(method, path, body, how, dryRun="All")).body)

        await eventually(is_in_force)


async def eventually(condition: Callable[[], Awaitable[bool]], seconds: float = 20.0) -> None:
    """Waits until a condition holds that only requests can show."""
    async with asyncio.timeout(seconds):
        while True:
            if await condition():
                return
            await asyncio.sleep(0.1)
