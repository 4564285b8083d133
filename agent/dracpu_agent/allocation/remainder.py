"""Splits the remainder of the division: takes it chunk by chunk, in rounds, from a selection of the members.

A member is a group that gives the base; "left" are its free CPUs beyond the base. The kubelet tries all selections of
members, larger ones first, and keeps the first that leaves the groups most even. A selection with at least as many
members as chunks takes one chunk from each of some members, which needs no search. Smaller selections are searched
branch by branch, and a branch is skipped if nothing in it can be strictly better.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nlargest

from dracpu_agent.allocation.evenness import Effort, Evenness, gain_of, gain_of_ideal


@dataclass(frozen=True, slots=True)
class Split:
    """The chunks that each member gives, and the resulting score."""

    score: int
    chunks: tuple[int, ...]


class Remainder:
    """Finds the split for the members of one subset, which together have at least `chunks` chunks left."""

    def __init__(
        self, left: Sequence[int], chunk: int, chunks: int, gained: int, evenness: Evenness, effort: Effort
    ) -> None:
        self._left = left
        self._chunk = chunk
        self._chunks = chunks
        self._gained = gained  # by the base
        self._evenness = evenness
        self._effort = effort
        self._able = [member for member, cpus in enumerate(left) if cpus >= chunk]
        self._most_left_first = sorted(self._able, key=lambda member: -left[member])
        self._ideal = self._score(gain_of_ideal(left, chunk, chunks))

    def first_best(self) -> Split:
        """The first of the most even splits, or the best one found before the effort is spent."""
        if self._chunks == 0:
            return Split(self._ideal, (0,) * len(self._left))
        best = self._one_chunk_each() if len(self._able) >= self._chunks else None
        for size in range(min(len(self._able), self._chunks - 1), 0, -1):
            if best is None or not self._is_final(best):
                best = self._best_of_size(size, best)
        assert best is not None, "all able members together have enough chunks"
        return best

    def _is_final(self, best: Split) -> bool:
        return best.score == self._ideal or self._effort.spent

    def _one_chunk_each(self) -> Split:
        """One chunk from each of as many members as there are chunks: the kubelet's first choice with the best score.

        The kubelet tries larger selections first. They contain members behind the choice that give nothing, so the
        first choice is the one that ends earliest, and of these the one that begins earliest.
        """
        self._effort.spend(len(self._able))
        gains = {member: gain_of(self._left[member], self._chunk) for member in self._able}
        best = self._score(sum(nlargest(self._chunks, gains.values())))

        def reaches_best(chosen: Sequence[int], among: Sequence[int]) -> bool:
            more = nlargest(self._chunks - len(chosen), (gains[member] for member in among))
            gain = sum(gains[member] for member in chosen) + sum(more)
            return len(chosen) + len(more) == self._chunks and self._score(gain) == best

        able = self._able
        end = next(end for end in range(self._chunks, len(able) + 1) if reaches_best((), able[:end]))
        chosen: list[int] = []
        for place, member in enumerate(able[:end], start=1):
            if reaches_best([*chosen, member], able[place:end]):
                chosen.append(member)
        return Split(best, tuple(int(member in chosen) for member in range(len(self._left))))

    def _best_of_size(self, size: int, best: Split | None) -> Split | None:
        """The first selection of this size that is strictly better than the best larger one."""
        branches: list[tuple[int, ...]] = [()]
        while branches and not (best is not None and self._is_final(best)):
            branch = branches.pop()
            self._effort.spend()
            bound = self._bound(branch, size)
            if bound is None or (best is not None and bound >= best.score):
                continue
            if len(branch) < size:
                branches.extend((*branch, member) for member in reversed(self._after(branch)))
                continue
            split = self._in_rounds(branch)
            if best is None or split.score < best.score:
                best = split
        return best

    def _after(self, branch: tuple[int, ...]) -> list[int]:
        last = branch[-1] if branch else -1
        return [member for member in self._able if member > last]

    def _bound(self, branch: tuple[int, ...], size: int) -> int | None:
        """A bound on the score of all selections that start with this branch; None if none has enough chunks.

        The members with most left complete the branch. All members give a chunk in the first rounds, so the gain of
        these rounds is known. The remaining chunks cannot gain more than the ideal.
        """
        last = branch[-1] if branch else -1
        later = [self._left[member] for member in self._most_left_first if member > last]
        lefts = [self._left[member] for member in branch] + later[: size - len(branch)]
        if len(lefts) < size or sum(left // self._chunk for left in lefts) < self._chunks:
            return None
        fewest = self._left[self._most_left_first[-1]] // self._chunk
        taken = min(self._chunks // size, fewest) * self._chunk
        sure = sum(gain_of(left, taken) for left in lefts)
        rest = self._chunks - size * taken // self._chunk
        return self._score(sure + gain_of_ideal([left - taken for left in lefts], self._chunk, rest))

    def _in_rounds(self, selection: tuple[int, ...]) -> Split:
        given = [0] * len(self._left)
        remaining = self._chunks
        while remaining:
            for member in selection:
                if remaining and self._left[member] - given[member] * self._chunk >= self._chunk:
                    given[member] += 1
                    remaining -= 1
        gain = sum(gain_of(left, chunks * self._chunk) for left, chunks in zip(self._left, given, strict=True))
        return Split(self._score(gain), tuple(given))

    def _score(self, gain: int) -> int:
        return self._evenness.score(self._gained + gain)
