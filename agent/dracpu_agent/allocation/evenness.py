"""How evenly a request leaves the groups behind: the score by which balance.py and remainder.py choose.

The score is the standard deviation of the free CPUs left in all groups, rounded to three decimals as the kubelet does:
choices that round to the same are equally good, and the first one wins. It is worked out in whole numbers, so no
platform's floating point has a say.
"""

from collections.abc import Iterable, Sequence
from heapq import heapify, heapreplace
from math import isqrt


class Evenness:
    """The standard deviation of what is left, in thousandths, rounded half up.

    However `taken` is split, the sum of what is left is the same, and so is the mean: only the squares differ. So a
    choice is known by its gain, and a larger gain is never a worse score.
    """

    def __init__(self, free: Sequence[int], taken: int) -> None:
        self._groups = len(free)
        self._squares = sum(cpus * cpus for cpus in free)
        left = sum(free) - taken
        mean = (2000 * left + self._groups) // (2 * self._groups)  # in thousandths, rounded half up like the kubelet's
        # Σ(x - mean)² = Σx² - 2·mean·Σx + N·mean², times 10⁶
        self._constant = self._groups * mean * mean - 2000 * mean * left

    def after(self, gain: int) -> int:
        """The score when the sum of squares has dropped by this much."""
        deviations = 1_000_000 * (self._squares - gain) + self._constant
        return (isqrt(4 * deviations // self._groups) + 1) // 2


def gain_of(cpus: int, taken: int) -> int:
    """By how much the sum of squares drops when a group gives: cpus² - (cpus - taken)²."""
    return taken * (2 * cpus - taken)


def gain_of_ideal(lefts: Iterable[int], chunk: int, chunks: int) -> int:
    """The gain when each chunk comes from whoever then has most: nothing that takes as many gains more."""
    heap = [-left for left in lefts]  # negative: heapq keeps the smallest on top
    heapify(heap)
    gain = 0
    for _ in range(chunks):
        left = -heap[0]
        gain += gain_of(left, chunk)
        heapreplace(heap, chunk - left)
    return gain


class Effort:
    """How much longer a search may go on; counted in looks at something that takes time for each group."""

    def __init__(self, looks: int) -> None:
        self._looks = looks

    @property
    def spent(self) -> bool:
        """True when what was found so far has to do."""
        return self._looks <= 0

    def look(self, times: int = 1) -> None:
        """Counts."""
        self._looks -= times
