"""Tests that an exported topology becomes a simulated machine with the same topology."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from machine_answers import topology_of

from dracpu_agent.host.sysfs import read
from dracpu_agent.topology.export import from_json, to_json
from dracpu_sandbox.machines.description import Machine
from dracpu_sandbox.machines.exported import MachineError, find_machine, machine_of
from dracpu_sandbox.machines.presets import EPYC, HYBRID, LAB, PRESETS
from dracpu_sandbox.machines.tree import directory, write_tree


@pytest.mark.parametrize("machine", PRESETS.values(), ids=lambda machine: machine.name)
def test_the_files_of_an_exported_machine_yield_the_exported_topology(machine: Machine) -> None:
    exported = from_json(to_json(topology_of(machine)))
    again = machine_of(machine.name, exported)
    with directory() as root:
        found = read(*write_tree(again, root))
    assert found == replace(exported, arch="x86_64") == topology_of(again)


def test_a_machine_is_found_by_name() -> None:
    assert find_machine("epyc") is EPYC


def test_a_machine_is_found_by_file(tmp_path: Path) -> None:
    path = tmp_path / "desk.json"
    path.write_text(to_json(topology_of(HYBRID)))
    machine = find_machine(str(path))
    assert machine.name == "desk"
    assert topology_of(machine).cores == topology_of(HYBRID).cores


def test_an_unknown_name_is_reported_with_the_known_ones() -> None:
    with pytest.raises(MachineError, match="pdp11 is neither a machine nor a file; the machines are: xeon, epyc, "):
        find_machine("pdp11")


def test_a_file_without_a_topology_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "odd.json"
    path.write_text("{}")
    with pytest.raises(MachineError, match=r"odd\.json is not an output of `dracpu-agent topology -o json`: a "):
        find_machine(str(path))


def test_a_core_with_two_l3_caches_is_rejected(tmp_path: Path) -> None:
    items = json.loads(to_json(topology_of(LAB)))
    items[1]["l3"] = 7
    path = tmp_path / "torn.json"
    path.write_text(json.dumps(items))
    with pytest.raises(MachineError, match="core 0: its CPUs 0-1 must have one L3 cache"):
        find_machine(str(path))
