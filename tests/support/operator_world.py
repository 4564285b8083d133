"""A fake cluster for the operator, with nodes, configs and claims as users and other controllers create them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fake_agents import FakeAgents
from fake_api import FakeApi, JsonObject
from running_operator import QUICK, RunningOperator

from dracpu_operator.intervals import Intervals


class World:
    """A cluster that does not run an operator yet."""

    def __init__(self, api: FakeApi, agents: FakeAgents, folder: Path) -> None:
        self.api = api
        self.agents = agents
        self._folder = folder

    def operator(self, intervals: Intervals = QUICK, *, namespace: str = "") -> RunningOperator:
        return RunningOperator(self.api.url, self._folder, intervals, namespace=namespace)

    def node(self, name: str, **labels: str) -> None:
        metadata = {"name": name, "labels": {"kubernetes.io/os": "linux", **labels}}
        self.api.add("nodes", {"apiVersion": "v1", "kind": "Node", "metadata": metadata})

    def nodes(self, count: int) -> None:
        for number in range(count):
            self.node(f"n{number}")

    def config(self, name: str = "all", **spec: Any) -> None:
        metadata = {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z"}
        body = {"apiVersion": "dra.cpu/v1alpha1", "kind": "CpuDriverConfig", "metadata": metadata, "spec": spec}
        self.api.add("cpudriverconfigs", body)

    def edit(self, name: str = "all", **spec: Any) -> None:
        self.api.edit("cpudriverconfigs", name, lambda body: body["spec"].update(spec))

    def specs(self) -> dict[str, JsonObject]:
        return {raw["metadata"]["name"]: raw["spec"] for raw in self.api.all("cpunodes")}

    def having(self, **settings: Any) -> set[str]:
        """Returns the nodes whose CpuNode has these settings."""
        return {name for name, spec in self.specs().items() if settings.items() <= spec["settings"].items()}

    def reached(self, count: int) -> bool:
        return len(self.having(mode="individual")) >= count

    def claim(self, name: str, device: str, cpus: int | None = None, node: str = "n0", size: str = "") -> str:
        """Allocates a claim as the scheduler does, of CPUs or a size of memory; returns its UID."""
        result: JsonObject = {"driver": "dra.memory" if size else "dra.cpu", "pool": node, "device": device}
        if size:
            result["consumedCapacity"] = {"size": size}
        elif cpus is not None:
            result["consumedCapacity"] = {"dra.cpu/cpu": str(cpus)}
        foreign = {"driver": "dra.net", "pool": node, "device": "eth0"}
        status = {"allocation": {"devices": {"results": [result, foreign]}}}
        made = self.api.add("resourceclaims", {"metadata": {"name": name}, "status": status}, namespace="default")
        return str(made["metadata"]["uid"])

    def outstanding(self, node: str = "n0") -> set[str]:
        """Returns the names of the claims that a CpuNode lists."""
        return {claim["name"] for claim in self.specs()[node].get("outstanding", ())}

    def revision(self, node: str = "n0") -> str:
        return str(self.specs()[node]["revision"])

    def status(self, name: str = "all") -> JsonObject:
        return dict(self.api.get("cpudriverconfigs", name).get("status") or {})

    def condition(self, kind: str, name: str = "all") -> JsonObject:
        return next((found for found in self.status(name).get("conditions", ()) if found["type"] == kind), {})

    async def until(self, condition: Callable[[], object]) -> None:
        await self.api.until(condition, seconds=20)

    async def applied(self, count: int, name: str = "all") -> None:
        """Waits until the status reports that `count` nodes have applied the current spec."""
        await self.until(lambda: self._reports(name, count))

    def _reports(self, name: str, count: int) -> bool:
        config = self.api.get("cpudriverconfigs", name)
        status = config.get("status") or {}
        present = status.get("observedGeneration") == config["metadata"]["generation"]
        return bool(present and status["nodes"]["applied"] == count)
