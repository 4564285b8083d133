"""What still holds CPUs when the driver is about to be uninstalled. Pure: objects in, holders out.

Claims that are allocated say so themselves. A node may hold CPUs for longer than that, where containers outlive their
claim: only its CpuNode tells.
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
    cpus: str | None = None  # None: the claim is allocated; else these CPUs, and no allocated claim explains them

    def __str__(self) -> str:
        claim = f"{self.namespace}/{self.name} on node {self.node}"
        if self.cpus is not None:
            return f"{claim}: CPUs {self.cpus} are still held, though the claim is not allocated any more"
        return f"{claim}: used by {', '.join(self.pods) or 'no pod'}"


def holders_of(claim: Json) -> list[Holder]:
    """A ResourceClaim -> one holder for each node whose CPUs it was given; none when it is not allocated."""
    metadata = claim["metadata"]
    consumers = (claim.get("status") or {}).get("reservedFor") or ()
    pods = tuple(_consumer(one) for one in consumers)
    nodes = sorted({result["pool"] for result in results_of(claim)})
    return [Holder(node, metadata["namespace"], metadata["name"], metadata["uid"], pods) for node in nodes]


def holders_on(cpu_node: Json) -> list[Holder]:
    """A CpuNode -> the claims that its agent names."""
    claims = (cpu_node.get("status") or {}).get("claims") or ()
    node = cpu_node["metadata"]["name"]
    return [Holder(node, one["namespace"], one["name"], one["uid"], cpus=one["cpus"]) for one in claims]


def all_holders(allocated: Iterable[Holder], named: Iterable[Holder]) -> list[Holder]:
    """The allocated claims, and what agents name beyond them."""
    allocated = list(allocated)
    explained = {one.uid for one in allocated}
    return sorted([*allocated, *(one for one in named if one.uid not in explained)])


def _consumer(reference: Json) -> str:
    resource = reference.get("resource", "pods")
    return f"{resource.removesuffix('s')} {reference.get('name', '')}"
