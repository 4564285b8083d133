"""The reader agrees with util-linux' lscpu, on generated machines and on the machine that runs the tests."""

from collections.abc import Mapping
from pathlib import Path

import lscpu
import pytest
import strange_machines
from hypothesis import HealthCheck, given, settings
from lscpu import Partition

from dracpu_agent.host.sysfs import read
from dracpu_agent.topology.topology import Topology, TopologyError
from dracpu_sandbox.machines.description import Machine, Quirk
from dracpu_sandbox.machines.presets import PRESETS
from dracpu_sandbox.machines.tree import directory, write_tree

pytestmark = pytest.mark.skipif(not lscpu.AVAILABLE, reason="lscpu (util-linux) is not installed")

# Without lists of sockets, lscpu 2.38 crashes.
NOT_FOR_LSCPU = {Quirk.NO_PACKAGES, Quirk.NO_PACKAGE_LISTS}


def ours(topology: Topology) -> Mapping[str, Partition]:
    groups = {
        "Core": topology.cores,
        "Socket": topology.sockets,
        "Node": topology.numa_nodes,
        "L3": topology.l3_groups,
    }
    return {column: {frozenset(cpus) for cpus in found.values()} for column, found in groups.items()}


def theirs(root: Path, machine: Machine, topology: Topology) -> Mapping[str, Partition]:
    """lscpu's partitions of the online CPUs, adjusted where lscpu is known to differ."""
    offered = frozenset(topology.online)
    found = {
        column: {group & offered for group in groups} - {frozenset()}
        for column, groups in lscpu.partitions(root).items()
    }
    if Quirk.NO_NUMA in machine.quirks:  # lscpu reports no node; this driver uses one for all CPUs
        assert not found["Node"]
        found["Node"] = {offered}
    if Quirk.L3_IDS_REPEAT in machine.quirks:  # lscpu uses the ids and ignores the lists
        found["L3"] = ours(topology)["L3"]
    if machine.hidden_nodes:  # lscpu does not read the CPU's own link to its node
        found["Node"] = ours(topology)["Node"]
    return found


def compare(machine: Machine) -> None:
    with directory() as root:
        topology = read(*write_tree(machine, root))
        assert ours(topology) == theirs(root, machine, topology)


KNOWN = [machine for machine in (*PRESETS.values(), *strange_machines.SPECIALS) if not machine.quirks & NOT_FOR_LSCPU]


@pytest.mark.parametrize("machine", KNOWN, ids=lambda machine: machine.name)
def test_known_machines_are_divided_as_by_lscpu(machine: Machine) -> None:
    compare(machine)


@given(machine=strange_machines.machines().filter(lambda machine: not machine.quirks & NOT_FOR_LSCPU))
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
def test_random_machines_are_divided_as_by_lscpu(machine: Machine) -> None:
    compare(machine)


def test_this_machine_is_divided_as_by_lscpu() -> None:
    try:
        topology = read(Path("/sys"), Path("/proc"))
    except TopologyError as error:
        pytest.skip(f"this machine's /sys cannot be read: {error}")
    found = lscpu.partitions_here()
    assert not topology.incomplete
    assert {column: groups for column, groups in ours(topology).items() if column in found} == found
