"""The score by which balance.py and remainder.py choose: how even a request leaves the groups.

The score is the standard deviation of the free CPUs left in all groups, rounded to three decimals as in the kubelet.
Choices with equal rounded scores are equally good, and the first one is used. The computation uses whole numbers, so
that the result does not depend on a platform's floating point.
"""

from collections.abc import Iterable, Sequence
from heapq import heapify, heapreplace
from math import isqrt


class Evenness:
    """Computes the standard deviation of the CPUs left, in thousandths, rounded half up.

    The sum and the mean of the CPUs left do not depend on how `taken` is split; only the sum of squares does. So the
    score depends only on the gain, by which the sum of squares drops, and a larger gain is never worse.
    """

    def __init__(self, free: Sequence[int], taken: int) -> None:
        self._groups = len(free)
        self._squares = sum(cpus * cpus for cpus in free)
        left = sum(free) - taken
        mean = (2000 * left + self._groups) // (2 * self._groups)  # in thousandths, rounded half up like the kubelet's
        # Σ(x - mean)² = Σx² - 2·mean·Σx + N·mean², times 10⁶
        self._constant = self._groups * mean * mean - 2000 * mean * left

    def score(self, gain: int) -> int:
        """The score of a choice with this gain."""
        deviations = 1_000_000 * (self._squares - gain) + self._constant
        return (isqrt(4 * deviations // self._groups) + 1) // 2


def gain_of(cpus: int, taken: int) -> int:
    """The gain when a group with `cpus` free CPUs gives some: cpus² - (cpus - taken)²."""
    return taken * (2 * cpus - taken)


def gain_of_ideal(lefts: Iterable[int], chunk: int, chunks: int) -> int:
    """The gain if each chunk comes from the group that then has most. No split of as many chunks gains more."""
    heap = [-left for left in lefts]  # negative: heapq keeps the smallest on top
    heapify(heap)
    gain = 0
    for _ in range(chunks):
        left = -heap[0]
        gain += gain_of(left, chunk)
        heapreplace(heap, chunk - left)
    return gain


class Effort:
    """Limits a search. One unit is a step whose time is proportional to the number of groups."""

    def __init__(self, units: int) -> None:
        self._left = units

    @property
    def spent(self) -> bool:
        """True when the search must end with the best answer so far."""
        return self._left <= 0

    def spend(self, units: int = 1) -> None:
        """Counts units that were used."""
        self._left -= units
