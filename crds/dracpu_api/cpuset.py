"""Sets of CPU numbers and their text form, the kernel's list format ("0-3,8").

A set is one integer with bit n for CPU n: a set of 512 CPUs is a few machine words, which makes the allocator fast.
`CpuSet` wraps the integer so that sets and numbers cannot be mixed up.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

MAX_CPU: Final = 8191  # Linux: no architecture can be configured for more than 8192 CPUs

_CACHED: Final = 32  # texts, of up to 20 KB each


class CpuSetError(ValueError):
    """A text that is not a cpuset; the message says what to write instead."""


class CpuSet:
    """An immutable set of CPU numbers."""

    __slots__ = ("mask",)
    mask: int

    def __init__(self, cpus: Iterable[int] = ()) -> None:
        mask = 0
        for cpu in cpus:
            mask |= 1 << cpu
        object.__setattr__(self, "mask", mask)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"CpuSet is immutable, {name} cannot be set")

    @classmethod
    def of_mask(cls, mask: int) -> "CpuSet":
        """The set of the CPUs whose bits are set in `mask`."""
        if mask < 0:
            raise ValueError("a CPU mask cannot be negative")
        made = cls.__new__(cls)
        object.__setattr__(made, "mask", mask)
        return made

    @classmethod
    def parse(cls, text: str) -> "CpuSet":
        """Reads the list format. Order, overlaps and a trailing newline do not matter; "" is the empty set."""
        return _parse(text.strip())

    def __str__(self) -> str:
        return _text(self.mask)

    def __repr__(self) -> str:
        return f"CpuSet({str(self)!r})"

    def __iter__(self) -> Iterator[int]:
        mask = self.mask
        while mask:
            lowest = mask & -mask
            yield lowest.bit_length() - 1
            mask ^= lowest

    def __len__(self) -> int:
        return self.mask.bit_count()

    def __bool__(self) -> bool:
        return self.mask != 0

    def __contains__(self, cpu: object) -> bool:
        return isinstance(cpu, int) and cpu >= 0 and bool(self.mask >> cpu & 1)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CpuSet) and self.mask == other.mask

    def __hash__(self) -> int:
        return hash(self.mask)

    def __or__(self, other: "CpuSet") -> "CpuSet":
        return CpuSet.of_mask(self.mask | other.mask)

    def __and__(self, other: "CpuSet") -> "CpuSet":
        return CpuSet.of_mask(self.mask & other.mask)

    def __sub__(self, other: "CpuSet") -> "CpuSet":
        return CpuSet.of_mask(self.mask & ~other.mask)

    def __le__(self, other: "CpuSet") -> bool:
        """True when every CPU of this set is in the other one."""
        return self.mask & ~other.mask == 0

    def isdisjoint(self, other: "CpuSet") -> bool:
        """True when no CPU is in both."""
        return self.mask & other.mask == 0

    @property
    def lowest(self) -> int:
        """The lowest CPU number; the set must not be empty."""
        if not self.mask:
            raise ValueError("an empty set has no lowest CPU")
        return (self.mask & -self.mask).bit_length() - 1


EMPTY: Final = CpuSet()


def union(sets: Iterable[CpuSet]) -> CpuSet:
    """The CPUs that are in any of the sets."""
    mask = 0
    for cpus in sets:
        mask |= cpus.mask
    return CpuSet.of_mask(mask)


def union_by_name(named: Iterable[tuple[str, CpuSet]]) -> dict[str, CpuSet]:
    """For each name, the CPUs that are in any of its sets."""
    found: dict[str, CpuSet] = {}
    for name, cpus in named:
        found[name] = found.get(name, EMPTY) | cpus
    return found


# Most containers of a node have the same cpuset. Converting a fragmented one of a large machine takes milliseconds.
@lru_cache(maxsize=_CACHED)
def _parse(text: str) -> CpuSet:
    if not text:
        return EMPTY
    mask = 0
    for part in text.split(","):
        mask |= _parse_range(part, text)
    return CpuSet.of_mask(mask)


@lru_cache(maxsize=_CACHED)
def _text(mask: int) -> str:
    parts: list[str] = []
    base = 0
    while mask:
        gap = (mask & -mask).bit_length() - 1
        mask >>= gap
        base += gap
        run = (~mask & (mask + 1)).bit_length() - 1
        parts.append(str(base) if run == 1 else f"{base}-{base + run - 1}")
        mask >>= run
        base += run
    return ",".join(parts)


def _parse_range(part: str, text: str) -> int:
    first, dash, last = part.strip().partition("-")
    numbers = (first, last) if dash else (first, first)
    # isdecimal alone accepts digits of other scripts
    if not all(number.isascii() and number.isdecimal() for number in numbers):
        raise CpuSetError(f'"{text}" is not a cpuset: write CPU numbers and ranges like "0-3,8"')
    if max(len(number) for number in numbers) > len(str(MAX_CPU)) + 4:
        raise CpuSetError(f'"{part.strip()}" names a CPU above {MAX_CPU}, the highest that Linux can have')
    low, high = int(numbers[0]), int(numbers[1])
    if low > high:
        raise CpuSetError(f'"{part.strip()}" is reversed: write "{high}-{low}"')
    if high > MAX_CPU:
        raise CpuSetError(f'"{part.strip()}" names CPU {high}, above {MAX_CPU}, the highest that Linux can have')
    return (1 << (high + 1)) - (1 << low)
