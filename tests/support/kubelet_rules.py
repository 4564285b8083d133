"""The kubelet's allocation rules, implemented literally with sets and brute force.

It is slow and simple on purpose: tests compare the allocator with it on random machines. It differs from the kubelet in
two bugs on uneven machines: it uses each group's own size, and counts a group or CPU that occurs twice once.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from math import ceil, floor, sqrt

from dracpu_agent.topology.topology import Topology

Groups = dict[int, set[int]]
Parts = tuple[tuple[int, int, int], ...]  # (position of the group, base, chunks of the remainder)


class Rules:
    """The allocation rules for one machine."""

    def __init__(self, topology: Topology) -> None:
        self.cpus = {cpu.id for cpu in topology.cpus}
        self.sockets = _grouped((cpu.id, cpu.socket) for cpu in topology.cpus)
        self.nodes = _grouped((cpu.id, cpu.numa) for cpu in topology.cpus)
        self.uncores = _grouped((cpu.id, cpu.socket if cpu.l3 < 0 else cpu.l3) for cpu in topology.cpus)
        self.cores = _grouped((cpu.id, cpu.core) for cpu in topology.cpus)
        self.numa_first = len(self.sockets) >= len(self.nodes)
        self.per_core = len(self.cpus) // len(self.cores)
        self.per_uncore = len(self.cpus) // len(self.uncores)

    def socket_order(self, free: set[int]) -> list[int]:
        if self.numa_first:
            return _inside(self.sockets, [self.nodes[node] for node in self.node_order(free)], free)
        return _inside(self.sockets, [self.cpus], free)

    def node_order(self, free: set[int]) -> list[int]:
        if self.numa_first:
            return _inside(self.nodes, [self.cpus], free)
        return _inside(self.nodes, [self.sockets[socket] for socket in self.socket_order(free)], free)

    def uncore_order(self, free: set[int]) -> list[int]:
        return _inside(self.uncores, [self.nodes[node] for node in self.node_order(free)], free)

    def core_order(self, free: set[int]) -> list[int]:
        if self.numa_first:
            return _inside(self.cores, [self.sockets[socket] for socket in self.socket_order(free)], free)
        return _inside(self.cores, [self.nodes[node] for node in self.node_order(free)], free)

    def cpu_order(self, free: set[int], *, spread: bool) -> list[int]:
        if spread:
            groups = [self.sockets[socket] for socket in self.socket_order(free)]
        else:
            groups = [self.cores[core] for core in self.core_order(free)]
        return list(dict.fromkeys(cpu for group in groups for cpu in sorted(group & free)))

    def packed(self, available: set[int], count: int, *, prefer_uncore: bool, spread: bool) -> set[int]:
        """Allocates packed CPUs; requires enough free CPUs."""
        free = available & self.cpus
        taken: set[int] = set()

        def take(cpus: set[int]) -> None:
            taken.update(cpus)
            free.difference_update(cpus)

        def take_full(groups: Groups, order: Callable[[set[int]], list[int]]) -> None:
            for group in [groups[group] for group in order(free) if groups[group] <= free]:
                if group <= free and count - len(taken) >= len(group):
                    take(group)

        steps = [(self.nodes, self.node_order), (self.sockets, self.socket_order)]
        for groups, order in steps if self.numa_first else reversed(steps):
            take_full(groups, order)
        if prefer_uncore:
            for uncore in self.uncore_order(free):
                if len(taken) < count and count - len(taken) >= self.per_uncore:
                    take_full(self.uncores, self.uncore_order)
                if len(taken) < count:
                    take(self._part(self.uncores[uncore], free, count - len(taken)))
        if not spread:
            take_full(self.cores, self.core_order)
        take(set(self.cpu_order(free, spread=spread)[: count - len(taken)]))
        return taken

    def distributed(self, available: set[int], count: int, chunk: int, *, spread: bool) -> set[int]:
        """Allocates CPUs distributed over NUMA nodes; requires enough free CPUs."""
        free = available & self.cpus
        order = [self.nodes[node] & free for node in self.node_order(free)]
        chunks_per_node = ceil(ceil(len(self.cpus) / chunk) / len(self.nodes))
        fewest = ceil(count // chunk / chunks_per_node)
        found = parts([len(node) for node in order], count, chunk, fewest) if count % chunk == 0 else None
        if found is None:
            return self.packed(free, count, prefer_uncore=False, spread=spread)
        taken: set[int] = set()
        for node, base, chunks in found:
            for part in [base] + [chunk] * chunks:
                taken |= self.packed(order[node] - taken, part, prefer_uncore=False, spread=spread)
        return taken

    def _part(self, uncore: set[int], free: set[int], need: int) -> set[int]:
        cores = [core for core in sorted(self.cores) if self.cores[core] & uncore & free]
        wanted = cores[: -(-need // self.per_core)]
        cpus = set().union(*(self.cores[core] & free for core in wanted))
        if need % 2 and self.per_core > 1 and len(cpus) > need:
            cpus.remove(max(cpus))
        return cpus if len(cpus) == need else set()


def parts(free: Sequence[int], count: int, chunk: int, fewest: int) -> Parts | None:
    """Runs the distributed search: it tries every subset, and for the remainder every subset of each subset."""
    for size in range(max(fewest, 1), min(count // chunk, len(free)) + 1):
        base = count // size // chunk * chunk
        best: tuple[float, Parts] | None = None
        for members in combinations(range(len(free)), size):
            if sum(free[member] // chunk for member in members) * chunk < count:
                continue
            if any(free[member] < base for member in members):
                continue
            for score, chunks in _splits(free, members, base, chunk, count - size * base):
                if best is None or score < best[0]:
                    best = score, tuple((member, base, chunks.get(member, 0)) for member in members)
        if best is not None:
            return best[1]
    return None


def _splits(
    free: Sequence[int], members: tuple[int, ...], base: int, chunk: int, remainder: int
) -> Iterable[tuple[float, dict[int, int]]]:
    after = [cpus - base if group in members else cpus for group, cpus in enumerate(free)]
    if remainder == 0:
        yield _deviation(after), {}
        return
    able = [member for member in members if after[member] >= chunk]
    for size in range(len(able), 0, -1):
        for selection in combinations(able, size):
            if sum(after[member] // chunk for member in selection) * chunk < remainder:
                continue
            left, remaining, chunks = list(after), remainder, dict.fromkeys(selection, 0)
            while remaining:
                for member in selection:
                    if remaining and left[member] >= chunk:
                        left[member] -= chunk
                        remaining -= chunk
                        chunks[member] += 1
            yield _deviation(left), chunks


def _deviation(values: Sequence[int]) -> float:
    mean = floor(sum(values) / len(values) * 1000 + 0.5) / 1000
    return floor(sqrt(sum((value - mean) ** 2 for value in values) / len(values)) * 1000 + 0.5) / 1000


def _grouped(pairs: Iterable[tuple[int, int]]) -> Groups:
    groups: Groups = {}
    for cpu, group in pairs:
        groups.setdefault(group, set()).add(cpu)
    return groups


def _inside(groups: Groups, parents: Iterable[set[int]], free: set[int]) -> list[int]:
    """Returns the groups with a free CPU, by parent: fewest free CPUs first, then the lowest id."""
    order: dict[int, None] = {}
    for parent in parents:
        found = [group for group, cpus in groups.items() if cpus & parent & free]
        order.update(dict.fromkeys(sorted(found, key=lambda group: (len(groups[group] & free), group))))
    return list(order)
