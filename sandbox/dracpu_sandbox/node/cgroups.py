"""The cgroup tree of a node: a folder of files as cgroup v2 shows them, and what the kernel does with memory by them.

Kubelet and runtime write through `CgroupTree.write`, which refuses and kills as the kernel does. An agent writes the
files themselves; what it has written counts from the next use of memory on.
"""

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from dracpu_api.cpuset import EMPTY, CpuSet, CpuSetError
from dracpu_api.quantity import format_binary
from dracpu_sandbox.errors import SandboxError
from dracpu_sandbox.node.containers import KILLED
from dracpu_sandbox.node.ram import ORDINARY, Ram

PODS: Final = "kubepods"
BUS_ERROR: Final = 135  # the exit code of a container that was ended by SIGBUS
UNLIMITED: Final = "max"

_BASE_PAGE: Final = 4096
_NUMBERS: Final = ("memory.min", "memory.low", "memory.high", "memory.max")
_FILES: Final[Mapping[str, str]] = {
    "cgroup.controllers": "cpuset cpu io memory hugetlb pids",
    "cpu.max": "max 100000",
    "cpu.weight": "100",
    "cpuset.cpus": "",
    "cpuset.mems": "",
    "memory.high": UNLIMITED,
    "memory.low": "0",
    "memory.max": UNLIMITED,
    "memory.min": "0",
    "memory.oom.group": "0",
    "memory.swap.max": UNLIMITED,
    "pids.max": UNLIMITED,
}

Killed = Callable[[str, int, str], object]  # the container's cgroup, its exit code, and why


class CgroupError(SandboxError):
    """The kernel refuses a write to a file of a cgroup."""


class NoMemoryError(SandboxError):
    """The kernel refuses memory, and the program continues without it."""


def page_name(page: int) -> str:
    """Returns how the names of cgroup files contain the size of a page, like 2MB."""
    return format_binary(page).replace("i", "B")


def limit_files(page: int) -> tuple[str, str]:
    """Returns the files that limit the pages that may be touched and those that may be reserved, in the order in which
    kubelet and runtime write them."""
    return f"hugetlb.{page_name(page)}.max", f"hugetlb.{page_name(page)}.rsvd.max"


