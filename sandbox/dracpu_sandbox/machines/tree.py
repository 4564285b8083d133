"""Writes the files below /sys and /proc that the kernel would show for a machine."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from dracpu_agent.topology.topology import CoreType
from dracpu_api.cpuset import EMPTY, CpuSet
from dracpu_sandbox.machines.description import Machine, Place, Quirk
from dracpu_sandbox.machines.memory_files import memory_files

CAPACITIES: Final[Mapping[CoreType, int]] = {"standard": 1024, "p-core": 1024, "e-core": 446, "lp-e-core": 250}


def write_tree(machine: Machine, root: Path) -> tuple[Path, Path]:
    """Writes the files of a machine; returns the roots of sysfs and procfs below `root`."""
    sysfs, procfs = root / "sys", root / "proc"
    made: set[str] = set()
    for path, text in _files(machine):
        directory, _, name = path.rpartition("/")
        if directory not in made:
            (sysfs / directory).mkdir(parents=True, exist_ok=True)
            made.add(directory)
        (sysfs / directory / name).write_text(f"{text}\n", encoding="ascii")
    for place in machine.places:
        if Quirk.NO_NUMA not in machine.quirks:
            node = f"node{machine.numa_id(place.numa)}"
            (sysfs / f"devices/system/cpu/cpu{place.cpu}" / node).symlink_to(f"../../node/{node}")
    (procfs / "sys/kernel").mkdir(parents=True)
    (procfs / "sys/kernel/arch").write_text(f"{machine.arch}\n", encoding="ascii")
    for path, content in memory_files(machine):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content, encoding="ascii")
    return sysfs, procfs


def shared_tree(machine: Machine, shelf: Path) -> Path:
    """Returns a folder with the machine's files. Equal machines share it, so it must not be changed.

    A machine has thousands of small files, and a fleet has hundreds of equal nodes.
    """
    tree = shelf / f"{machine.name}-{sha256(repr(machine).encode()).hexdigest()[:12]}"
    if not tree.exists():
        shelf.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=shelf) as made:
            fresh = Path(made, "tree")
            write_tree(machine, fresh)
            try:
                fresh.rename(tree)
            except OSError:
                if not tree.exists():  # otherwise another node has written it first
                    raise
    return tree


def _files(machine: Machine) -> Iterator[tuple[str, object]]:
    """Yields paths below /sys with their contents."""
    cpu = "devices/system/cpu"
    everything = CpuSet(place.cpu for place in machine.places)
    yield f"{cpu}/possible", everything
    yield f"{cpu}/present", everything
    yield f"{cpu}/online", machine.online
    yield f"{cpu}/isolated", machine.isolated
    yield f"{cpu}/nohz_full", "  (null)" if Quirk.NULL_NOHZ_FULL in machine.quirks else machine.nohz_full
    yield f"{cpu}/smt/control", "on" if machine.arch == "x86_64" else "notimplemented"
    for place in machine.places:
        online = place.cpu not in machine.offline
        yield f"{cpu}/cpu{place.cpu}/online", int(online)
        if Quirk.CAPACITY in machine.quirks:
            yield f"{cpu}/cpu{place.cpu}/cpu_capacity", CAPACITIES[place.type]
        if online and place.cpu not in machine.undescribed:
            yield from _topology_files(machine, place)
            yield from _cache_files(machine, place)
    yield from _node_files(machine)
    yield from _pcie_files(machine)
    if Quirk.CAPACITY not in machine.quirks and any(place.type != "standard" for place in machine.places):
        low_power = machine.sharing["type"].get("lp-e-core", EMPTY)
        yield "devices/cpu_core/cpus", machine.sharing["type"].get("p-core", EMPTY)
        yield "devices/cpu_atom/cpus", machine.sharing["type"].get("e-core", EMPTY) | low_power
        yield "devices/cpu_lowpower/cpus", low_power


def _topology_files(machine: Machine, own: Place) -> Iterator[tuple[str, object]]:
    directory = f"devices/system/cpu/cpu{own.cpu}/topology"
    lists = {
        "core_cpus": machine.sharing["core"][own.core],
        "die_cpus": machine.sharing["die"][own.die],
        "package_cpus": machine.sharing["socket"][own.socket],
    }
    lists["thread_siblings"], lists["core_siblings"] = lists["core_cpus"], lists["package_cpus"]
    ids = {
        "core_id": own.core_id,
        "physical_package_id": machine.socket_id(own.socket),
        "die_id": own.die,
        "cluster_id": 65535 if Quirk.CLUSTER_UNKNOWN in machine.quirks else -1,
    }
    if Quirk.NO_CORE_ID in machine.quirks:
        del ids["core_id"]
    if Quirk.NO_PACKAGES in machine.quirks:
        del ids["physical_package_id"]
    if machine.quirks & {Quirk.NO_PACKAGES, Quirk.NO_PACKAGE_LISTS}:
        del lists["package_cpus"], lists["core_siblings"]
    if Quirk.OLD_NAMES in machine.quirks:
        lists = {name: cpus for name, cpus in lists.items() if name.endswith("siblings")}
    yield from ((f"{directory}/{name}", number) for name, number in ids.items())
    for name, cpus in lists.items():
        yield _list(machine, directory, name, f"{name}_list", cpus)


def _cache_files(machine: Machine, own: Place) -> Iterator[tuple[str, object]]:
    core = machine.sharing["core"][own.core]
    caches = [(1, core, own.core), (2, core, own.core)]
    if own.l3 >= 0:
        caches.append((3, machine.sharing["l3"][own.l3], machine.l3_id(own)))
    for index, (level, cpus, cache_id) in enumerate(caches):
        directory = f"devices/system/cpu/cpu{own.cpu}/cache/index{index}"
        yield f"{directory}/level", level
        if Quirk.NO_L3_IDS not in machine.quirks:
            yield f"{directory}/id", cache_id
        yield _list(machine, directory, "shared_cpu_map", "shared_cpu_list", cpus)


def _node_files(machine: Machine) -> Iterator[tuple[str, object]]:
    if Quirk.NO_NUMA in machine.quirks:
        return
    nodes = {machine.numa_id(place.numa): machine.sharing["numa"][place.numa] for place in machine.places}
    nodes |= dict.fromkeys(machine.empty_nodes, EMPTY)
    shown = {node: cpus for node, cpus in nodes.items() if node not in machine.hidden_nodes}
    yield "devices/system/node/online", CpuSet(shown)
    yield "devices/system/node/possible", CpuSet(nodes)
    for node, cpus in shown.items():
        directory = f"devices/system/node/node{node}"
        yield _list(machine, directory, "cpumap", "cpulist", cpus)


def _pcie_files(machine: Machine) -> Iterator[tuple[str, object]]:
    for root, numa in machine.pcie:
        bus = root.removeprefix("pci")
        yield f"devices/{root}/{bus}:00.0/numa_node", machine.numa_id(numa) if numa >= 0 else -1
        yield f"devices/{root}/{bus}:00.0/local_cpulist", machine.close_to(numa)
        yield f"devices/{root}/pci_bus/{bus}/cpulistaffinity", machine.close_to(numa)


def _list(machine: Machine, directory: str, mask_name: str, list_name: str, cpus: CpuSet) -> tuple[str, object]:
    if Quirk.MASKS_ONLY in machine.quirks:
        return f"{directory}/{mask_name}", _mask_text(cpus)
    return f"{directory}/{list_name}", cpus


def _mask_text(cpus: CpuSet) -> str:
    """Returns the kernel's format of a mask: words of 32 bits, the highest first."""
    words = range(max(1, (cpus.mask.bit_length() + 31) // 32))
    return ",".join(f"{cpus.mask >> 32 * word & 0xFFFFFFFF:08x}" for word in reversed(words))


@contextmanager
def directory() -> Iterator[Path]:
    """Makes a temporary folder, in memory if the system offers that: a large machine has 10,000 small files."""
    memory = Path("/dev/shm")  # noqa: S108  # the folder has a random name
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as made:
        yield Path(made)
