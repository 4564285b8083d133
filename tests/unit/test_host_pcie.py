"""PCIe roots and the CPUs close to them, in the sysfs of several architectures."""

from pathlib import Path

import pytest
from machine_answers import topology_of

from dracpu_agent.host.pcie import read_roots
from dracpu_agent.host.sysfs import read
from dracpu_api.cpuset import CpuSet
from dracpu_sandbox.machines.description import Machine, uniform
from dracpu_sandbox.machines.tree import write_tree


def write(sysfs: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        (sysfs / path).parent.mkdir(parents=True, exist_ok=True)
        (sysfs / path).write_text(text + "\n", encoding="ascii")


def roots(sysfs: Path) -> dict[str, str]:
    return {root: str(cpus) for root, cpus in read_roots(sysfs).items()}


@pytest.mark.parametrize("arch", ["x86_64", "aarch64", "ppc64le"])
def test_each_root_has_the_cpus_of_its_numa_node(tmp_path: Path, arch: str) -> None:
    pcie = (("pci0001:00", 0), ("pci0000:80", 1), ("pci0000:00", 0), ("pci10000:e0", -1))
    machine = Machine("roots", arch=arch, sockets=2, cores=uniform(2, 2), pcie=pcie)
    topology = read(*write_tree(machine, tmp_path))
    assert topology == topology_of(machine)
    assert {root: str(cpus) for root, cpus in topology.pcie_roots.items()} == {
        "pci0000:00": "0-3",
        "pci0000:80": "4-7",
        "pci0001:00": "0-3",
        "pci10000:e0": "0-7",
    }


def test_a_root_whose_cpus_are_all_offline_is_absent(tmp_path: Path) -> None:
    pcie = (("pci0000:00", 0), ("pci0000:80", 1))
    machine = Machine("half", sockets=2, cores=uniform(2), pcie=pcie, offline=CpuSet((2, 3)))
    assert list(read(*write_tree(machine, tmp_path)).pcie_roots) == ["pci0000:00"]


def test_functions_on_a_roots_bus_are_read_and_those_behind_bridges_are_not(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "devices/pci0000:00/0000:00:00.0/local_cpulist": "0-1",
            "devices/pci0000:00/0000:00:1f.7/local_cpulist": "2",
            "devices/pci0000:00/0000:00:1f.7/0000:01:00.0/local_cpulist": "7",
            "devices/pci0000:00/power/local_cpulist": "6",
            "devices/pci0000:00/pci_bus/0000:00/cpulistaffinity": "0-7",
            "devices/platform/local_cpulist": "5",
        },
    )
    assert roots(tmp_path) == {"pci0000:00": "0-2"}


def test_the_cpus_of_the_bus_are_used_for_a_root_without_functions(tmp_path: Path) -> None:
    write(tmp_path, {"devices/pci0000:f3/pci_bus/0000:f3/cpulistaffinity": "4-7"})
    assert roots(tmp_path) == {"pci0000:f3": "4-7"}


def test_roots_below_platform_devices_are_found_through_their_buses(tmp_path: Path) -> None:
    """As on arm64 with a device tree, or below the bus of a hypervisor."""
    root = "devices/platform/40000000.pcie/pci0002:00"
    write(
        tmp_path,
        {
            f"{root}/0002:00:00.0/local_cpulist": "0-3",
            f"{root}/pci_bus/0002:00/cpulistaffinity": "0-3",
            f"{root}/0002:00:00.0/pci_bus/0002:01/cpulistaffinity": "0-3",  # behind a bridge: not a root
        },
    )
    buses = tmp_path / "class/pci_bus"
    buses.mkdir(parents=True)
    (buses / "0002:00").symlink_to(f"../../{root}/pci_bus/0002:00")
    (buses / "0002:01").symlink_to(f"../../{root}/0002:00:00.0/pci_bus/0002:01")
    assert roots(tmp_path) == {"pci0002:00": "0-3"}
    (tmp_path / "link").symlink_to(tmp_path)
    assert roots(tmp_path / "link") == {"pci0002:00": "0-3"}


def test_unreadable_and_invalid_files_are_ignored(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "devices/pci0000:00/0000:00:00.0/local_cpulist": "all of them",
            "devices/pci0000:80/0000:80:00.0/local_cpulist": "",
            "devices/pci0000:90/0000:90:00.0/local_cpulist/is_a_directory": "0",
            "devices/pci0000:a0/0000:a0:00.0/local_cpulist": "1",
        },
    )
    assert roots(tmp_path) == {"pci0000:a0": "1"}


def test_a_machine_without_pci_has_no_roots(tmp_path: Path) -> None:
    assert roots(tmp_path) == {}
