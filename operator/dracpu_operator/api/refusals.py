"""Remembers the nodes whose CpuNode the API server refused to write, and when to try each again.

Each node has a backoff of its own, so that an admission webhook that refuses one object does not delay the others.
"""

from collections.abc import Container
from dataclasses import dataclass

from dracpu_api.backoff import Backoff
from dracpu_api.errors import ApiError


@dataclass(slots=True)
class _Refusal:
    why: str
    backoff: Backoff
    retry_at: float


class Refusals:
    """Refusals by node; times are those of the event loop's clock."""

    def __init__(self, first: float, cap: float) -> None:
        self._first = first
        self._cap = cap
        self._by_node: dict[str, _Refusal] = {}

    def add(self, node: str, error: ApiError, now: float) -> bool:
        """Records a refusal; returns whether its text is new, and thus worth a line in the log."""
        refusal = self._by_node.get(node)
        is_new = refusal is None or refusal.why != error.message
        backoff = Backoff(self._first, self._cap) if refusal is None else refusal.backoff
        self._by_node[node] = _Refusal(error.message, backoff, now + backoff.next(error))
        return is_new

    def remove(self, node: str) -> None:
        """Forgets the refusal after a success."""
        self._by_node.pop(node, None)

    def keep(self, nodes: Container[str]) -> None:
        """Forgets all other nodes: there is nothing to write for them any more."""
        self._by_node = {node: refusal for node, refusal in self._by_node.items() if node in nodes}

    def blocked(self, now: float) -> set[str]:
        """The nodes that have to wait."""
        return {node for node, refusal in self._by_node.items() if now < refusal.retry_at}

    def reasons(self) -> dict[str, str]:
        """The API server's words by node."""
        return {node: refusal.why for node, refusal in self._by_node.items()}

    def due_at(self) -> float:
        """When the first of the nodes may be tried again."""
        return min((refusal.retry_at for refusal in self._by_node.values()), default=float("inf"))
