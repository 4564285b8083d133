"""Remembers the objects of one kind that the API server refused to write, and when to try each again.

Each object has a backoff of its own, so that an admission webhook that refuses one does not delay the others. A CpuNode
has the name of its node.
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
    """Refusals by the object's name; times are those of the event loop's clock."""

    def __init__(self, first: float, cap: float) -> None:
        self._first = first
        self._cap = cap
        self._by_name: dict[str, _Refusal] = {}

    def add(self, name: str, error: ApiError, now: float) -> bool:
        """Records a refusal; returns whether its text is new, and thus worth a line in the log."""
        refusal = self._by_name.get(name)
        is_new = refusal is None or refusal.why != error.message
        backoff = Backoff(self._first, self._cap) if refusal is None else refusal.backoff
        self._by_name[name] = _Refusal(error.message, backoff, now + backoff.next(error))
        return is_new

    def remove(self, name: str) -> None:
        """Forgets the refusal after a success."""
        self._by_name.pop(name, None)

    def keep(self, names: Container[str]) -> None:
        """Forgets all others: there is nothing to write for them any more."""
        self._by_name = {name: refusal for name, refusal in self._by_name.items() if name in names}

    def blocked(self, now: float) -> set[str]:
        """Those that have to wait."""
        return {name for name, refusal in self._by_name.items() if now < refusal.retry_at}

    def reasons(self) -> dict[str, str]:
        """The API server's words by name."""
        return {name: refusal.why for name, refusal in self._by_name.items()}

    def due_at(self) -> float:
        """When the first of them may be tried again."""
        return min((refusal.retry_at for refusal in self._by_name.values()), default=float("inf"))
