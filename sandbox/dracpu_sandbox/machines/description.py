"""Describes machines, and derives the place of each CPU from the description.

`tree.write_tree` writes the files that a kernel would show. In the tests, `machine_answers.topology_of` computes the
expected Topology without any file, so that a test can compare it with the Topology that is read from the files.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import cached_property
from typing import Final, Literal

from dracpu_agent.topology.topology import CoreType
from dracpu_api.cpuset import EMPTY, CpuSet

KIB_OF_SMALL: Final = 2048  # a hugepage of 2 MiB
KIB_OF_LARGE: Final = 1 << 20  # a hugepage of 1 GiB
TIER_OF_DRAM: Final = 4  # the kernel's number


class Quirk(Enum):
    """Peculiarities of kernels and firmware."""

    OLD_NAMES = auto()  # Linux < 5.3: thread_siblings_list and core_siblings_list only
    MASKS_ONLY = auto()  # older still: masks instead of every list
    NO_NUMA = auto()  # a kernel without NUMA: no node directory
    NO_CORE_ID = auto()
    PACKAGE_UNKNOWN = auto()  # physical_package_id is -1
    PACKAGE_REPEATS = auto()  # s390: socket ids count anew in each book
    NO_PACKAGE_LISTS = auto()  # only physical_package_id distinguishes sockets
    NO_PACKAGES = auto()  # neither lists nor ids of sockets
    NO_L3_IDS = auto()  # arm64 without firmware tables: caches have no id
    L3_IDS_REPEAT = auto()  # the L3 ids 0 and 1 repeat
    CLUSTER_UNKNOWN = auto()  # arm64: cluster_id 65535
    CAPACITY = auto()  # core types only by cpu_capacity, as on arm64
    NULL_NOHZ_FULL = auto()  # some kernels print "(null)"


@dataclass(frozen=True, slots=True)
class Place:
    """The place of one CPU; all indices count over the whole machine."""

    cpu: int
    core: int
    core_id: int
    socket: int
    die: int
    numa: int
    l3: int  # -1: none
    type: CoreType


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of one NUMA node."""

    numa: int  # the kernel's id
    kib: int
    pages: tuple[tuple[int, int, int, int], ...] = ()  # (KiB of a page, pages, free ones, surplus ones)
    tier: int | None = None  # None: a kernel without memory tiers
    used: int = 0  # KiB that programs use, without hugepages

    @property
    def free(self) -> int:
        """KiB that are neither hugepages nor used."""
        return max(0, self.kib - self.used - sum(size * count for size, count, _, _ in self.pages))


