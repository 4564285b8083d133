"""Machines to order: from a short description to what the kernel would show below /sys and /proc, and to the Topology
that must come out of it.

The two ways never meet: files are written from the places of the CPUs as a kernel would, `expected` goes from the
same places straight to the answer. A test that reads the files and compares is a proof.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from dracpu_agent.topology.model import CoreType, Cpu, Topology
from dracpu_api.cpuset import EMPTY, CpuSet

NOT_DESCRIBED = (
    "sysfs has no topology/core_cpus_list, topology/package_cpus_list, topology/physical_package_id, topology/core_id"
)
CAPACITIES: dict[CoreType, int] = {"standard": 1024, "p-core": 1024, "e-core": 446, "lp-e-core": 250}


class Quirk(Enum):
    """What kernels and firmware do differently from the textbook."""

    OLD_NAMES = auto()  # Linux < 5.3: thread_siblings_list and core_siblings_list only
    MASKS_ONLY = auto()  # older still: masks instead of every list
    NO_NUMA = auto()  # a kernel without NUMA: no node directory
    NO_CORE_ID = auto()
    PACKAGE_UNKNOWN = auto()  # physical_package_id is -1
    PACKAGE_REPEATS = auto()  # s390: socket ids count anew in each book
    NO_PACKAGE_LISTS = auto()  # only physical_package_id tells sockets apart
    NO_PACKAGES = auto()  # neither lists nor ids of sockets
    NO_L3_IDS = auto()  # arm64 without firmware tables: caches have no id
    L3_IDS_REPEAT = auto()  # L3 ids 0 and 1, over and over
    CLUSTER_UNKNOWN = auto()  # arm64: cluster_id 65535
    CAPACITY = auto()  # core types only by cpu_capacity, as on arm64
    NULL_NOHZ_FULL = auto()  # some kernels print "(null)"


@dataclass(frozen=True, slots=True)
class Place:
    """Where one CPU stands; indices count over the whole machine."""

    cpu: int
    core: int
    core_id: int
    socket: int
    die: int
    numa: int
    l3: int  # -1: none
    type: CoreType


@dataclass(frozen=True)
class Machine:
    """A machine: counts per socket for cores, for the whole machine otherwise."""

    name: str
    arch: str = "x86_64"
    sockets: int = 1
    cores: tuple[tuple[CoreType, int, int], ...] = (("standard", 4, 1),)  # (type, cores, threads of each), per socket
    # adjacent: a core's threads follow each other; split: first threads of all cores, then the second ones;
    # scattered: as split, and cores go around the sockets
    numbering: Literal["adjacent", "split", "scattered"] = "adjacent"
    dies: int = 0  # 0: one per socket; core ids count anew in each die
    numa_nodes: int = 0  # 0: one per socket
    l3_groups: int | None = None  # None: one per socket
    socket_ids: tuple[int, ...] = ()  # (): 0, 1, 2 ...; the same for the next two
    numa_ids: tuple[int, ...] = ()
    cpu_ids: tuple[int, ...] = ()
    empty_nodes: tuple[int, ...] = ()  # NUMA nodes without CPUs: memory, GPUs
    hidden_nodes: tuple[int, ...] = ()  # NUMA nodes that are offline while their CPUs are not
    offline: CpuSet = EMPTY
    undescribed: CpuSet = EMPTY  # online, but without a topology directory
    isolated: CpuSet = EMPTY
    nohz_full: CpuSet = EMPTY
    quirks: frozenset[Quirk] = frozenset()

    def but(self, *quirks: Quirk) -> "Machine":
        """The same machine with these quirks."""
        return replace(self, quirks=self.quirks | frozenset(quirks))

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """All CPUs, offline ones included, ascending by id."""
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
            # A low-power core stands on the chip's edge, outside of the ring that has the L3 cache.
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
        """What the kernel lists as online."""
        return CpuSet(place.cpu for place in self.places) - self.offline

    def socket_id(self, socket: int) -> int:
        """What the kernel calls a socket."""
        if Quirk.PACKAGE_UNKNOWN in self.quirks:
            return -1
        if Quirk.PACKAGE_REPEATS in self.quirks:
            return socket % 2
        return self.socket_ids[socket] if self.socket_ids else socket

    def numa_id(self, numa: int) -> int:
        """What the kernel calls a NUMA node."""
        return self.numa_ids[numa] if self.numa_ids else numa

    def l3_id(self, place: Place) -> int:
        """What the kernel calls the L3 cache of a CPU; -1: there is no id."""
        if Quirk.NO_L3_IDS in self.quirks:
            return -1
        if Quirk.L3_IDS_REPEAT in self.quirks:
            return place.l3 % 2
        return place.l3

    def expected(self) -> Topology:
        """What must be found out about the machine."""
        offered = [place for place in self.places if place.cpu in self.online - self.undescribed]
        lowest_of_core: dict[int, int] = {}
        lowest_of_l3: dict[int, int] = {}
        for place in offered:
            lowest_of_core.setdefault(place.core, place.cpu)
            lowest_of_l3.setdefault(place.l3, place.cpu)
        in_order = list(dict.fromkeys(place.socket for place in offered))
        socket_ids = [self.socket_id(socket) for socket in in_order]
        l3_ids = list({place.l3: self.l3_id(place) for place in offered if place.l3 >= 0}.values())

        def socket(place: Place) -> int:
            if Quirk.NO_PACKAGES in self.quirks or {Quirk.PACKAGE_UNKNOWN, Quirk.NO_PACKAGE_LISTS} <= self.quirks:
                return 0
            return self.socket_id(place.socket) if _tell_apart(socket_ids) else in_order.index(place.socket)

        def l3(place: Place) -> int:
            if place.l3 < 0:
                return -1
            return self.l3_id(place) if _tell_apart(l3_ids) else lowest_of_l3[place.l3]

        def core_id(place: Place) -> int:
            return lowest_of_core[place.core] if Quirk.NO_CORE_ID in self.quirks else place.core_id

        def core_type(place: Place) -> CoreType:
            only_by_strength = Quirk.CAPACITY in self.quirks and len({other.type for other in offered}) == 1
            return "standard" if only_by_strength else place.type

        return Topology(
            cpus=tuple(
                Cpu(
                    id=place.cpu,
                    core=lowest_of_core[place.core],
                    core_id=core_id(place),
                    socket=socket(place),
                    numa=0 if Quirk.NO_NUMA in self.quirks else self.numa_id(place.numa),
                    l3=l3(place),
                    type=core_type(place),
                )
                for place in offered
            ),
            arch=self.arch,
            offline=self.offline,
            isolated=self.isolated,
            nohz_full=self.nohz_full,
            incomplete=dict.fromkeys(self.undescribed, NOT_DESCRIBED),
        )

    def write_tree(self, root: Path) -> tuple[Path, Path]:
        """Writes what the kernel would show; returns the roots of sysfs and procfs below `root`."""
        sysfs, procfs = root / "sys", root / "proc"
        made: set[str] = set()
        for path, text in self._files():
            directory, _, name = path.rpartition("/")
            if directory not in made:
                (sysfs / directory).mkdir(parents=True, exist_ok=True)
                made.add(directory)
            (sysfs / directory / name).write_text(f"{text}\n", encoding="ascii")
        for place in self.places:
            if Quirk.NO_NUMA not in self.quirks:
                node = f"node{self.numa_id(place.numa)}"
                (sysfs / f"devices/system/cpu/cpu{place.cpu}" / node).symlink_to(f"../../node/{node}")
        (procfs / "sys/kernel").mkdir(parents=True)
        (procfs / "sys/kernel/arch").write_text(f"{self.arch}\n", encoding="ascii")
        return sysfs, procfs

    def _files(self) -> Iterator[tuple[str, object]]:
        """Paths below /sys, and what stands in them."""
        cpu = "devices/system/cpu"
        everything = CpuSet(place.cpu for place in self.places)
        yield f"{cpu}/possible", everything
        yield f"{cpu}/present", everything
        yield f"{cpu}/online", self.online
        yield f"{cpu}/isolated", self.isolated
        yield f"{cpu}/nohz_full", "  (null)" if Quirk.NULL_NOHZ_FULL in self.quirks else self.nohz_full
        yield f"{cpu}/smt/control", "on" if self.arch == "x86_64" else "notimplemented"
        for place in self.places:
            online = place.cpu not in self.offline
            yield f"{cpu}/cpu{place.cpu}/online", int(online)
            if Quirk.CAPACITY in self.quirks:
                yield f"{cpu}/cpu{place.cpu}/cpu_capacity", CAPACITIES[place.type]
            if online and place.cpu not in self.undescribed:
                yield from self._topology_files(place)
                yield from self._cache_files(place)
        yield from self._node_files()
        if Quirk.CAPACITY not in self.quirks and any(place.type != "standard" for place in self.places):
            low_power = self._sharing["type"].get("lp-e-core", EMPTY)
            yield "devices/cpu_core/cpus", self._sharing["type"].get("p-core", EMPTY)
            yield "devices/cpu_atom/cpus", self._sharing["type"].get("e-core", EMPTY) | low_power
            yield "devices/cpu_lowpower/cpus", low_power

    def _topology_files(self, own: Place) -> Iterator[tuple[str, object]]:
        directory = f"devices/system/cpu/cpu{own.cpu}/topology"
        lists = {
            "core_cpus": self._sharing["core"][own.core],
            "die_cpus": self._sharing["die"][own.die],
            "package_cpus": self._sharing["socket"][own.socket],
        }
        lists["thread_siblings"], lists["core_siblings"] = lists["core_cpus"], lists["package_cpus"]
        ids = {
            "core_id": own.core_id,
            "physical_package_id": self.socket_id(own.socket),
            "die_id": own.die,
            "cluster_id": 65535 if Quirk.CLUSTER_UNKNOWN in self.quirks else -1,
        }
        if Quirk.NO_CORE_ID in self.quirks:
            del ids["core_id"]
        if Quirk.NO_PACKAGES in self.quirks:
            del ids["physical_package_id"]
        if self.quirks & {Quirk.NO_PACKAGES, Quirk.NO_PACKAGE_LISTS}:
            del lists["package_cpus"], lists["core_siblings"]
        if Quirk.OLD_NAMES in self.quirks:
            lists = {name: cpus for name, cpus in lists.items() if name.endswith("siblings")}
        yield from ((f"{directory}/{name}", number) for name, number in ids.items())
        for name, cpus in lists.items():
            yield self._list(directory, name, f"{name}_list", cpus)

    def _cache_files(self, own: Place) -> Iterator[tuple[str, object]]:
        core = self._sharing["core"][own.core]
        caches = [(1, core, own.core), (2, core, own.core)]
        if own.l3 >= 0:
            caches.append((3, self._sharing["l3"][own.l3], self.l3_id(own)))
        for index, (level, cpus, cache_id) in enumerate(caches):
            directory = f"devices/system/cpu/cpu{own.cpu}/cache/index{index}"
            yield f"{directory}/level", level
            if Quirk.NO_L3_IDS not in self.quirks:
                yield f"{directory}/id", cache_id
            yield self._list(directory, "shared_cpu_map", "shared_cpu_list", cpus)

    def _node_files(self) -> Iterator[tuple[str, object]]:
        if Quirk.NO_NUMA in self.quirks:
            return
        nodes = {self.numa_id(place.numa): self._sharing["numa"][place.numa] for place in self.places}
        nodes |= dict.fromkeys(self.empty_nodes, EMPTY)
        shown = {node: cpus for node, cpus in nodes.items() if node not in self.hidden_nodes}
        yield "devices/system/node/online", CpuSet(shown)
        yield "devices/system/node/possible", CpuSet(nodes)
        for node, cpus in shown.items():
            directory = f"devices/system/node/node{node}"
            yield self._list(directory, "cpumap", "cpulist", cpus)

    def _list(self, directory: str, mask_name: str, list_name: str, cpus: CpuSet) -> tuple[str, object]:
        if Quirk.MASKS_ONLY in self.quirks:
            return f"{directory}/{mask_name}", _mask_text(cpus)
        return f"{directory}/{list_name}", cpus

    @cached_property
    def _sharing(self) -> Mapping[str, Mapping[object, CpuSet]]:
        """For each thing that CPUs share: which online CPUs share which one."""
        sharing: dict[str, dict[object, CpuSet]] = {}
        for what in ("core", "die", "socket", "numa", "l3", "type"):
            masks: dict[object, int] = {}
            for place in self.places:
                which = getattr(place, what)
                masks[which] = masks.get(which, 0) | (1 << place.cpu & self.online.mask)
            sharing[what] = {which: CpuSet.of_mask(mask) for which, mask in masks.items()}
        return sharing


def _tell_apart(ids: list[int]) -> bool:
    return all(number >= 0 for number in ids) and len(set(ids)) == len(ids)


def _mask_text(cpus: CpuSet) -> str:
    """The kernel's form: words of 32 bits, the highest first."""
    words = range(max(1, (cpus.mask.bit_length() + 31) // 32))
    return ",".join(f"{cpus.mask >> 32 * word & 0xFFFFFFFF:08x}" for word in reversed(words))


@contextmanager
def directory() -> Iterator[Path]:
    """A place for a tree: in memory where the system offers it, for a large machine is 10,000 small files."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as made:
        yield Path(made)


def uniform(cores: int, threads: int = 1) -> tuple[tuple[CoreType, int, int], ...]:
    """A socket of equal cores."""
    return (("standard", cores, threads),)


LAB = Machine("lab", sockets=2, cores=uniform(2, 2))
TINY = Machine("tiny", cores=uniform(1))
XEON_SNC2 = Machine("xeon-snc2", sockets=2, cores=uniform(32, 2), numbering="scattered", numa_nodes=4)
EPYC_NPS4 = Machine("epyc-nps4", sockets=2, cores=uniform(64, 2), numbering="split", numa_nodes=8, l3_groups=16)
EPYC_512 = Machine("epyc-512", sockets=2, cores=uniform(128, 2), numbering="split", numa_nodes=8, l3_groups=32)
HYBRID = Machine("hybrid-desktop", cores=(("p-core", 6, 2), ("e-core", 8, 1), ("lp-e-core", 2, 1)))
ARM64 = Machine("arm64-no-l3-ids", arch="aarch64", sockets=2, cores=uniform(64), numa_nodes=4, l3_groups=4).but(
    Quirk.NO_L3_IDS, Quirk.CLUSTER_UNKNOWN
)
BIG_LITTLE = Machine("big-little", arch="aarch64", cores=(("e-core", 4, 1), ("p-core", 4, 1)), l3_groups=0).but(
    Quirk.CAPACITY, Quirk.NO_NUMA
)
PPC64_SMT8 = Machine(
    "ppc64-smt8",
    arch="ppc64le",
    sockets=2,
    cores=uniform(4, 8),
    l3_groups=8,
    socket_ids=(0, 8),
    numa_ids=(0, 8),
    empty_nodes=(252, 253, 254, 255),  # GPU memory
    offline=CpuSet.parse("4-7,12-15,20-23,28-31,36-39,44-47,52-55,60-63"),
)
CPU0_OFFLINE = Machine("cpu0-offline", sockets=2, cores=uniform(4, 2), numbering="split", offline=CpuSet((0,)))
PRESETS = (
    LAB,
    TINY,
    XEON_SNC2,
    EPYC_NPS4,
    EPYC_512,
    HYBRID,
    ARM64,
    BIG_LITTLE,
    PPC64_SMT8,
    CPU0_OFFLINE,
)
