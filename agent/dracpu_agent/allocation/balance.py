"""Decides how many CPUs each group gives when a request is distributed. It works on plain numbers.

The kubelet tries every subset of groups (2^n), and for the remainder of the division every subset of each subset. It
keeps the first subset that leaves the free CPUs most even. This module finds the same subset without trying all:

- If any subset of a size fits, the groups with most free CPUs fit. One check decides whether a size is possible.
- The score of an ideal split (each chunk comes from the group that then has most) bounds the score of all subsets
  that start with the same groups. A branch is skipped only if nothing in it can be strictly better, so the answer is
  still the kubelet's.
- EFFORT bounds the remaining search. Up to nine groups never reach it; with sixteen, about one request in a thousand
  on random machines does. Then the best subset so far is used, which may be a little less even than the kubelet's.

remainder.py splits the remainder, evenness.py computes the score.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from dracpu_agent.allocation.evenness import Effort, Evenness, gain_of, gain_of_ideal
from dracpu_agent.allocation.remainder import Remainder, Split

EFFORT: Final = 524_288  # subsets times groups, as one subset takes time for each group: at most 0.2 s


@dataclass(frozen=True, slots=True)
class Part:
    """The CPUs that one group gives: a base, and chunks of the remainder."""

    group: int  # position in the list of groups
    base: int
    chunks: int


def balance(free: Sequence[int], count: int, chunk: int, fewest: int) -> tuple[Part, ...] | None:
    """Divides `count` CPUs, in multiples of `chunk`, among as few groups as possible, but at least `fewest`.

    `free` are the free CPUs of each group, in order of preference. Returns None if the groups cannot give `count`.
    """
    total_chunks = count // chunk
    for size in range(max(fewest, 1), min(total_chunks, len(free)) + 1):
        search = _Search(free, total_chunks, chunk, size)
        if search.can_succeed:
            return search.first_best()
    return None


class _Search:
    """Searches all subsets of one size."""

    def __init__(self, free: Sequence[int], total_chunks: int, chunk: int, size: int) -> None:
        base_chunks, self._remainder = divmod(total_chunks, size)
        self._free = free
        self._chunk = chunk
        self._size = size
        self._base = base_chunks * chunk
        self._total_chunks = total_chunks
        self._candidates = [group for group, cpus in enumerate(free) if cpus >= self._base]
        self._most_free_first = sorted(self._candidates, key=lambda group: -free[group])
        self._evenness = Evenness(free, total_chunks * chunk)
        self._effort = Effort(EFFORT // len(free))

    @property
    def can_succeed(self) -> bool:
        return self._fits(self._most_free_first[: self._size])

    def first_best(self) -> tuple[Part, ...]:
        """The first subset, in order of position, among those that leave the groups most even."""
        # The answer scores at least as well as this subset, so its score excludes most branches from the start.
        found = fallback = tuple(sorted(self._most_free_first[: self._size]))
        best = split_of_fallback = self._split(fallback)
        ceiling = best.score + 1
        floor = self._ideal_score(fallback)  # no subset scores better: see _bound
        branches: list[tuple[int, ...]] = [()]
        while branches and not self._effort.spent and ceiling > floor:
            branch = branches.pop()
            self._effort.spend()
            bound = self._bound(branch)
            if bound is None or bound >= ceiling:
                continue
            if len(branch) < self._size:
                branches.extend(reversed([(*branch, group) for group in self._after(branch)]))
                continue
            split = split_of_fallback if branch == fallback else self._split(branch)
            if split.score < ceiling:
                found, best, ceiling = branch, split, split.score
        return tuple(Part(group, self._base, chunks) for group, chunks in zip(found, best.chunks, strict=True))

    def _split(self, members: tuple[int, ...]) -> Split:
        left = [self._free[group] - self._base for group in members]
        gained = self._base_gain(members)
        return Remainder(left, self._chunk, self._remainder, gained, self._evenness, self._effort).first_best()

    def _after(self, branch: tuple[int, ...]) -> Iterator[int]:
        last = branch[-1] if branch else -1
        return (group for group in self._candidates if group > last)

    def _fits(self, members: Sequence[int]) -> bool:
        whole_chunks = sum(self._free[group] // self._chunk for group in members)
        return len(members) == self._size and whole_chunks >= self._total_chunks

    def _bound(self, branch: tuple[int, ...]) -> int | None:
        """A bound on the score of all subsets that start with this branch; None if none has enough free CPUs.

        The groups with most free CPUs complete the branch, because taking CPUs from them evens out most.
        """
        last = branch[-1] if branch else -1
        later = (group for group in self._most_free_first if group > last)
        members = [*branch, *(group for group, _ in zip(later, range(self._size - len(branch)), strict=False))]
        return self._ideal_score(members) if self._fits(members) else None

    def _ideal_score(self, members: Sequence[int]) -> int:
        """The score if each chunk of the remainder comes from the member that then has most."""
        lefts = (self._free[group] - self._base for group in members)
        return self._evenness.score(self._base_gain(members) + gain_of_ideal(lefts, self._chunk, self._remainder))

    def _base_gain(self, members: Sequence[int]) -> int:
        return sum(gain_of(self._free[group], self._base) for group in members)
