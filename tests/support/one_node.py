"""A simulated node beside a small API server: its real agent has settings, pods are bound to it by hand."""

import json
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from background import background
from fake_api import FakeApi
from nodes import NODE, claim_object, spec

from dracpu_api.settings import CpuNodeSpec, encode_spec
from dracpu_sandbox.machines.description import Machine
from dracpu_sandbox.machines.presets import LAB
from dracpu_sandbox.node.agents import AgentKind
from dracpu_sandbox.node.node import SimulatedNode
from dracpu_sandbox.node.pace import Pace

HASTE = replace(
    Pace(),
    pod_retry=0.05,
    pod_retry_most=0.05,
    health_retry=0.05,
    wipe=0.1,
    crash=0.05,
    agent_restart=0.1,
)
PINNED = "sandbox.dra.cpu/Pinned"


class OneNode:
    """What a test drives and looks at."""

    def __init__(self, api: FakeApi, node: SimulatedNode) -> None:
        self.api = api
        self.node = node

    def claim(self, number: int, results: Sequence[Mapping[str, Any]], *pods: str) -> None:
        """An allocated claim, reserved for these pods."""
        self.api.add("resourceclaims", claim_object(number, results, pods=pods), namespace="default")

    def pod(self, name: str, claims: Mapping[str, str] | None = None, **fields: Any) -> None:
        """A pod with one container `main` that is bound to the node; its UID is its name unless one is given."""
        container = {
            "name": "main",
            "image": "busybox",
            "command": fields.pop("command", []),
            "resources": {"claims": [{"name": in_pod} for in_pod in claims or {}]},
        }
        body = {
            "metadata": {"name": name, "namespace": "default", "uid": fields.pop("uid", name)},
            "spec": {
                "nodeName": NODE,
                "containers": [container],
                "resourceClaims": [{"name": k, "resourceClaimName": v} for k, v in (claims or {}).items()],
                **fields,
            },
            "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]},
        }
        self.api.add("pods", body, namespace="default")

    def status(self, pod: str) -> dict[str, Any]:
        """A pod's status; empty when there is no such pod."""
        return next((one["status"] for one in self.api.all("pods") if one["metadata"]["name"] == pod), {})

    def pinned(self, pod: str) -> str:
        """What the pod's status says of its containers' CPUs."""
        conditions = self.status(pod).get("conditions", ())
        return str(next((one.get("message", "") for one in conditions if one["type"] == PINNED), ""))

    def events(self, reason: str) -> list[str]:
        """What was told of pods under this reason."""
        return [one["note"] for one in self.api.all("events") if one["reason"] == reason]

    def devices(self) -> set[str]:
        """What is published."""
        return {one["name"] for it in self.api.all("resourceslices") for one in it["spec"].get("devices") or ()}

    def delete(self, pod: str) -> None:
        """As kubectl does: the kubelet has to end it first."""
        stamp = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
        self.api.edit("pods", f"default/{pod}", lambda one: one["metadata"].update(stamp))

    async def runs(self, *pods: str) -> None:
        """Waits until these pods are running, and their status says where."""
        await self.api.until(lambda: all(self.status(pod).get("phase") == "Running" for pod in pods))

    async def gone(self, pod: str) -> None:
        """Waits until a pod is gone."""
        await self.api.until(lambda: not self.status(pod))

    async def ready(self) -> None:
        """Waits until the agent's devices are published."""
        await self.api.until(lambda: self.api.get("cpunodes", NODE).get("status", {}).get("phase") == "Ready")


def kubeconfig(path: Path, url: str) -> Path:
    """A kubeconfig for a server without authentication."""
    config = {
        "current-context": "sandbox",
        "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox"}}],
        "clusters": [{"name": "sandbox", "cluster": {"server": url}}],
    }
    path.write_text(json.dumps(config))
    return path


@asynccontextmanager
async def one_node(
    settings: CpuNodeSpec | None = None, machine: Machine = LAB, agent: AgentKind = "task", pace: Pace = HASTE
) -> AsyncIterator[OneNode]:
    """A node that is up and ready."""
    with tempfile.TemporaryDirectory(prefix="n") as folder:
        async with FakeApi() as api:
            root = Path(folder)
            api.add("cpunodes", {"metadata": {"name": NODE}, "spec": encode_spec(settings or spec())})
            access = kubeconfig(root / "kubeconfig", api.url)
            node = SimulatedNode(NODE, machine, access, root / NODE, agent=agent, pace=pace)
            async with background(node.run()):
                await node.up.wait()
                world = OneNode(api, node)
                await world.ready()
                yield world
