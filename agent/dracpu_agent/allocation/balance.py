"""How many CPUs each group gives when a request is distributed: plain numbers in, plain numbers out.

The kubelet tries every subset of groups (2^n), and for the remainder of the division every subset of the subset,
and keeps the first that leaves the free CPUs most evenly behind. The same first one is found here without the
exponent:

- Of all subsets of one size, the groups with most free CPUs fit if any fits: one look settles whether a size can be.
- The score of the best thinkable hand-out (each chunk from whoever then has most) bounds what any subset that starts
  with the same groups can reach, so whole branches are left out. A branch is left out only when nothing in it can be
  strictly better, so the answer is still the kubelet's.
- EFFORT bounds the rest. Up to nine groups can never need as much. Where it runs out on larger machines, the best
  subset so far stands: a right answer that may be a little less even than the kubelet's.

Evenness is the standard deviation of the free CPUs left in all groups, rounded to three decimals: two subsets that
round to the same are equally good, and the first one wins. It is worked out in whole numbers, so no platform's
floating point has a say.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace, nlargest
from itertools import combinations
from math import isqrt
from typing import Final

EFFORT: Final = 131_072  # looks times groups, for a look at a subset takes time for each group: 0.1 s at the very most


@dataclass(frozen=True, slots=True)
class Share:
    """What one group gives: a base, and then chunks of the remainder."""

    group: int  # position in the list of groups
    base: int
    chunks: int


def balance(free: Sequence[int], count: int, chunk: int, fewest: int) -> tuple[Share, ...] | None:
    """Which groups give `count` CPUs in multiples of `chunk`, from as few groups as possible, at least `fewest`.

    `free` are the free CPUs of each group, in the order of preference. None: whole chunks do not add up to `count`.
    """
    total_chunks = count // chunk
    for size in range(max(fewest, 1), min(total_chunks, len(free)) + 1):
        search = _Search(free, total_chunks, chunk, size)
        if search.can_succeed:
            return search.first_best()
    return None


@dataclass(frozen=True, slots=True)
class _HandOut:
    score: int
    members: tuple[int, ...]
    chunks: tuple[int, ...]  # of the remainder, for each member


class _Search:
    """The search among all subsets of one size."""

    def __init__(self, free: Sequence[int], total_chunks: int, chunk: int, size: int) -> None:
        base_chunks, self._remainder = divmod(total_chunks, size)
        self._free = free
        self._chunk = chunk
        self._size = size
        self._base = base_chunks * chunk
        self._total_chunks = total_chunks
        self._candidates = [group for group, cpus in enumerate(free) if cpus >= self._base]
        self._most_free_first = sorted(self._candidates, key=lambda group: -free[group])
        self._score = _Score(free, total_chunks * chunk)
        self._looks = EFFORT // len(free)

    @property
    def can_succeed(self) -> bool:
        return self._fits(self._most_free_first[: self._size])

    def first_best(self) -> tuple[Share, ...]:
        """The first subset, in order of position, of those that leave the groups most even."""
        # Not the answer, but a score that the answer reaches or beats: most branches are cut with it from the start.
        fallback = self._hand_out(tuple(sorted(self._most_free_first[: self._size])))
        found, ceiling = fallback, fallback.score + 1
        floor = self._ideal_score(fallback.members)  # nothing beats it: see _bound
        branches: list[tuple[int, ...]] = [()]
        while branches and self._looks > 0 and ceiling > floor:
            branch = branches.pop()
            self._looks -= 1
            bound = self._bound(branch)
            if bound is None or bound >= ceiling:
                continue
            if len(branch) < self._size:
                branches.extend(reversed([(*branch, group) for group in self._after(branch)]))
                continue
            hand_out = fallback if branch == fallback.members else self._hand_out(branch)
            if hand_out.score < ceiling:
                found, ceiling = hand_out, hand_out.score
        return tuple(
            Share(group, self._base, chunks) for group, chunks in zip(found.members, found.chunks, strict=True)
        )

    def _after(self, branch: tuple[int, ...]) -> Iterator[int]:
        last = branch[-1] if branch else -1
        return (group for group in self._candidates if group > last)

    def _fits(self, members: Sequence[int]) -> bool:
        whole_chunks = sum(self._free[group] // self._chunk for group in members)
        return len(members) == self._size and whole_chunks >= self._total_chunks

    def _bound(self, branch: tuple[int, ...]) -> int | None:
        """A score that no subset starting with this branch beats; None: none of them has enough free CPUs.

        Taking the same from a group with more free CPUs evens out more: so the most free ones complete the branch.
        """
        last = branch[-1] if branch else -1
        later = (group for group in self._most_free_first if group > last)
        members = [*branch, *(group for group, _ in zip(later, range(self._size - len(branch)), strict=False))]
        return self._ideal_score(members) if self._fits(members) else None

    def _ideal_score(self, members: Sequence[int]) -> int:
        """The score when each chunk of the remainder comes from the member that then has most."""
        lefts = [self._base - self._free[group] for group in members]  # negative: heapq keeps the smallest on top
        gain = self._base_gain(members)
        heapify(lefts)
        for _ in range(self._remainder):
            left = -lefts[0]
            gain += self._gain(left, self._chunk)
            heapreplace(lefts, self._chunk - left)
        return self._score.after(gain)

    def _hand_out(self, members: tuple[int, ...]) -> _HandOut:
        """The kubelet's way to hand out the remainder: chunk by chunk, round by round, over some of the members.

        It tries all selections, larger ones first. A selection of at least as many members as there are chunks gives
        one chunk each to its first members, which needs no trying; only smaller selections are tried one by one.
        """
        if self._remainder == 0:
            return _HandOut(self._ideal_score(members), members, (0,) * len(members))
        left = [self._free[group] - self._base for group in members]
        able = [member for member, cpus in enumerate(left) if cpus >= self._chunk]
        ideal = self._ideal_score(members)
        base_gain = self._base_gain(members)
        best: _HandOut | None = None
        if len(able) >= self._remainder:
            best = self._one_chunk_each(members, left, able)
        for size in range(min(len(able), self._remainder - 1), 0, -1):
            for selection in combinations(able, size):
                if best is not None and (best.score == ideal or self._looks <= 0):
                    return best
                self._looks -= 1
                chunks = self._rounds(left, selection)
                if chunks is None:
                    continue
                gain = sum(self._gain(cpus, given * self._chunk) for cpus, given in zip(left, chunks, strict=True))
                score = self._score.after(base_gain + gain)
                if best is None or score < best.score:
                    best = _HandOut(score, members, chunks)
        assert best is not None, "all able members together have enough chunks: _fits"
        return best

    def _one_chunk_each(self, members: tuple[int, ...], left: Sequence[int], able: Sequence[int]) -> _HandOut:
        """One chunk from as many members as there are chunks: the first choice among those with the best score.

        Larger selections come first, and theirs are the choices that leave room for the selection's other members:
        so the choice wants to end as early as possible, and then to begin as early as possible.
        """
        self._looks -= len(able)
        base_gain = self._base_gain(members)
        gains = {member: self._gain(left[member], self._chunk) for member in able}
        best = self._score.after(base_gain + sum(nlargest(self._remainder, gains.values())))

        def reaches_best(chosen: Sequence[int], among: Sequence[int]) -> bool:
            more = nlargest(self._remainder - len(chosen), (gains[member] for member in among))
            gain = base_gain + sum(gains[member] for member in chosen) + sum(more)
            return len(chosen) + len(more) == self._remainder and self._score.after(gain) == best

        end = next(end for end in range(self._remainder, len(able) + 1) if reaches_best((), able[:end]))
        chosen: list[int] = []
        for place, member in enumerate(able[:end], start=1):
            if reaches_best([*chosen, member], able[place:end]):
                chosen.append(member)
        return _HandOut(best, members, tuple(int(member in chosen) for member in range(len(members))))

    def _rounds(self, left: Sequence[int], selection: tuple[int, ...]) -> tuple[int, ...] | None:
        """Chunks for each member when the selection gives one each, round by round; None: it has not enough."""
        if sum(left[member] // self._chunk for member in selection) < self._remainder:
            return None
        given = [0] * len(left)
        remaining = self._remainder
        while remaining:
            for member in selection:
                if remaining and left[member] - given[member] * self._chunk >= self._chunk:
                    given[member] += 1
                    remaining -= 1
        return tuple(given)

    def _base_gain(self, members: Sequence[int]) -> int:
        return sum(self._gain(self._free[group], self._base) for group in members)

    @staticmethod
    def _gain(cpus: int, taken: int) -> int:
        """By how much the sum of squares drops when a group gives: cpus² - (cpus - taken)²."""
        return taken * (2 * cpus - taken)


class _Score:
    """The standard deviation of what is left, in thousandths, rounded half up.

    However `taken` is split, the sum of what is left is the same, and so is the mean: only the squares differ.
    """

    def __init__(self, free: Sequence[int], taken: int) -> None:
        self._groups = len(free)
        self._squares = sum(cpus * cpus for cpus in free)
        left = sum(free) - taken
        mean = (2000 * left + self._groups) // (2 * self._groups)  # in thousandths, rounded half up like the kubelet's
        # Σ(x - mean)² = Σx² - 2·mean·Σx + N·mean², times 10⁶
        self._constant = self._groups * mean * mean - 2000 * mean * left

    def after(self, gain: int) -> int:
        """The score when the sum of squares has dropped by this much; falls as the gain grows."""
        deviations = 1_000_000 * (self._squares - gain) + self._constant
        return (isqrt(4 * deviations // self._groups) + 1) // 2
