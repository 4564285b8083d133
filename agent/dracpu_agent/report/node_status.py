"""The CpuNode's status, as a function of the node and its conditions: what kubectl shows of the node."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from dracpu_agent.claims.cpu_claim import CpuClaim
from dracpu_agent.node import NodeState
from dracpu_agent.report.conditions import Condition
from dracpu_agent.topology.layout import layout
from dracpu_agent.topology.topology import Topology
from dracpu_api.conditions import NodeCondition, NodeReason, Phase

CLAIMS_SHOWN: Final = 256
SETTINGS_SHOWN: Final = 64  # of those that this agent does not know
_BESIDE_CPUS: Final = "memory"  # the field of what claims of memory hold, which claims of CPUs may have, too


def phase_of(node: NodeState, conditions: Iterable[Condition]) -> Phase:
    """One word for the PHASE column."""
    by_type = {condition.type: condition for condition in conditions}
    if by_type[NodeCondition.CONFIG_APPLIED].reason == NodeReason.REFUSED:
        return Phase.FAILED
    if node.settling:
        return Phase.SETTLING
    if node.spec is None or not by_type[NodeCondition.SLICES_PUBLISHED].true:
        return Phase.PENDING
    return Phase.DRAINING if node.draining() else Phase.READY


class TopologyDescription:
    """Describes the node's topology once after each change of it: that takes half a millisecond, a status less."""

    def __init__(self, node: NodeState) -> None:
        self._node = node
        self._topology: Topology | None = None
        self._description: dict[str, Any] = {}

    def current(self) -> dict[str, Any]:
        """The description of the present topology."""
        if self._node.topology is not self._topology:
            self._topology, self._description = self._node.topology, topology_of(self._node.topology)
        return self._description


def status_of(
    node: NodeState,
    conditions: Iterable[Condition],
    version: str,
    applied_revision: str = "",
    topology: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The whole status; the writer decides when to send it. `topology` is the description, if there is one already."""
    conditions = tuple(conditions)
    status: dict[str, Any] = {
        "phase": phase_of(node, conditions),
        "agentVersion": version,
        "topology": topology_of(node.topology) if topology is None else topology,
        "cpus": _cpus(node),
        "claims": _claims(node),
        "claimsTotal": len({claim.ref.uid for claim in node.all_claims()}),
        "conditions": [_condition(condition) for condition in conditions],
    }
    for driver in node.drivers():
        status |= driver.status()
    if applied_revision:
        status["appliedRevision"] = applied_revision
    ignored = node.spec.settings.ignored if node.spec else ()
    if ignored:  # absent otherwise, because the CRD of an older version does not have it
        status["ignoredSettings"] = list(ignored[:SETTINGS_SHOWN])
    runtime = node.containers.runtime
    if runtime.name:
        status["runtime"] = {"name": runtime.name, "version": runtime.version, "nri": runtime.nri}
    return status


def topology_of(topology: Topology) -> dict[str, Any]:
    """The machine: counts, and a compact layout of its CPUs."""
    return {
        "arch": topology.arch,
        "smt": topology.smt,
        "counts": {
            "sockets": len(topology.sockets),
            "numaNodes": len(topology.numa_nodes),
            "l3Groups": len(topology.l3_groups),
            "cores": len(topology.cores),
            "cpus": len(topology.cpus),
        },
        "layout": layout(topology),
    }


def _cpus(node: NodeState) -> Mapping[str, Any]:
    sets = {
        "reserved": node.cpus.reserved & node.topology.online,
        "exclusive": node.division.exclusive,
        "shared": node.division.shared,
    }
    return {
        **{name: str(cpus) for name, cpus in sets.items()},
        "counts": {name: len(cpus) for name, cpus in sets.items()},
    }


def _claims(node: NodeState) -> list[dict[str, str]]:
    """One entry for each claim, also for one that has devices of several drivers; `cpus` is empty where it has none."""
    refs = sorted({claim.ref for claim in node.all_claims()}, key=lambda ref: (ref.namespace, ref.name, ref.uid))
    return [
        {"namespace": ref.namespace, "name": ref.name, "uid": ref.uid, "cpus": "", **_held(node, ref.uid)}
        for ref in refs[:CLAIMS_SHOWN]
    ]


def _held(node: NodeState, uid: str) -> dict[str, str]:
    """The texts of a claim's grants, by their kind. A claim of CPUs may have memory beside them."""
    held: dict[str, str] = {}
    for claim in (claim for holding in node.holdings.values() if (claim := holding.get(uid)) is not None):
        if isinstance(claim, CpuClaim):
            held |= {"cpus": str(claim.cpus), **({_BESIDE_CPUS: str(claim.memory)} if claim.memory else {})}
        else:
            held[claim.kind] = ", ".join(filter(None, (held.get(claim.kind), claim.text(claim.grants))))
    return held


def _condition(condition: Condition) -> dict[str, str]:
    return {
        "type": condition.type,
        "status": "True" if condition.true else "False",
        "reason": condition.reason,
        "message": condition.message,
    }
