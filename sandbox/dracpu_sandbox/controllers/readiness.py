"""Nodes that are not ready bear a taint, so that no pods are sent there."""

from collections.abc import Iterable
from functools import partial
from typing import Any, ClassVar, Final

from dracpu_sandbox.controllers.controller import Cluster, Controller, Duty
from dracpu_sandbox.resources import NODES, JsonObject

NOT_READY: Final = "node.kubernetes.io/not-ready"
UNREACHABLE: Final = "node.kubernetes.io/unreachable"


class NodeTainter(Controller):
    """Taints by the condition Ready. Leases are not looked at, and running pods stay."""

    name: ClassVar[str] = "node-controller"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, cluster.nodes)

    def duties(self) -> Iterable[Duty]:
        for node in self.cluster.nodes.all():
            if (node.get("spec") or {}).get("taints", []) != taints_of(node):
                yield partial(self._taint, node)

    async def _taint(self, node: JsonObject) -> None:
        spec = {**(node.get("spec") or {}), "taints": taints_of(node)}
        typed = {"apiVersion": NODES.api_version, "kind": NODES.kind, **node, "spec": spec}
        self.cluster.nodes.wrote(await self.cluster.client.replace(NODES, typed))


def taints_of(node: JsonObject) -> list[Any]:
    """The taints that a node should have: its own, and one when it is not ready."""
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = next((one["status"] for one in conditions if one["type"] == "Ready"), "")
    wanted = {"False": NOT_READY, "Unknown": UNREACHABLE}.get(ready, "")
    taints = (node.get("spec") or {}).get("taints") or ()
    ours = {NOT_READY, UNREACHABLE} - {wanted}
    kept = [one for one in taints if one["key"] not in ours or one["effect"] != "NoSchedule"]
    if wanted and not any(one["key"] == wanted for one in kept):
        kept.append({"key": wanted, "effect": "NoSchedule"})
    return kept
