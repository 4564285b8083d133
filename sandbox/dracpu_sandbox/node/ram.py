"""The memory of a machine while it runs: which NUMA nodes have how much left, and what each container holds. No I/O."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from dracpu_sandbox.machines.description import KIB_OF_LARGE, Memory

ORDINARY: Final = 0  # as the size of a page: memory that is no hugepage
_KIB: Final = 1024
_KERNEL_PART: Final = 20  # the kernel itself needs a part of each node's memory: one of so many


@dataclass
class _Pool:
    """The hugepages of one size on one NUMA node."""

    count: int  # that are wanted: more exist while more are in use, and those are surplus pages
    by_host: int  # that programs without a container use


class Ram:
    """The memory of a machine. Sizes are in bytes; what holds memory is named by its cgroup."""

    def __init__(self, banks: Iterable[Memory]) -> None:
        self._banks = {bank.numa: bank for bank in banks}
        self.boot()

    def boot(self) -> None:
        """Sets everything to what the machine's description says."""
        self._pools = {
            (size * _KIB, bank.numa): _Pool(count - surplus, count - free)
            for bank in self._banks.values()
            for size, count, free, surplus in bank.pages
        }
        # by container: page and NUMA node -> bytes that were touched; page -> bytes that were only reserved
        self._held: dict[str, Counter[tuple[int, int]]] = {}
        self._reserved: dict[str, Counter[int]] = {}

    @property
    def pages(self) -> list[int]:
        """The sizes of hugepages that the kernel supports."""
        return sorted({page for page, _ in self._pools})

    @property
    def known(self) -> list[int]:
        """The NUMA nodes of the machine, with or without memory."""
        return sorted(self._banks)

    @property
    def nodes(self) -> list[int]:
        """The NUMA nodes that have memory."""
        return sorted(numa for numa, bank in self._banks.items() if bank.kib)

    def total(self, nodes: Iterable[int]) -> int:
        """Returns the memory of NUMA nodes, hugepages included."""
        return sum(self._banks[numa].kib for numa in nodes) * _KIB

    def banks(self) -> tuple[Memory, ...]:
        """Returns the memory of each NUMA node, as the kernel's files show it now."""
        return tuple(
            replace(bank, pages=tuple(self._counts(bank)), used=self._used(ORDINARY, numa) // _KIB)
            for numa, bank in self._banks.items()
        )

    def _counts(self, bank: Memory) -> Iterator[tuple[int, int, int, int]]:
        for kib, *_ in bank.pages:
            existing, used = self._existing(kib * _KIB, bank.numa), self._used(kib * _KIB, bank.numa) // (kib * _KIB)
            yield kib, existing, existing - used, existing - self._pools[kib * _KIB, bank.numa].count

    # ---- what is left

    def left(self, page: int, nodes: Iterable[int]) -> int:
        """Returns the bytes on these NUMA nodes that can still be taken.

        Pages that containers have reserved and not touched count everywhere: it is not decided yet where they will be.
        """
        return self.free(page, nodes) - sum(kinds[page] for kinds in self._reserved.values())

    def free(self, page: int, nodes: Iterable[int]) -> int:
        """Returns the bytes on these NUMA nodes that nothing has touched."""
        return sum(self._left_on(page, numa) for numa in nodes)

    def _left_on(self, page: int, numa: int) -> int:
        if page != ORDINARY:
            return self._existing(page, numa) * page - self._used(page, numa)
        pages = sum(self._existing(size, numa) * size for size in self.pages)
        return max(0, self.total([numa]) - pages - self._used(ORDINARY, numa))

    def _existing(self, page: int, numa: int) -> int:
        pool = self._pools.get((page, numa))
        return 0 if pool is None else max(pool.count, self._used(page, numa) // page)

    def _used(self, page: int, numa: int) -> int:
        by_host = self._pools[page, numa].by_host * page if (page, numa) in self._pools else 0
        if page == ORDINARY:
            by_host = max(self._banks[numa].used * _KIB, self.total([numa]) // _KERNEL_PART)
        return by_host + sum(held[page, numa] for held in self._held.values())

    # ---- what containers do

    def reserve(self, owner: str, page: int, size: int) -> None:
        """Reserves pages, as mmap does."""
        self._reserved.setdefault(owner, Counter())[page] += size

    def touch(self, owner: str, page: int, size: int, nodes: Iterable[int]) -> None:
        """Takes memory on the first of these NUMA nodes that have some left; pages must be reserved before."""
        if page != ORDINARY:
            self._reserved[owner][page] -= size
        held = self._held.setdefault(owner, Counter())
        for numa in nodes:
            part = min(size, self._left_on(page, numa))
            held[page, numa] += part
            size -= part

    def release(self, owner: str) -> bool:
        """Gives back everything that a container holds, because it has ended; returns whether it held anything."""
        return any([self._held.pop(owner, None), self._reserved.pop(owner, None)])

    def set_pages(self, page: int, numa: int, count: int) -> None:
        """Changes the number of pages of a NUMA node while the machine runs, as a write to nr_hugepages does.

        The kernel makes only as many as it finds room for, and of pages of 1 GiB none: memory is fragmented by then.
        """
        pool = self._pools[page, numa]
        room = self._left_on(ORDINARY, numa) // page if page < KIB_OF_LARGE * _KIB else 0
        pool.count = min(count, max(pool.count, self._existing(page, numa) + room))

    # ---- what containers hold

    def owners(self, cgroup: str = "") -> list[str]:
        """Returns the containers in a cgroup that hold memory."""
        return [owner for owner in {**self._held, **self._reserved} if _is_in(owner, cgroup)]

    def touched(self, cgroup: str, page: int) -> int:
        """Returns the bytes that containers in a cgroup have touched."""
        return sum(self.by_node(cgroup, page).values())

    def reserved(self, cgroup: str, page: int) -> int:
        """Returns the bytes that containers in a cgroup have reserved, touched ones included."""
        only = sum(kinds[page] for owner, kinds in self._reserved.items() if _is_in(owner, cgroup))
        return only + self.touched(cgroup, page)

    def by_node(self, cgroup: str, page: int) -> Mapping[int, int]:
        """Returns the bytes that containers in a cgroup have touched, by NUMA node."""
        return {
            numa: sum(held[page, numa] for owner, held in self._held.items() if _is_in(owner, cgroup))
            for numa in self.nodes
        }

    def worst(self, owners: Collection[str], scores: Mapping[str, int], total: int) -> str | None:
        """Returns the container that the kernel kills to have memory again: the one that uses most, where the score of
        a container moves its use by thousandths of what there is."""
        return max(
            owners,
            key=lambda owner: self.touched(owner, ORDINARY) + scores.get(owner, 0) * total // 1000,
            default=None,
        )


def _is_in(owner: str, cgroup: str) -> bool:
    return not cgroup or owner == cgroup or owner.startswith(f"{cgroup}/")
