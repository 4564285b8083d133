"""Which claims still hold CPUs when the driver is about to be uninstalled. Pure: objects in, holders out.

A claim holds CPUs while it is allocated. A node may hold CPUs for longer, while containers outlive their claim: only
its CpuNode shows that. The answer is about the moment of the lists: nothing keeps the scheduler from allocating another
claim before helm has deleted the agents.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from dracpu_api.resources import Json
from dracpu_operator.decide.outstanding import results_of


@dataclass(frozen=True, slots=True, order=True)
class Holder:
    """A claim that holds CPUs of a node."""

    node: str
    namespace: str
    name: str
    uid: str
    pods: tuple[str, ...] = ()
    cpus: str | None = None  # None: the claim is allocated; otherwise the CPUs that it holds without an allocation

    def __str__(self) -> str:
        claim = f"{self.namespace}/{self.name} on node {self.node}"
        if self.cpus is not None:
            return f"{claim}: CPUs {self.cpus} are still held, though the claim is not allocated any more"
        return f"{claim}: used by {', '.join(self.pods) or 'no pod'}"


def holders_of_claim(claim: Json) -> list[Holder]:
    """One holder for each node on which a ResourceClaim is allocated."""
    metadata = claim["metadata"]
    consumers = (claim.get("status") or {}).get("reservedFor") or ()
    pods = tuple(_consumer(consumer) for consumer in consumers)
    nodes = sorted({result["pool"] for result in results_of(claim)})
    return [Holder(node, metadata["namespace"], metadata["name"], metadata["uid"], pods) for node in nodes]


def holders_of_node(cpu_node: Json) -> list[Holder]:
    """The claims that a CpuNode's status names."""
    claims = (cpu_node.get("status") or {}).get("claims") or ()
    node = cpu_node["metadata"]["name"]
    return [Holder(node, claim["namespace"], claim["name"], claim["uid"], cpus=claim["cpus"]) for claim in claims]


def all_holders(allocated: Iterable[Holder], reported: Iterable[Holder]) -> list[Holder]:
    """The claims that are allocated, and those that only CpuNodes report."""
    allocated = list(allocated)
    known = {holder.uid for holder in allocated}
    return sorted([*allocated, *(holder for holder in reported if holder.uid not in known)])


def _consumer(reference: Json) -> str:
    resource = reference.get("resource", "pods")
    return f"{resource.removesuffix('s')} {reference.get('name', '')}"
