"""The node's state as the document that `dracpu-agent state` prints, and as numbers for metrics."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dracpu_agent.claims.checkpoint import Checkpoint
from dracpu_agent.claims.cpu_claim import CpuClaim
from dracpu_agent.claims.held import HeldClaim
from dracpu_agent.node import NodeState
from dracpu_agent.observe.metrics import NodeGauges
from dracpu_agent.report.conditions import Condition
from dracpu_api.cpuset import EMPTY, union


def document_of(node: NodeState, conditions: Iterable[Condition]) -> dict[str, Any]:
    """The state of a running agent."""
    return {
        "node": node.node_name,
        "revision": node.spec.revision if node.spec else "",
        "reserved": str(node.cpus.reserved),
        "exclusive": str(node.division.exclusive),
        "shared": str(node.division.shared),
        "containers": {"total": len(node.containers), "pinned": node.containers.pinned()},
        "claims": [
            _claim(claim, held.driver.used(claim)) for held in node.holdings.values() for claim in held.values()
        ],
        "conditions": [
            {
                "type": condition.type,
                "status": condition.true,
                "reason": condition.reason,
                "message": condition.message,
            }
            for condition in conditions
        ],
    }


def document_of_checkpoint(checkpoint: Checkpoint) -> dict[str, Any]:
    """The state from the checkpoint of an agent that does not run; it has no containers and no shared CPUs."""
    named = checkpoint.spec.settings.reserved_cpus if checkpoint.spec else EMPTY
    return {
        "node": checkpoint.node,
        "revision": checkpoint.spec.revision if checkpoint.spec else "",
        "reserved": str(named | checkpoint.withheld),
        "exclusive": str(union(claim.cpus for claim in checkpoint.claims if isinstance(claim, CpuClaim))),
        "claims": [_claim(claim) for claim in checkpoint.claims],
        "conditions": [],
    }


def _claim(claim: HeldClaim[Any], used: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    return {
        "driver": claim.names.driver,
        "namespace": claim.ref.namespace,
        "name": claim.ref.name,
        "uid": claim.ref.uid,
        "holds": claim.text(claim.grants),
        "cpus": str(claim.cpus) if isinstance(claim, CpuClaim) else "",
        **({"used": list(used)} if used else {}),
        "state": "frozen" if claim.frozen else "lingering" if claim.lingering else "held",
        "requests": {request: claim.text(claim.grants_of(request)) for request in claim.requests},
    }


def gauges_of(node: NodeState) -> NodeGauges:
    """The node in numbers."""
    held, reserved = node.division.exclusive, node.cpus.reserved & node.topology.online
    return NodeGauges(
        allocated=len(held),
        available=len(node.topology.online - reserved - held),
        reserved=len(reserved),
    )