@dataclass(frozen=True)
class Machine:
    """A machine: `cores` counts per socket, everything else counts over the whole machine."""

    name: str
    arch: str = "x86_64"
    sockets: int = 1
    cores: tuple[tuple[CoreType, int, int], ...] = (("standard", 4, 1),)  # (type, cores, threads per core), per socket
    # adjacent: the threads of a core follow each other; split: the first threads of all cores, then the second ones;
    # scattered: as split, but consecutive cores alternate between the sockets
    numbering: Literal["adjacent", "split", "scattered"] = "adjacent"
    dies: int = 0  # 0: one per socket; core ids count anew in each die
    numa_nodes: int = 0  # 0: one per socket
    l3_groups: int | None = None  # None: one per socket
    socket_ids: tuple[int, ...] = ()  # (): 0, 1, 2 ..., also in the next two fields
    numa_ids: tuple[int, ...] = ()
    cpu_ids: tuple[int, ...] = ()
    empty_nodes: tuple[int, ...] = ()  # NUMA nodes without CPUs: memory, GPUs
    hidden_nodes: tuple[int, ...] = ()  # NUMA nodes that are offline while their CPUs are not
    offline: CpuSet = EMPTY
    undescribed: CpuSet = EMPTY  # online, but without a topology directory
    isolated: CpuSet = EMPTY
    nohz_full: CpuSet = EMPTY
    pcie: tuple[tuple[str, int], ...] = ()  # PCIe roots, each with its NUMA node; -1: unknown
    memory: tuple[Memory, ...] = ()
    quirks: frozenset[Quirk] = frozenset()
    given: tuple[Place, ...] = ()  # replaces all counts: each CPU's place, by ascending id; indices are ids

    def with_quirks(self, *quirks: Quirk) -> "Machine":
        """Returns a copy of the machine with these quirks."""
        return replace(self, quirks=self.quirks | frozenset(quirks))

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """Returns the places of all CPUs, including offline ones, by ascending id."""
        return self.given or self._counted()

    def _counted(self) -> tuple[Place, ...]:
        per_socket = [(core_type, threads) for core_type, count, threads in self.cores for _ in range(count)]
        total = self.sockets * len(per_socket)
        slots = []  # (core, thread), in the order in which CPUs are numbered
        for core in range(total):
            slots += [(core, thread) for thread in range(per_socket[core % len(per_socket)][1])]
        if self.numbering == "split":
            slots.sort(key=lambda slot: (slot[1], slot[0]))
        elif self.numbering == "scattered":
            slots.sort(key=lambda slot: (slot[1], slot[0] % len(per_socket), slot[0] // len(per_socket)))

        dies = self.dies or self.sockets
        l3_groups = self.sockets if self.l3_groups is None else self.l3_groups
        places = []
        for cpu, (core, _) in zip(self.cpu_ids or range(len(slots)), slots, strict=True):
            core_type = per_socket[core % len(per_socket)][0]
            # A low-power core lies outside of the ring that shares the L3 cache.
            has_l3 = l3_groups > 0 and core_type != "lp-e-core"
            places.append(
                Place(
                    cpu=cpu,
                    core=core,
                    core_id=core % (total // dies),
                    socket=core // len(per_socket),
                    die=core * dies // total,
                    numa=core * (self.numa_nodes or self.sockets) // total,
                    l3=core * l3_groups // total if has_l3 else -1,
                    type=core_type,
                )
            )
        return tuple(sorted(places, key=lambda place: place.cpu))

    @cached_property
    def online(self) -> CpuSet:
        """Returns the CPUs that the kernel lists as online."""
        return CpuSet(place.cpu for place in self.places) - self.offline

    def close_to(self, numa: int) -> CpuSet:
        """Returns the online CPUs that the kernel reports as local to a NUMA node; all if the node is unknown."""
        return self.online if numa < 0 else self.sharing["numa"][numa]

    def socket_id(self, socket: int) -> int:
        """Returns the kernel's id of a socket."""
        if Quirk.PACKAGE_UNKNOWN in self.quirks:
            return -1
        if Quirk.PACKAGE_REPEATS in self.quirks:
            return socket % 2
        return self.socket_ids[socket] if self.socket_ids else socket

    def numa_id(self, numa: int) -> int:
        """Returns the kernel's id of a NUMA node."""
        return self.numa_ids[numa] if self.numa_ids else numa

    def l3_id(self, place: Place) -> int:
        """Returns the kernel's id of a CPU's L3 cache; -1: it has none."""
        if Quirk.NO_L3_IDS in self.quirks:
            return -1
        if Quirk.L3_IDS_REPEAT in self.quirks:
            return place.l3 % 2
        return place.l3

    @cached_property
    def sharing(self) -> Mapping[str, Mapping[object, CpuSet]]:
        """Returns the online CPUs of each core, die, socket, NUMA node, L3 cache and core type."""
        sharing: dict[str, dict[object, CpuSet]] = {}
        for what in ("core", "die", "socket", "numa", "l3", "type"):
            masks: dict[object, int] = {}
            for place in self.places:
                which = getattr(place, what)
                masks[which] = masks.get(which, 0) | (1 << place.cpu & self.online.mask)
            sharing[what] = {which: CpuSet.of_mask(mask) for which, mask in masks.items()}
        return sharing


def equipped(nodes: Iterable[int], gib: int, *, small: int = 0, large: int = 0) -> tuple[Memory, ...]:
    """Returns the memory of NUMA nodes that have the same: GiB, and how many hugepages of 2 MiB and of 1 GiB."""
    pages = ((KIB_OF_SMALL, small, small, 0), (KIB_OF_LARGE, large, large, 0))
    return tuple(Memory(node, gib << 20, pages, TIER_OF_DRAM) for node in nodes)


def uniform(cores: int, threads: int = 1) -> tuple[tuple[CoreType, int, int], ...]:
    """Returns the cores of a socket that has one type of core."""
    return (("standard", cores, threads),)
