"""The machine as util-linux' lscpu reads it: another pair of eyes on the same /sys.

lscpu reads the masks (`core_cpus`, `shared_cpu_map`), our reader the lists beside them where there are any. A kernel
always has both; trees of tests have one of them, so the masks are added here.
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
# lscpu knows the older names only, which kernels still have beside the newer ones.
_OLDER: Final = {"core_cpus": "thread_siblings", "package_cpus": "core_siblings"}

Partition = set[frozenset[int]]


def partitions(root: Path) -> Mapping[str, Partition]:
    """For each of COLUMNS which online CPUs lscpu puts together. Adds to the tree what lscpu needs."""
    online = CpuSet.parse((root / "sys/devices/system/cpu/online").read_text())
    for path, text in list(_missing(root / "sys/devices/system")):
        path.write_text(text, encoding="ascii")
    # Without this it looks at 2,048 CPUs only.
    (root / "sys/devices/system/cpu/kernel_max").write_text(f"{MAX_CPU}\n")
    # Without cpuinfo there is no CPU for lscpu.
    (root / "proc/cpuinfo").write_text("".join(f"processor\t: {cpu}\nmodel name\t: x\n\n" for cpu in online))
    return _asked("--sysroot", str(root))


def partitions_here() -> Mapping[str, Partition]:
    """The same of the machine that we run on, as far as lscpu tells."""
    return {column: groups for column, groups in _asked().items() if groups}


def _asked(*options: str) -> Mapping[str, Partition]:
    words = ["lscpu", *options, "--online", "--parse=CPU,CORE,SOCKET,NODE,CACHE"]
    printed = subprocess.run(words, capture_output=True, check=True, text=True, timeout=30).stdout.splitlines()
    # The last line of the comment names the columns; there is none for a cache that nobody has.
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
        if path.read_text().strip() == "3":  # a cache without type is none for lscpu: so it shows L3 alone
            yield path.with_name("type"), "Unified\n"


def mask_text(cpus: CpuSet) -> str:
    """The kernel's form: words of 32 bits, the highest first."""
    words = range(max(1, (cpus.mask.bit_length() + 31) // 32))
    return ",".join(f"{cpus.mask >> 32 * word & 0xFFFFFFFF:08x}" for word in reversed(words)) + "\n"


def _grouped(rows: list[list[str]], place: int) -> Partition:
    """CPUs with the same value in a column; those without any are in no group."""
    groups: dict[str, set[int]] = {}
    for row in rows:
        if len(row) > place and row[place] not in ("", "-"):
            groups.setdefault(row[place], set()).add(int(row[0]))
    return {frozenset(cpus) for cpus in groups.values()}
