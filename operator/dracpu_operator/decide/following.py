"""Whose lists of outstanding claims are kept true, and when claims are listed for that. Pure: the time is passed in.

A list is true at the moment when it is written, together with the settings that make it necessary. After that claims
may still come that nobody has listed: for the former devices, as long as a scheduler may give these away. So a node is
followed from every change of its spec until its agent has applied it and two lists of claims after that found nothing,
and for as long as something is outstanding. None of this is stored: an operator that starts follows all nodes at first.
"""

from collections.abc import Collection
from typing import Final

from dracpu_operator.decide.records import CpuNode, Phase

_LEISURE: Final = 10  # a list of 100,000 claims takes seconds: ten times as long there is none


class Following:
    """`due_at` tells when claims want to be listed: soon after something moved, ever more rarely while nothing does."""

    def __init__(self, first: float, cap: float) -> None:
        self.due_at = float("inf")
        self._first = first
        self._cap = cap
        self._interval = first
        self._leisure_until = float("-inf")
        self._followed: list[CpuNode] = []
        # UIDs of CpuNodes, each with the generation of its spec:
        self._rested: dict[str, int] = {}  # had come to rest at the last list
        self._sure: dict[str, int] = {}  # at the one before, too

    def nodes(self, cpu_nodes: Collection[CpuNode]) -> list[CpuNode]:
        """Those to follow. A node whose agent has never reported has published nothing."""
        self._sure = {one.uid: one.generation for one in cpu_nodes if self._sure.get(one.uid) == one.generation}
        return [
            one
            for one in cpu_nodes
            if one.owner is not None
            and one.spec is not None
            and one.phase is not Phase.SILENT
            and not (one.uid in self._sure and _rests(one))
        ]

    def is_due(self, followed: list[CpuNode], now: float) -> bool:
        """True when claims have to be listed now."""
        if followed != self._followed:
            self._followed, self._interval = followed, self._first
            self.due_at = max(self._leisure_until, min(self.due_at, now + self._first))
        if not followed:
            self.due_at = float("inf")
        return now >= self.due_at

    def listed(self, began: float, ended: float) -> None:
        """The list that was due is complete."""
        rested = {one.uid: one.generation for one in self._followed if _rests(one)}
        self._sure |= {uid: generation for uid, generation in rested.items() if self._rested.get(uid) == generation}
        self._rested = rested
        self._leisure_until = ended + _LEISURE * (ended - began)
        self.due_at = max(self._leisure_until, ended + self._interval)
        self._interval = min(self._interval * 2, self._cap)


def _rests(cpu_node: CpuNode) -> bool:
    """True where the devices of the present settings are published, and nothing of others is known."""
    assert cpu_node.spec is not None
    return cpu_node.arrived and cpu_node.phase is not Phase.SETTLING and not cpu_node.spec.outstanding
