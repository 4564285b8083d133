"""Which claims still hold CPUs or memory when the drivers are about to be uninstalled. Pure: objects in, holders out.

A claim holds devices while it is allocated. A node may hold what a claim had for longer, while containers outlive their
claim: only its CpuNode shows that. The answer is about the moment of the lists: nothing keeps the scheduler from
allocating another claim before helm has deleted the agents.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from dracpu_api.names import CAPACITY_CPU, DRIVER, DRIVER_MEMORY
from dracpu_api.quantity import whole_number
from dracpu_api.resources import Json
from dracpu_operator.decide.outstanding import results_of

CPUS: Final = "CPUs"
MEMORY: Final = "memory"  # and hugepages
_CONTENTS: Final[Mapping[str, str]] = {DRIVER: CPUS, DRIVER_MEMORY: MEMORY}


@dataclass(frozen=True, slots=True, order=True)
class Holder:
    """A claim that holds CPUs or memory of a node."""

    node: str
    namespace: str
    name: str
    uid: str
    contents: tuple[str, ...]  # what it holds: CPUs, memory
    pods: tuple[str, ...] = ()
    is_allocated: bool = True
    cpus: str = ""  # the ids of its CPUs, as far as its node reports them

    def __str__(self) -> str:
        claim = f"{self.namespace}/{self.name} on node {self.node}"
        held = " and ".join(f"{CPUS} {self.cpus}" if word == CPUS and self.cpus else word for word in self.contents)
        if not self.is_allocated:
            return f"{claim} still holds {held}, though it is not allocated any more"
        return f"{claim} holds {held}: used by {', '.join(self.pods) or 'no pod'}"


def holders_of_claim(claim: Json) -> list[Holder]:
    """One holder for each node on which a ResourceClaim is allocated."""
    metadata = claim["metadata"]
    consumers = (claim.get("status") or {}).get("reservedFor") or ()
    pods = tuple(_consumer(consumer) for consumer in consumers)
    contents: dict[str, set[str]] = {}
    for result in results_of(claim):
        contents.setdefault(result["pool"], set()).update(_contents_of(result))
    return [
        Holder(node, metadata["namespace"], metadata["name"], metadata["uid"], tuple(sorted(words)), pods)
        for node, words in sorted(contents.items())
    ]


def holders_of_node(cpu_node: Json) -> list[Holder]:
    """The claims that a CpuNode's status names."""
    claims = (cpu_node.get("status") or {}).get("claims") or ()
    node = cpu_node["metadata"]["name"]
    return [_reported(node, claim) for claim in claims]


def all_holders(allocated: Iterable[Holder], reported: Iterable[Holder]) -> list[Holder]:
    """The claims that are allocated, and those that only CpuNodes report."""
    allocated = list(allocated)
    known = {holder.uid for holder in allocated}
    return sorted([*allocated, *(holder for holder in reported if holder.uid not in known)])


def summary(holders: Collection[Holder]) -> str:
    """How many claims hold what: "2 claims hold CPUs or memory"."""
    held = " or ".join(sorted({word for holder in holders for word in holder.contents}))
    return f"1 claim holds {held}" if len(holders) == 1 else f"{len(holders)} claims hold {held}"


def _contents_of(result: Json) -> set[str]:
    consumed = result.get("consumedCapacity") or {}
    # devices of CPUs may offer memory of their NUMA node, too; a claim that requests none consumes 0 of it
    others = (amount for name, amount in consumed.items() if name != CAPACITY_CPU)
    found = {_CONTENTS[result["driver"]]}
    return found | {MEMORY} if any(whole_number(str(amount)) for amount in others) else found


def _reported(node: str, claim: Json) -> Holder:
    cpus: str = claim.get("cpus") or ""
    # an entry without CPUs is there because of memory
    held = {CPUS: bool(cpus), MEMORY: not cpus or bool(claim.get("memory"))}
    contents = tuple(word for word, is_held in held.items() if is_held)
    return Holder(node, claim["namespace"], claim["name"], claim["uid"], contents, is_allocated=False, cpus=cpus)


def _consumer(reference: Json) -> str:
    resource = reference.get("resource", "pods")
    return f"{resource.removesuffix('s')} {reference.get('name', '')}"