class CgroupTree:
    """The cgroups below a folder. Names are paths without a leading slash; "" is the root."""

    def __init__(self, root: Path, ram: Ram) -> None:
        self.root = root
        self.ram = ram
        self.on_kill: Killed = lambda cgroup, code, reason: None
        self.on_use: Callable[[], object] = lambda: None  # the use of memory has changed
        self._scores: dict[str, int] = {}  # by container: oom_score_adj
        self._preferred: dict[str, CpuSet] = {}  # by container: NUMA nodes
        self._refused: dict[tuple[str, int], int] = {}  # by cgroup and page: how often pages were refused
        self._counted: Counter[tuple[str, str]] = Counter()  # by cgroup and event: for want of memory

    # ---- cgroups and files

    def make(self, cgroup: str, *, score: int = 0) -> None:
        """Makes a cgroup, and those that contain it; one that exists stays as it is."""
        if (self.root / cgroup).is_dir():
            return
        if cgroup:
            self.make(_parent(cgroup))
            self._scores[cgroup] = score
        (self.root / cgroup).mkdir(parents=True)
        limits = {file: UNLIMITED for page in self.ram.pages for file in limit_files(page)}
        for file, text in {**_FILES, **limits, **self._figures(cgroup)}.items():
            (self.root / cgroup / file).write_text(f"{text}\n", encoding="ascii")

    def prefer(self, container: str, nodes: CpuSet) -> None:
        """Sets the memory policy of a container's program; raises CgroupError if none of these nodes is allowed."""
        if nodes and nodes.isdisjoint(CpuSet(self.nodes_of(container))):
            raise CgroupError(f"set_mempolicy {nodes}: invalid argument")
        self._preferred[container] = nodes

    def remove(self, cgroup: str) -> None:
        """Removes a cgroup, whose programs have ended, with those in it."""
        shutil.rmtree(self.root / cgroup, ignore_errors=True)
        self._scores.pop(cgroup, None)
        self._preferred.pop(cgroup, None)
        self._release(cgroup)

    def clear(self) -> None:
        """Removes all cgroups, as when the machine is switched off."""
        shutil.rmtree(self.root, ignore_errors=True)
        self.ram.boot()
        self._scores.clear()
        self._preferred.clear()
        self._refused.clear()
        self._counted.clear()

    def read(self, cgroup: str, file: str) -> str:
        """Returns the content of a file; "" if it does not exist."""
        path = self.root / cgroup / file
        return path.read_text(encoding="ascii").strip() if path.is_file() else ""

    def write(self, cgroup: str, file: str, text: str) -> None:
        """Writes a file, as kubelet and runtime do; raises CgroupError where the kernel refuses this."""
        if not (self.root / cgroup / file).is_file():
            raise CgroupError(f"open /sys/fs/cgroup/{cgroup}/{file}: no such file or directory")
        problem = f"write /sys/fs/cgroup/{cgroup}/{file}: {{}}"
        page = next((page for page in self.ram.pages if file in limit_files(page)), None)
        if page is not None:
            reserves = file == limit_files(page)[1]
            used = self.ram.reserved(cgroup, page) if reserves else self.ram.touched(cgroup, page)
            text = _number(text, page, problem)
            if _size(text) < used:
                raise CgroupError(problem.format("device or resource busy"))
        elif file in _NUMBERS:
            text = _number(text, _BASE_PAGE, problem)
        elif file == "cpuset.mems":
            self._check_nodes(text, problem)
        self._put(cgroup, file, text)
        if file == "memory.max":
            self._shrink(cgroup)

    def _check_nodes(self, text: str, problem: str) -> None:
        try:
            nodes = CpuSet.parse(text)  # a list of nodes has the format of a list of CPUs
        except CpuSetError as error:
            raise CgroupError(problem.format("invalid argument")) from error
        if not nodes <= CpuSet(self.ram.known):
            raise CgroupError(problem.format("invalid argument"))

    def _put(self, cgroup: str, file: str, text: str) -> None:
        """Replaces the content in place: an agent watches the file that is there."""
        content = f"{text}\n".encode()
        descriptor = os.open(self.root / cgroup / file, os.O_WRONLY)
        try:
            os.pwrite(descriptor, content, 0)
            os.ftruncate(descriptor, len(content))
        finally:
            os.close(descriptor)

    # ---- what containers do

    def take(self, container: str, page: int, size: int, *, touch: bool = True) -> None:
        """Lets a container take memory: reserve hugepages as mmap does, and touch them; or touch ordinary memory.

        Raises NoMemoryError if pages are refused. Kills if ordinary memory is not there, or pages cannot be touched.
        """
        if page == ORDINARY:
            self._take_ordinary(container, -(-size // _BASE_PAGE) * _BASE_PAGE)
            return
        size = -(-size // page) * page
        file = limit_files(page)[1]
        for cgroup in _with_parents(container):
            if self.ram.reserved(cgroup, page) + size > self._limit(cgroup, file):
                self._refused[cgroup, page] = self._refused.get((cgroup, page), 0) + 1
                self._show(container)
                raise NoMemoryError(f"mmap: cannot allocate memory: {file} of /{cgroup}")
        if self.ram.left(page, self.nodes_of(container)) < size:
            raise NoMemoryError(f"mmap: cannot allocate memory: no free pages of {page_name(page)} on its NUMA nodes")
        self.ram.reserve(container, page, size)
        if touch:
            self.touch(container, page, size)
        self._show(container)

    def touch(self, container: str, page: int, size: int) -> None:
        """Lets a container touch pages that it has reserved; if they are not allowed or gone, the kernel ends it."""
        file, nodes = limit_files(page)[0], self.nodes_of(container)
        used = {cgroup: self.ram.touched(cgroup, page) for cgroup in _with_parents(container)}
        refused = any(touched + size > self._limit(cgroup, file) for cgroup, touched in used.items())
        if refused or self.ram.free(page, nodes) < size:
            self._kill(container, BUS_ERROR, "Error")
            return
        self.ram.touch(container, page, size, nodes)
        self._show(container)

    def _take_ordinary(self, container: str, size: int) -> None:
        nodes = self.nodes_of(container)
        while True:
            full = self._full(container, size)
            if full is not None:
                victims, total = self.ram.owners(full), self._limit(full, "memory.max")
            elif self.ram.left(ORDINARY, nodes) < size:
                near = set(nodes)
                victims = [owner for owner in self.ram.owners() if near & set(self.nodes_of(owner))]
                total = self.ram.total(nodes)
            else:
                break
            victim = self.ram.worst([container, *victims], self._scores, int(total))
            assert victim is not None
            self._kill_for_memory(victim, full)
            if victim == container:
                return
        self.ram.touch(container, ORDINARY, size, nodes)
        self._show(container)

    def _full(self, container: str, size: int) -> str | None:
        """Returns the nearest cgroup whose limit does not leave so much."""
        for cgroup in _with_parents(container):
            if self.ram.touched(cgroup, ORDINARY) + size > self._limit(cgroup, "memory.max"):
                return cgroup
        return None

    def _shrink(self, cgroup: str) -> None:
        """Kills until the use of a cgroup fits into its limit, as nothing here can be reclaimed."""
        while self.ram.touched(cgroup, ORDINARY) > self._limit(cgroup, "memory.max"):
            limit = int(self._limit(cgroup, "memory.max"))
            victim = self.ram.worst(self.ram.owners(cgroup), self._scores, limit)
            assert victim is not None
            self._kill_for_memory(victim, cgroup)

    def _kill_for_memory(self, container: str, full: str | None) -> None:
        """Kills a container because its limit or that of a cgroup above it is reached, or because no memory is left."""
        for cgroup, count in ((full, "oom"), (container, "oom_kill")):
            if cgroup is not None:
                self._counted[f"{cgroup} local", count] += 1
                self._counted.update((place, count) for place in _with_parents(cgroup))
                self._show(cgroup)
        self._kill(container, KILLED, "OOMKilled")

    def _kill(self, container: str, code: int, reason: str) -> None:
        self._release(container)
        self.on_kill(container, code, reason)

    def _release(self, cgroup: str) -> None:
        held = [self.ram.release(owner) for owner in self.ram.owners(cgroup)]
        if any(held):
            self._show(cgroup)

    def _limit(self, cgroup: str, file: str) -> float:
        return _size(self.read(cgroup, file) or UNLIMITED)

    def nodes_of(self, cgroup: str) -> list[int]:
        """Returns the NUMA nodes that may be used, the preferred ones first. As in cgroup v2, they are those of the
        parent if none of its own has memory."""
        outer = self.nodes_of(_parent(cgroup)) if cgroup else self.ram.nodes
        own = CpuSet.parse(self.read(cgroup, "cpuset.mems"))
        allowed = [node for node in outer if node in own] or outer
        preferred = self._preferred.get(cgroup, EMPTY)
        return sorted(allowed, key=lambda node: node not in preferred)

    # ---- what the kernel shows

    def _show(self, cgroup: str) -> None:
        """Writes the figures of a cgroup, as far as it exists, and of those that contain it."""
        for place in _with_parents(cgroup):
            if (self.root / place).is_dir():
                for file, text in self._figures(place).items():
                    self._put(place, file, text)
        self.on_use()

    def _figures(self, cgroup: str) -> dict[str, str]:
        used = self.ram.by_node(cgroup, ORDINARY)
        figures = {
            "memory.current": str(sum(used.values())),
            "memory.stat": f"anon {sum(used.values())}\nfile 0\nactive_file 0\ninactive_file 0",
            "memory.events": self._events(cgroup),
            "memory.events.local": self._events(f"{cgroup} local"),
            "memory.numa_stat": f"anon {_by_node(used)}\nfile {_by_node(dict.fromkeys(used, 0))}",
        }
        for page in self.ram.pages:
            prefix, touched = f"hugetlb.{page_name(page)}", self.ram.by_node(cgroup, page)
            figures |= {
                f"{prefix}.current": str(sum(touched.values())),
                f"{prefix}.events": f"max {self._refused.get((cgroup, page), 0)}",
                f"{prefix}.numa_stat": f"total={sum(touched.values())} {_by_node(touched)}",
                f"{prefix}.rsvd.current": str(self.ram.reserved(cgroup, page)),
            }
        return figures

    def _events(self, cgroup: str) -> str:
        counted = {event: self._counted[cgroup, event] for event in ("low", "high", "max", "oom", "oom_kill")}
        return "\n".join(f"{event} {count}" for event, count in counted.items())


def _by_node(sizes: Mapping[int, int]) -> str:
    return " ".join(f"N{numa}={size}" for numa, size in sizes.items())


def _number(text: str, unit: int, problem: str) -> str:
    """Returns a limit as the kernel stores it: in whole pages."""
    if text != UNLIMITED and not text.isdecimal():
        raise CgroupError(problem.format("invalid argument"))
    return text if text == UNLIMITED else str(int(text) // unit * unit)


def _size(text: str) -> float:
    return float("inf") if text == UNLIMITED else int(text)


def _parent(cgroup: str) -> str:
    return cgroup.rpartition("/")[0]


def _with_parents(cgroup: str) -> Iterator[str]:
    """Yields a cgroup and those that contain it, the root excluded, which has no limits."""
    while cgroup:
        yield cgroup
        cgroup = _parent(cgroup)
