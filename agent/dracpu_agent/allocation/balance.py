"""How many CPUs each group gives when a request is distributed: plain numbers in, plain numbers out.

The kubelet tries every subset of groups (2^n), and for the remainder of the division every subset of the subset,
and keeps the first that leaves the free CPUs most evenly behind. The same first one is found here without the
exponent:

- Of all subsets of one size, the groups with most free CPUs fit if any fits: one look settles whether a size can be.
- The score of the best thinkable hand-out (each chunk from whoever then has most) bounds what any subset that starts
  with the same groups can reach, so whole branches are left out. A branch is left out only when nothing in it can be
  strictly better, so the answer is still the kubelet's.
- EFFORT bounds the rest. Up to nine groups can never need as much; of random machines with sixteen, one request in
  some thousand does. Where it runs out, the best subset so far stands: a right answer that may be a little less even
  than the kubelet's.

remainder.py hands out the remainder, evenness.py keeps the score.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from dracpu_agent.allocation.evenness import Effort, Evenness, gain_of, gain_of_ideal
from dracpu_agent.allocation.remainder import HandOut, Remainder

EFFORT: Final = 524_288  # looks times groups, for a look at a subset takes time for each group: 0.2 s at the very most


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
        self._evenness = Evenness(free, total_chunks * chunk)
        self._effort = Effort(EFFORT // len(free))

    @property
    def can_succeed(self) -> bool:
        return self._fits(self._most_free_first[: self._size])

    def first_best(self) -> tuple[Share, ...]:
        """The first subset, in order of position, of those that leave the groups most even."""
        # Not the answer, but a score that the answer reaches or beats: most branches are cut with it from the start.
        found = fallback = tuple(sorted(self._most_free_first[: self._size]))
        best = hand_out_of_fallback = self._hand_out(fallback)
        ceiling = best.score + 1
        floor = self._ideal_score(fallback)  # nothing beats it: see _bound
        branches: list[tuple[int, ...]] = [()]
        while branches and not self._effort.spent and ceiling > floor:
            branch = branches.pop()
            self._effort.look()
            bound = self._bound(branch)
            if bound is None or bound >= ceiling:
                continue
            if len(branch) < self._size:
                branches.extend(reversed([(*branch, group) for group in self._after(branch)]))
                continue
            hand_out = hand_out_of_fallback if branch == fallback else self._hand_out(branch)
            if hand_out.score < ceiling:
                found, best, ceiling = branch, hand_out, hand_out.score
        return tuple(Share(group, self._base, chunks) for group, chunks in zip(found, best.chunks, strict=True))

    def _hand_out(self, members: tuple[int, ...]) -> HandOut:
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
        """A score that no subset starting with this branch beats; None: none of them has enough free CPUs.

        Taking the same from a group with more free CPUs evens out more: so the most free ones complete the branch.
        """
        last = branch[-1] if branch else -1
        later = (group for group in self._most_free_first if group > last)
        members = [*branch, *(group for group, _ in zip(later, range(self._size - len(branch)), strict=False))]
        return self._ideal_score(members) if self._fits(members) else None

    def _ideal_score(self, members: Sequence[int]) -> int:
        """The score when each chunk of the remainder comes from the member that then has most."""
        lefts = (self._free[group] - self._base for group in members)
        return self._evenness.after(self._base_gain(members) + gain_of_ideal(lefts, self._chunk, self._remainder))

    def _base_gain(self, members: Sequence[int]) -> int:
        return sum(gain_of(self._free[group], self._base) for group in members)
