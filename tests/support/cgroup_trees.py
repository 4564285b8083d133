"""Writes the files of a cgroup v2 tree that the agent reads."""

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
