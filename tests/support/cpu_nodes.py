"""Builds CpuNodes with the status that agents write, for tests of the views that are drawn from them."""

from collections.abc import Mapping
from typing import Any

from machine_answers import topology_of

from dracpu_agent.topology.layout import layout
from dracpu_api.cpuset import EMPTY, CpuSet, union
from dracpu_sandbox.machines.description import Machine


def cpu_node(
    machine: Machine,
    claims: Mapping[str, str] | None = None,
    *,
    name: str = "node-1",
    reserved: CpuSet | None = None,
    held: CpuSet = EMPTY,
    **status: Any,
) -> dict[str, Any]:
    """Builds a CpuNode with these claims, a cpuset by name; `held` are exclusive CPUs of claims that are not listed."""
    topology = topology_of(machine)
    reserved = topology.cores[topology.cpus[0].core] if reserved is None else reserved
    exclusive = union([held, *(CpuSet.parse(cpus) for cpus in (claims or {}).values())])
    shared = topology.online - reserved - exclusive
    return {
        "metadata": {"name": name},
        "spec": {"settings": {"mode": "grouped", "groupBy": "numanode"}},
        "status": {
            "phase": "Ready",
            "topology": {"layout": layout(topology)},
            "cpus": {"reserved": str(reserved), "exclusive": str(exclusive), "shared": str(shared)},
            "claims": [
                {"namespace": "default", "name": claim, "uid": f"uid-{claim}", "cpus": cpus}
                for claim, cpus in (claims or {}).items()
            ],
            "claimsTotal": len(claims or {}),
            "conditions": [],
        }
        | status,
    }
