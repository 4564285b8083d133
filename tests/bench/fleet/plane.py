"""The control plane: kube-apiserver and etcd with an audit log, and the chart's objects in it."""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml
from helm_chart import HOOK, NAMESPACE, Manifest, render
from lab.paths import Paths

from dracpu_api.resources import Json, JsonObject
from dracpu_sandbox.binaries import API_SERVER, ETCD, real
from fleet.api import Api
from fleet.audit import Audit
from fleet.errors import BenchError, RefusedError

OPERATOR: Final = "dracpu-operator"  # the chart's ServiceAccount
BARE: Final = "bare-client"

MISSING: Final = (
    "there are no kube-apiserver and etcd: run `make lab`, which builds them, or set KUBEBUILDER_ASSETS to a folder "
    "that has both, such as that of setup-envtest"
)
_TOKEN_SECONDS: Final = 24 * 3600
# the largest database that etcd recommends: its default of 2 GiB is too small for the versions of 15,000 nodes
_ETCD_BYTES: Final = 8 * 2**30
_LEFT_OUT: Final = frozenset({"Deployment", "Job"})  # nobody would run their pods


def assets() -> Path | None:
    """The folder with the programs; None when there is none."""
    named = os.environ.get("KUBEBUILDER_ASSETS")
    folder = Path(named) if named else Paths.default().bin
    return folder.resolve() if all((folder / name).is_file() for name in (ETCD, API_SERVER)) else None


@dataclass(frozen=True)
class Plane:
    """A running control plane with the chart's objects."""

    admin: Api
    audit: Audit
    folder: Path
    _kubeconfig: Json

    async def kubeconfig(self, account: str) -> JsonObject:
        """The kubeconfig of a ServiceAccount in the chart's namespace."""
        path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token"
        request = {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1"}
        answer = await self.admin.send("POST", path, {**request, "spec": {"expirationSeconds": _TOKEN_SECONDS}})
        token = json.loads(answer)["status"]["token"]
        return {**self._kubeconfig, "users": [{"name": "admin", "user": {"token": token}}]}


@contextlib.asynccontextmanager
async def control_plane(folder: Path) -> AsyncGenerator[Plane]:
    """Runs until the body ends. The chart's objects are there but for its workloads."""
    programs = assets()
    if programs is None:
        raise BenchError(MISSING)
    policy, log = folder / "audit-policy.yaml", folder / "audit.log"
    policy.write_text(yaml.safe_dump(_policy()))
    options: Mapping[str, Mapping[str, object]] = {
        API_SERVER: {"audit-policy-file": policy, "audit-log-path": log},
        ETCD: {"quota-backend-bytes": _ETCD_BYTES},
    }
    running = real(programs, folder / "control-plane", 0, programs=(ETCD, API_SERVER), options=options)
    async with running as plane, Api.of_kubeconfig(plane.kubeconfig) as admin:
        await _install(admin)
        yield Plane(admin, Audit(log), folder, plane.kubeconfig)


def _policy() -> JsonObject:
    """Logs what the operator and the bare client request. Both cost the API server the same."""
    users = [f"system:serviceaccount:{NAMESPACE}:{account}" for account in (OPERATOR, BARE)]
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata", "users": users, "omitManagedFields": True}, {"level": "None"}],
    }


async def _install(admin: Api) -> None:
    rendered = await asyncio.to_thread(render)
    account = {"kind": "ServiceAccount", "apiVersion": "v1", "metadata": {"name": BARE, "namespace": NAMESPACE}}
    rights = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": BARE},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": OPERATOR},
        "subjects": [{"kind": "ServiceAccount", "name": BARE, "namespace": NAMESPACE}],
    }
    for name in ("default", NAMESPACE):
        await _put(admin, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    for manifest in (*rendered.manifests, account, rights):
        if HOOK not in manifest["metadata"].get("annotations", {}) and manifest["kind"] not in _LEFT_OUT:
            await _put(admin, manifest)
    async with asyncio.timeout(30):
        await _until_served(admin)


async def _put(admin: Api, manifest: Manifest) -> None:
    group = manifest["apiVersion"]
    base = f"/apis/{group}" if "/" in group else f"/api/{group}"
    served = (await admin.read(base))["resources"]
    kind = next(item for item in served if item["kind"] == manifest["kind"] and "/" not in item["name"])
    namespace = manifest["metadata"].get("namespace", NAMESPACE)
    within = f"/namespaces/{namespace}" if kind["namespaced"] else ""
    await admin.apply(f"{base}{within}/{kind['name']}/{manifest['metadata']['name']}", manifest)


async def _until_served(admin: Api) -> None:
    """Waits, because the API server serves a new kind some moments after it has accepted the definition."""
    for plural in ("cpunodes", "cpudriverconfigs"):
        while True:
            try:
                await admin.read(f"/apis/dra.cpu/v1alpha1/{plural}")
                break
            except RefusedError:
                await asyncio.sleep(0.1)
