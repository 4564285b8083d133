"""Which nodes have lists of outstanding claims that must be kept up to date, and when to list claims for that. Pure:
the time is an argument.

A list is complete when it is written, together with the settings that make it necessary. Afterwards more claims may be
allocated on the former devices, for as long as a scheduler still knows these. So a node is followed from each change of
its spec until its agent has applied the change and two more lists of claims have found nothing new, and for as long as
claims are outstanding. None of this is stored: an operator that starts follows all nodes at first.
"""

from collections.abc import Collection
from typing import Final

from dracpu_api.conditions import Phase
from dracpu_operator.decide.records import CpuNode

_REST_FACTOR: Final = 10  # after a list that took 2 s (100,000 claims), at least 20 s pass before the next one


class Following:
    """`due_at` is the time of the next list of claims: soon after something has changed, then less and less often."""

    def __init__(self, first: float, cap: float) -> None:
        self.due_at = float("inf")
        self._first = first
        self._cap = cap
        self._interval = first
        self._not_before = float("-inf")
        self._followed: list[CpuNode] = []
        # CpuNodes by UID, each with the generation of its spec:
        self._settled_once: dict[str, int] = {}  # settled at the last list
        self._settled_twice: dict[str, int] = {}  # settled at the last list and at the one before

    def nodes(self, cpu_nodes: Collection[CpuNode]) -> list[CpuNode]:
        """The nodes to follow. A node whose agent has never reported has published nothing."""
        self._settled_twice = {
            cpu_node.uid: cpu_node.generation
            for cpu_node in cpu_nodes
            if self._settled_twice.get(cpu_node.uid) == cpu_node.generation
        }
        return [
            cpu_node
            for cpu_node in cpu_nodes
            if cpu_node.owner is not None
            and cpu_node.spec is not None
            and cpu_node.phase is not None
            and not (cpu_node.uid in self._settled_twice and _is_settled(cpu_node))
        ]

    def is_due(self, followed: list[CpuNode], now: float) -> bool:
        """True when claims have to be listed now."""
        if followed != self._followed:
            self._followed, self._interval = followed, self._first
            self.due_at = max(self._not_before, min(self.due_at, now + self._first))
        if not followed:
            self.due_at = float("inf")
        return now >= self.due_at

    def listed(self, began: float, ended: float) -> None:
        """Notes that all claims were listed, and when."""
        settled = {cpu_node.uid: cpu_node.generation for cpu_node in self._followed if _is_settled(cpu_node)}
        self._settled_twice |= {
            uid: generation for uid, generation in settled.items() if self._settled_once.get(uid) == generation
        }
        self._settled_once = settled
        self._not_before = ended + _REST_FACTOR * (ended - began)
        self.due_at = max(self._not_before, ended + self._interval)
        self._interval = min(self._interval * 2, self._cap)


def _is_settled(cpu_node: CpuNode) -> bool:
    """True when the node publishes the devices of its present settings, and no claim on other devices is known."""
    assert cpu_node.spec is not None
    return cpu_node.arrived and cpu_node.phase is not Phase.SETTLING and not cpu_node.spec.outstanding
