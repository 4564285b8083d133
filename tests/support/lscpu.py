"""Reads a machine with util-linux' lscpu, to compare its result with that of host/sysfs.py.

lscpu reads masks (`core_cpus`, `shared_cpu_map`); host/sysfs.py prefers lists. A kernel has both. The tests' trees have
one of them, so this module adds the masks.
"""

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from dracpu_api.cpuset import MAX_CPU, CpuSet

AVAILABLE: Final = shutil.which("lscpu") is not None
COLUMNS: Final = ("Core", "Socket", "Node", "L3")
_MASK_OF: Final = {
    "core_cpus_list": "core_cpus",
    "package_cpus_list": "package_cpus",
    "thread_siblings_list": "thread_siblings",
    "core_siblings_list": "core_siblings",
    "shared_cpu_list": "shared_cpu_map",
    "cpulist": "cpumap",
}
# lscpu reads only the older names, which kernels still provide.
_OLDER: Final = {"core_cpus": "thread_siblings", "package_cpus": "core_siblings"}

Partition = set[frozenset[int]]


def partitions(root: Path) -> Mapping[str, Partition]:
    """For each of COLUMNS, the groups of online CPUs that lscpu reports. Adds files that lscpu needs to the tree."""
    online = CpuSet.parse((root / "sys/devices/system/cpu/online").read_text())
    for path, text in list(_missing(root / "sys/devices/system")):
        path.write_text(text, encoding="ascii")
    # lscpu assumes 2,048 CPUs without this file.
    (root / "sys/devices/system/cpu/kernel_max").write_text(f"{MAX_CPU}\n")
    # lscpu finds no CPU without cpuinfo.
    (root / "proc/cpuinfo").write_text("".join(f"processor\t: {cpu}\nmodel name\t: x\n\n" for cpu in online))
    return _run("--sysroot", str(root))


def partitions_here() -> Mapping[str, Partition]:
    """The groups of the machine that runs the tests; columns that lscpu leaves empty are absent."""
    return {column: groups for column, groups in _run().items() if groups}


def _run(*options: str) -> Mapping[str, Partition]:
    words = ["lscpu", *options, "--online", "--parse=CPU,CORE,SOCKET,NODE,CACHE"]
    printed = subprocess.run(words, capture_output=True, check=True, text=True, timeout=30).stdout.splitlines()
    # The last line of the comment names the columns; a cache that no CPU has gets no column.
    heading = [line for line in printed if line.startswith("#")][-1].split(",")
    rows = [line.split(",") for line in printed if not line.startswith("#")]
    return {name: _grouped(rows, heading.index(name)) if name in heading else set() for name in COLUMNS}


def _missing(system: Path) -> Iterator[tuple[Path, str]]:
    for list_name, mask_name in _MASK_OF.items():
        for path in system.rglob(list_name):
            yield path.with_name(mask_name), mask_text(CpuSet.parse(path.read_text()))
    for name, older in _OLDER.items():
        for path in system.rglob(name):
            yield path.with_name(older), path.read_text()
        for path in system.rglob(f"{name}_list"):
            yield path.with_name(older), mask_text(CpuSet.parse(path.read_text()))
    for path in system.rglob("level"):
        if path.read_text().strip() == "3":  # lscpu ignores a cache without a type, so it reports only L3
            yield path.with_name("type"), "Unified\n"


def mask_text(cpus: CpuSet) -> str:
    """The kernel's format: words of 32 bits, the highest first."""
    words = range(max(1, (cpus.mask.bit_length() + 31) // 32))
    return ",".join(f"{cpus.mask >> 32 * word & 0xFFFFFFFF:08x}" for word in reversed(words)) + "\n"


def _grouped(rows: list[list[str]], place: int) -> Partition:
    """Groups of CPUs with the same value in a column; CPUs without a value are in no group."""
    groups: dict[str, set[int]] = {}
    for row in rows:
        if len(row) > place and row[place] not in ("", "-"):
            groups.setdefault(row[place], set()).add(int(row[0]))
    return {frozenset(cpus) for cpus in groups.values()}
