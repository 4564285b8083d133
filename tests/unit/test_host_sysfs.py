"""Machines of every sort, written as the kernel would show them, are read as what they are."""

from dataclasses import replace

import pytest
import strange_machines
from hypothesis import HealthCheck, given, settings

from dracpu_agent.host.sysfs import read, read_online
from dracpu_agent.topology.topology import Topology
from dracpu_api.cpuset import CpuSet
from dracpu_sandbox.machines.answer import topology_of
from dracpu_sandbox.machines.description import Machine
from dracpu_sandbox.machines.presets import CPU0_OFFLINE, HYBRID, LAB, PRESETS, XEON_SNC2
from dracpu_sandbox.machines.tree import directory, write_tree


def found(machine: Machine) -> Topology:
    with directory() as root:
        return read(*write_tree(machine, root))


@pytest.mark.parametrize("machine", PRESETS.values(), ids=lambda machine: machine.name)
def test_reads_the_machines_that_everybody_has(machine: Machine) -> None:
    assert found(machine) == topology_of(machine)


@pytest.mark.parametrize("machine", strange_machines.SPECIALS, ids=lambda machine: machine.name)
def test_reads_the_machines_that_few_have(machine: Machine) -> None:
    assert found(machine) == topology_of(machine)


def test_both_descriptions_of_a_machine_mean_what_they_say() -> None:
    """The generator itself, against numbers written down by hand."""
    topology = topology_of(XEON_SNC2)
    assert [len(topology.sockets), len(topology.numa_nodes), len(topology.l3_groups)] == [2, 4, 2]
    assert topology.cores[1] == CpuSet((1, 65))
    assert topology.sockets[0] == CpuSet(range(0, 128, 2))
    assert topology.numa_nodes[3] == CpuSet([*range(33, 64, 2), *range(97, 128, 2)])
    assert [cpu.type for cpu in topology_of(HYBRID).cpus] == ["p-core"] * 12 + ["e-core"] * 8 + ["lp-e-core"] * 2


def test_the_core_of_an_offline_cpu_is_named_after_the_thread_that_is_left() -> None:
    topology = found(CPU0_OFFLINE)
    assert topology.offline == CpuSet((0,))
    assert topology.cores[8] == CpuSet((8,))


def test_the_online_cpus_alone_can_be_polled() -> None:
    with directory() as root:
        sysfs, _ = write_tree(CPU0_OFFLINE, root)
        assert read_online(sysfs) == CpuSet.parse("1-15")


@pytest.mark.parametrize(
    "files",
    [
        {"cluster_id": "{pair}", "cluster_cpus_list": "{pair}-{other}"},  # x86 modules, arm64 clusters
        {"die_id": "{pair}", "die_cpus_list": "{pair}-{other}"},
        {"book_id": "0", "book_siblings_list": "0-7", "drawer_id": "0", "drawer_siblings_list": "0-7"},  # s390
        {"ppin": "0xdeadbeef", "core_cpus": "ff", "thread_siblings": "ff"},  # masks beside lists are not looked at
    ],
    ids=["clusters", "dies", "books and drawers", "others"],
)
def test_what_lies_between_cores_and_sockets_or_above_them_does_not_matter(files: dict[str, str]) -> None:
    with directory() as root:
        roots = write_tree(LAB, root)
        for cpu in range(8):
            for name, text in files.items():
                path = roots[0] / f"devices/system/cpu/cpu{cpu}/topology" / name
                path.write_text(text.format(pair=cpu // 4 * 4, other=cpu // 4 * 4 + 3) + "\n")
        assert read(*roots) == topology_of(LAB)


@given(machine=strange_machines.machines())
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
def test_reads_whatever_machine_may_come(machine: Machine) -> None:
    topology, expected = found(machine), topology_of(machine)
    assert set(topology.incomplete) == set(expected.incomplete)
    assert replace(topology, incomplete={}) == replace(expected, incomplete={})
