"""Builds records of Nodes, configs and CpuNodes from objects like those of the API server."""

from typing import Any

from dracpu_api.settings import OutstandingClaim
from dracpu_operator.decide.records import Config, CpuNode, Node
from dracpu_operator.known.read import read_config, read_cpu_node, read_node


def node(name: str, *, uid: str = "", **labels: str) -> Node:
    """Returns a Linux node."""
    metadata = {"name": name, "uid": uid or f"uid-{name}", "resourceVersion": "1"}
    return read_node({"metadata": {**metadata, "labels": {"kubernetes.io/os": "linux", **labels}}})


def config(name: str = "all", *, created: str = "2026-01-01T00:00:00Z", status: Any = None, **spec: Any) -> Config:
    """Returns a CpuDriverConfig with these fields in its spec."""
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": "1", "generation": 3}
    return read_config({"metadata": {**metadata, "creationTimestamp": created}, "spec": spec, "status": status})


def settings(**fields: Any) -> dict[str, Any]:
    """Returns settings in the form of a CpuNode's spec."""
    wanted = config(**fields).wanted
    assert wanted is not None
    return {"mode": wanted.settings.mode, "groupBy": wanted.settings.group_by, "reservedCPUs": ""}


def cpu_node(
    name: str,
    *,
    given: str = "r1",
    applied: str | None = "r1",
    phase: str | None = "Ready",
    owner: str | None = "",
    follows: str = "all",
    generation: int = 2,
    failure: str = "",
    outstanding: tuple[OutstandingClaim, ...] = (),
    settings: dict[str, Any] | None = None,
    created: str = "2026-01-01T00:00:00Z",
    troubles: dict[str, tuple[str, str]] | None = None,
) -> CpuNode:
    """Returns a CpuNode with 8 CPUs, of which one is reserved and two are held. `troubles` are the conditions that are
    False, each with its message and its time."""
    claims = [
        {
            "uid": c.uid,
            "namespace": c.namespace,
            "name": c.name,
            "devices": [
                {"name": d.name, "cpus": d.cpus, "driver": d.driver, "amounts": dict(d.amounts)} for d in c.devices
            ],
        }
        for c in outstanding
    ]
    metadata: dict[str, Any] = {"name": name, "uid": f"cpu-{name}", "resourceVersion": "1", "generation": generation}
    metadata["creationTimestamp"] = created
    if owner is not None:
        metadata["ownerReferences"] = [{"kind": "Node", "name": name, "uid": owner or f"uid-{name}"}]
    status: dict[str, Any] = {}
    if phase:
        condition = {"type": "ConfigApplied", "status": "False" if failure else "True", "message": failure}
        others = [
            {"type": kind, "status": "False", "message": words, "lastTransitionTime": since}
            for kind, (words, since) in (troubles or {}).items()
        ]
        status = {
            "phase": phase,
            "topology": {"counts": {"cpus": 8}},
            "cpus": {"reserved": "0", "exclusive": "2-3", "shared": "1,4-7"},
            "conditions": [condition, *others],
        }
        if applied:
            status["appliedRevision"] = applied
    wanted = config().wanted
    revision = wanted.revision if wanted else ""
    spec = {
        "config": {"name": follows, "generation": 1},
        # another revision stands for other settings
        "settings": {"reservedCPUs": "" if given == revision else "7"} if settings is None else settings,
        "revision": given,
        "outstanding": claims,
    }
    return read_cpu_node({"metadata": metadata, "spec": spec, "status": status})
