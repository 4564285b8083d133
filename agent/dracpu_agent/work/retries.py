"""When updates that the runtime failed to apply are sent again: each time later, so that one that never succeeds costs
little; soon when the CPUs are divided anew, as another update may succeed."""

from typing import Final

FIRST_SECONDS: Final = 2.0
LONGEST_SECONDS: Final = 32.0


class Retries:
    """The containers whose last update failed."""

    def __init__(self) -> None:
        self._delays: dict[str, float] = {}
        self._due: dict[str, float] = {}
        self._division: object = None

    def answered(self, container_id: str, now: float, *, applied: bool) -> None:
        """The runtime has answered an update of the container."""
        if applied:
            self._delays.pop(container_id, None)
            self._due.pop(container_id, None)
            return
        delay = self._delays.get(container_id, FIRST_SECONDS)
        self._delays[container_id] = min(2 * delay, LONGEST_SECONDS)
        self._due[container_id] = now + delay

    def waiting(self, now: float, division: object) -> frozenset[str]:
        """The containers whose update is not sent again yet."""
        if division is not self._division:
            self._division = division
            self._delays.clear()
            self._due = {container: min(due, now + FIRST_SECONDS) for container, due in self._due.items()}
        for container in [known for known, due in self._due.items() if due + LONGEST_SECONDS < now]:
            self.answered(container, now, applied=True)  # it needed no update any more, or has ended
        return frozenset(container for container, due in self._due.items() if due > now)

    def due(self, now: float) -> float | None:
        """When the next of the waiting updates is sent again."""
        return min((due for due in self._due.values() if due > now), default=None)
