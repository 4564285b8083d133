"""Machines of many kinds, written as the kernel would show them, are read correctly."""

from dataclasses import replace

import pytest
import strange_machines
from hypothesis import HealthCheck, given, settings
from machine_answers import topology_of

from dracpu_agent.host.sysfs import read, read_online
from dracpu_agent.topology.topology import Topology
from dracpu_api.cpuset import CpuSet
from dracpu_sandbox.machines.description import Machine
from dracpu_sandbox.machines.presets import CPU0_OFFLINE, HYBRID, LAB, PRESETS, XEON_SNC2
from dracpu_sandbox.machines.tree import directory, write_tree


def found(machine: Machine) -> Topology:
    with directory() as root:
        return read(*write_tree(machine, root))


@pytest.mark.parametrize("machine", PRESETS.values(), ids=lambda machine: machine.name)
def test_common_machines_are_read(machine: Machine) -> None:
    assert found(machine) == topology_of(machine)


@pytest.mark.parametrize("machine", strange_machines.SPECIALS, ids=lambda machine: machine.name)
def test_rare_machines_are_read(machine: Machine) -> None:
    assert found(machine) == topology_of(machine)


def test_the_generated_machines_match_numbers_written_by_hand() -> None:
    topology = topology_of(XEON_SNC2)
    assert [len(topology.sockets), len(topology.numa_nodes), len(topology.l3_groups)] == [2, 4, 2]
    assert topology.cores[1] == CpuSet((1, 65))
    assert topology.sockets[0] == CpuSet(range(0, 128, 2))
    assert topology.numa_nodes[3] == CpuSet([*range(33, 64, 2), *range(97, 128, 2)])
    assert [cpu.type for cpu in topology_of(HYBRID).cpus] == ["p-core"] * 12 + ["e-core"] * 8 + ["lp-e-core"] * 2


def test_a_core_is_named_after_its_lowest_online_thread() -> None:
    topology = found(CPU0_OFFLINE)
    assert topology.offline == CpuSet((0,))
    assert topology.cores[8] == CpuSet((8,))


def test_the_online_cpus_can_be_read_separately() -> None:
    with directory() as root:
        sysfs, _ = write_tree(CPU0_OFFLINE, root)
        assert read_online(sysfs) == CpuSet.parse("1-15")


@pytest.mark.parametrize(
    "files",
    [
        {"cluster_id": "{pair}", "cluster_cpus_list": "{pair}-{other}"},  # x86 modules, arm64 clusters
        {"die_id": "{pair}", "die_cpus_list": "{pair}-{other}"},
        {"book_id": "0", "book_siblings_list": "0-7", "drawer_id": "0", "drawer_siblings_list": "0-7"},  # s390
        {"ppin": "0xdeadbeef", "core_cpus": "ff", "thread_siblings": "ff"},  # masks are not read where there are lists
    ],
    ids=["clusters", "dies", "books and drawers", "others"],
)
def test_groups_other_than_cores_and_sockets_are_ignored(files: dict[str, str]) -> None:
    with directory() as root:
        roots = write_tree(LAB, root)
        for cpu in range(8):
            for name, text in files.items():
                path = roots[0] / f"devices/system/cpu/cpu{cpu}/topology" / name
                path.write_text(text.format(pair=cpu // 4 * 4, other=cpu // 4 * 4 + 3) + "\n")
        assert read(*roots) == topology_of(LAB)


@given(machine=strange_machines.machines())
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
def test_random_machines_are_read(machine: Machine) -> None:
    topology, expected = found(machine), topology_of(machine)
    assert set(topology.incomplete) == set(expected.incomplete)
    assert replace(topology, incomplete={}) == replace(expected, incomplete={})
