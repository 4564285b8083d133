"""Writes the files of a cgroup v2 tree that the agent reads."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

CONTROLLERS: Final = "cpuset cpu io memory hugetlb pids"


def write_cgroup(
    cgroup: Path, cpus: str = "", *, limit: str = "", controllers: str = CONTROLLERS, populated: bool = True
) -> Path:
    """Writes a cgroup, or the root of a tree, with this cpuset and these effective CPUs; returns its directory."""
    cgroup.mkdir(parents=True, exist_ok=True)
    (cgroup / "cgroup.controllers").write_text(f"{controllers}\n")
    (cgroup / "cgroup.events").write_text(f"populated {int(populated)}\nfrozen 0\n")
    if "cpuset" in controllers.split():
        (cgroup / "cpuset.cpus").write_text(f"{limit}\n")
        (cgroup / "cpuset.cpus.effective").write_text(f"{cpus}\n")
    return cgroup


def write_limits(
    cgroup: Path, limits: Mapping[str, str], *, reserved: Mapping[str, str] | None = None, counts_reserved: bool = True
) -> Path:
    """Writes the limits of hugepages of a cgroup, by size as the kernel names it ("2MB"); returns its directory."""
    for size, limit in limits.items():
        (cgroup / f"hugetlb.{size}.max").write_text(f"{limit}\n")
        if counts_reserved:
            (cgroup / f"hugetlb.{size}.rsvd.max").write_text(f"{(reserved or limits)[size]}\n")
    return cgroup


def write_tree(mount: Path, place: str) -> Path:
    """Writes a cgroup and all cgroups above it up to the root of the tree; returns its directory."""
    write_cgroup(mount)
    for parent in reversed(Path(place).parents[:-1]):
        write_cgroup(mount / parent)
    return write_cgroup(mount / place)


def write_use(cgroup: Path, memory: tuple[int, int], pages: tuple[int, int] = (0, 0)) -> None:
    """Writes what the kernel shows of a container's use on the two NUMA nodes."""
    files = {
        "memory.current": str(sum(memory)),
        "memory.max": "max",
        "memory.stat": f"anon {sum(memory)}\nfile 0",
        "memory.numa_stat": f"anon N0={memory[0]} N1={memory[1]}\nfile N0=0 N1=0",
        "hugetlb.2MB.current": str(sum(pages)),
        "hugetlb.2MB.rsvd.current": str(sum(pages)),
        "hugetlb.2MB.numa_stat": f"total={sum(pages)} N0={pages[0]} N1={pages[1]}",
    }
    for name, text in files.items():
        (cgroup / name).write_text(f"{text}\n")
