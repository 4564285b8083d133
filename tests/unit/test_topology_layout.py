"""The layout in a CpuNode's status is small and describes the whole machine."""

import json

import pytest
from hypothesis import given
from layouts import from_layout
from machine_answers import topology_of
from random_machines import machines

from dracpu_agent.topology.layout import layout
from dracpu_agent.topology.topology import Topology
from dracpu_sandbox.machines.description import Machine
from dracpu_sandbox.machines.presets import EPYC_512, HYBRID, LAB, PRESETS


def places(topology: Topology) -> list[tuple[object, ...]]:
    return [(cpu.id, topology.cores[cpu.core], cpu.socket, cpu.numa, cpu.l3, cpu.type) for cpu in topology.cpus]


def test_cores_that_share_everything_are_in_one_row() -> None:
    assert layout(topology_of(LAB)) == [
        {"socket": 0, "numa": 0, "l3": 0, "cores": "0-1 2-3"},
        {"socket": 1, "numa": 1, "l3": 1, "cores": "4-5 6-7"},
    ]


def test_core_types_precede_their_cores() -> None:
    assert layout(topology_of(HYBRID)) == [
        {"socket": 0, "numa": 0, "l3": -1, "cores": "lp-e-core 20 21"},
        {"socket": 0, "numa": 0, "l3": 0, "cores": "p-core 0-1 2-3 4-5 6-7 8-9 10-11 e-core 12 13 14 15 16 17 18 19"},
    ]


@pytest.mark.parametrize("machine", PRESETS.values(), ids=lambda machine: machine.name)
def test_a_layout_describes_the_whole_machine(machine: Machine) -> None:
    topology = topology_of(machine)
    assert places(from_layout(layout(topology))) == places(topology)


@given(topology=machines())
def test_a_layout_has_every_cpu_once(topology: Topology) -> None:
    again = from_layout(layout(topology))
    assert again.online == topology.online
    assert set(again.cores.values()) == set(topology.cores.values())
    assert layout(again) == layout(topology)


def test_a_layout_is_small_on_the_largest_machine() -> None:
    assert len(json.dumps(layout(topology_of(EPYC_512)))) < 4096
