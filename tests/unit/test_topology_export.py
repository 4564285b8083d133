"""The JSON of `dracpu-agent topology` has fixed fields and is read back completely or refused."""

import json
from dataclasses import replace
from typing import Any

import pytest
from machine_answers import topology_of

from dracpu_agent.topology.export import from_json, to_json
from dracpu_agent.topology.topology import TopologyError
from dracpu_sandbox.machines.description import Machine
from dracpu_sandbox.machines.presets import HYBRID, LAB, PRESETS


def test_one_object_per_cpu_with_these_fields() -> None:
    items = json.loads(to_json(topology_of(LAB)))
    assert len(items) == 8
    assert items[3] == {
        "cpu": 3,
        "core": 2,
        "socket": 0,
        "numa": 0,
        "l3": 0,
        "type": "standard",
        "siblings": "2-3",
    }
    assert json.loads(to_json(topology_of(HYBRID)))[-1]["type"] == "lp-e-core"


def test_one_line_per_cpu() -> None:
    assert len(to_json(topology_of(LAB)).splitlines()) == 8 + 2


@pytest.mark.parametrize("machine", PRESETS.values(), ids=lambda machine: machine.name)
def test_a_written_topology_is_read_back(machine: Machine) -> None:
    topology = topology_of(machine)
    read_back = from_json(to_json(topology))
    # JSON carries the machine's own numbering of cores, not the hardware's.
    assert read_back.cpus == tuple(replace(cpu, core_id=cpu.core) for cpu in topology.cpus)


def test_the_order_of_the_objects_does_not_matter() -> None:
    items = json.loads(to_json(topology_of(LAB)))
    assert from_json(json.dumps(items[::-1])) == from_json(json.dumps(items))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cpu": "3"}, "item 3: cpu must be a whole number"),
        ({"cpu": True}, "item 3: cpu must be a whole number"),
        ({"cpu": 8192}, "cpu 8192 is above 8191"),
        ({"cpu": 2}, "a CPU is described twice"),
        ({"socket": -1}, "item 3: socket must be a whole number from 0"),
        ({"l3": -2}, "item 3: l3 must be a whole number from -1"),
        ({"type": "m-core"}, "item 3: type must be one of standard, p-core, e-core, lp-e-core"),
        ({"siblings": "2"}, 'CPU 3: siblings must be "2-3"'),
        ({"siblings": [2, 3]}, 'CPU 3: siblings must be "2-3"'),
        ({"core": 3}, 'CPU 2: siblings must be "2"'),
        ({"node": 0}, "item 3 must be an object with exactly these fields"),
    ],
)
def test_a_description_that_contradicts_itself_is_refused(change: dict[str, Any], message: str) -> None:
    items = json.loads(to_json(topology_of(LAB)))
    items[3] |= change
    with pytest.raises(TopologyError, match=message):
        from_json(json.dumps(items))


def test_a_core_that_is_not_named_after_its_lowest_cpu_is_refused() -> None:
    items = json.loads(to_json(topology_of(LAB)))
    items[2] |= {"core": 3}
    items[3] |= {"core": 3}
    with pytest.raises(TopologyError, match="CPU 2: core must be 2, the lowest CPU of its core 2-3"):
        from_json(json.dumps(items))


@pytest.mark.parametrize("text", ["", "{}", "[]", "[1]", "null", '[{"cpu": 0}]'])
def test_other_json_is_refused(text: str) -> None:
    with pytest.raises(TopologyError):
        from_json(text)
