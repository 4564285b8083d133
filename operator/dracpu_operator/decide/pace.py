"""When the next reconcile begins, so that reconciles take a small share of a processor however many nodes there are and
however often they change. Pure: the time is an argument.

A reconcile looks at all nodes, which takes longer the more there are. While 15,000 agents answer, changes come all the
time, and each reconcile would be followed by the next one at once.
"""

from typing import Final

_REST_FACTOR: Final = 9.0  # nine times as long as a reconcile computes, it rests afterwards: so it takes a tenth
_LONGEST_REST: Final = 0.6  # a change of one label has to reach its CpuNode within a second, whatever else happens


class Pace:
    """Times are those of a monotonic clock, in seconds."""

    def __init__(self, debounce: float) -> None:
        self._debounce = debounce
        self._computed = 0.0
        self._not_before = float("-inf")

    def computed(self, seconds: float) -> None:
        """Records that the present reconcile has computed for so long; the time of its requests does not count."""
        self._computed += seconds

    def ended(self, now: float) -> None:
        """Records that the present reconcile has ended."""
        self._not_before = now + min(_REST_FACTOR * self._computed, _LONGEST_REST)
        self._computed = 0.0

    def pause(self, now: float) -> float:
        """How long to wait after a change: changes often come in large numbers."""
        return max(self._debounce, self._not_before - now)
