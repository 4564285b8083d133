"""Runs one simulated node with a real agent and a small API server; tests bind pods to the node themselves."""

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
from dracpu_sandbox.node.delays import Delays
from dracpu_sandbox.node.node import SimulatedNode

HASTE = replace(
    Delays(),
    prepare_retry=(0.05, 0.05),
    pod_retry=0.05,
    pod_retry_most=0.05,
    health_retry=0.05,
    wipe=0.1,
    crash=0.05,
    agent_restart=0.1,
)
PINNED = "sandbox.dra.cpu/Pinned"


class OneNode:
    """The node and its API server, with methods to change and read the objects of the node."""

    def __init__(self, api: FakeApi, node: SimulatedNode) -> None:
        self.api = api
        self.node = node

    def claim(self, number: int, results: Sequence[Mapping[str, Any]], *pods: str) -> None:
        """Adds an allocated claim that is reserved for these pods."""
        self.api.add("resourceclaims", claim_object(number, results, pods=pods), namespace="default")

    def pod(self, name: str, claims: Mapping[str, str] | None = None, **fields: Any) -> None:
        """Adds a pod that is bound to the node and has one container, `main`; its UID is its name by default.

        `status` is added to the pod's status, all other fields to its spec.
        """
        status = fields.pop("status", {})
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
            "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}], **status},
        }
        self.api.add("pods", body, namespace="default")

    def status(self, pod: str) -> dict[str, Any]:
        """Returns a pod's status, or an empty one when the pod does not exist."""
        return next((item["status"] for item in self.api.all("pods") if item["metadata"]["name"] == pod), {})

    def pinned(self, pod: str) -> str:
        """Returns the message of the condition that reports the CPUs of the pod's containers."""
        conditions = self.status(pod).get("conditions", ())
        return str(next((entry.get("message", "") for entry in conditions if entry["type"] == PINNED), ""))

    def events(self, reason: str) -> list[str]:
        """Returns the notes of all Events with this reason."""
        return [event["note"] for event in self.api.all("events") if event["reason"] == reason]

    def devices(self) -> set[str]:
        """Returns the names of the published devices."""
        slices = self.api.all("resourceslices")
        return {device["name"] for item in slices for device in item["spec"].get("devices") or ()}

    def delete(self, pod: str) -> None:
        """Marks a pod as deleted, as kubectl does; it disappears when the kubelet has ended its containers."""
        stamp = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
        self.api.edit("pods", f"default/{pod}", lambda item: item["metadata"].update(stamp))

    async def runs(self, *pods: str) -> None:
        """Waits until the status of these pods reports them as running."""
        await self.api.until(lambda: all(self.status(pod).get("phase") == "Running" for pod in pods))

    async def gone(self, pod: str) -> None:
        """Waits until a pod is deleted."""
        await self.api.until(lambda: not self.status(pod))

    async def ready(self) -> None:
        """Waits until the agent reports the phase Ready."""
        await self.api.until(lambda: self.api.get("cpunodes", NODE).get("status", {}).get("phase") == "Ready")


def kubeconfig(path: Path, url: str) -> Path:
    """Writes a kubeconfig for a server without authentication."""
    config = {
        "current-context": "sandbox",
        "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox"}}],
        "clusters": [{"name": "sandbox", "cluster": {"server": url}}],
    }
    path.write_text(json.dumps(config))
    return path


@asynccontextmanager
async def one_node(
    settings: CpuNodeSpec | None = None, machine: Machine = LAB, agent: AgentKind = "task", delays: Delays = HASTE
) -> AsyncIterator[OneNode]:
    """Starts a node and its API server, and waits until the node is ready."""
    with tempfile.TemporaryDirectory(prefix="n") as folder:
        async with FakeApi() as api:
            root = Path(folder)
            api.add("cpunodes", {"metadata": {"name": NODE}, "spec": encode_spec(settings or spec())})
            access = kubeconfig(root / "kubeconfig", api.url)
            node = SimulatedNode(NODE, machine, access, root / NODE, agent=agent, delays=delays)
            async with background(node.run()):
                await node.up.wait()
                world = OneNode(api, node)
                await world.ready()
                yield world
