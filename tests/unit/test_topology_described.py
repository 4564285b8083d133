"""Files that describe one machine or several, in either form, and files that are invalid."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from machine_answers import topology_of

from dracpu_agent.topology.described import ONLY, machines
from dracpu_agent.topology.export import to_json
from dracpu_agent.topology.topology import Topology, TopologyError
from dracpu_sandbox.machines.presets import LAB

LAB_JSON = to_json(topology_of(LAB))


def cpu(number: int, **fields: Any) -> dict[str, Any]:
    return {"cpu": number, "core": 0, "socket": 0, "numa": 0, "uncore": 0} | fields


def only(*cpus: Mapping[str, Any]) -> Topology:
    return machines(json.dumps({"a": cpus}))["a"]


def test_a_single_machine_has_no_name() -> None:
    assert list(machines(LAB_JSON)) == [ONLY]
    assert len(machines(LAB_JSON)[ONLY].cores) == 4


def test_several_machines_may_be_written_in_either_form() -> None:
    found = machines(json.dumps({"lab": json.loads(LAB_JSON), "one": [cpu(5)]}))
    assert {name: str(topology.online) for name, topology in found.items()} == {"lab": "0-7", "one": "5"}


def test_cpus_with_the_same_core_number_cluster_and_socket_are_one_core() -> None:
    topology = only(cpu(3), cpu(1), cpu(2, socket=1), cpu(7, socket=1), cpu(4, cluster=8), cpu(8191, core=-1))
    assert {core: str(threads) for core, threads in topology.cores.items()} == {
        1: "1,3",
        2: "2,7",
        4: "4",
        8191: "8191",
    }


def test_unknown_fields_of_a_machine_may_be_left_out_or_negative() -> None:
    (described,) = only(cpu(0, numa=-1, uncore=-1)).cpus
    assert (described.numa, described.l3, described.type) == (-1, -1, "standard")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "^not JSON"),
        ("[" * 100_000, "^not JSON"),
        ("7", "^expected what `dracpu-agent topology -o json` prints"),
        ("{}", "^expected what"),
        ("[]", "^a topology is a list of CPUs"),
        ('{"a": {}}', '^machine "a": a topology is a list of CPUs'),
        (json.dumps({"a": [cpu(0), cpu(0, core=1)]}), '^machine "a": a CPU is described twice'),
        (json.dumps({"a": [cpu(0), {"cpu": 1}]}), '^machine "a": item 1 must be an object with the fields cpu, core'),
        (json.dumps({"a": [cpu(0, l3=1)]}), '^machine "a": item 0 must be an object with the fields'),
        (json.dumps({"a": [cpu(8192)]}), "item 0: cpu 8192 is above 8191"),
        (json.dumps({"a": [cpu(-1)]}), "item 0: cpu must be a whole number from 0"),
        (json.dumps({"a": [cpu(0, socket="0")]}), "item 0: socket must be a whole number from -1"),
        (json.dumps({"a": [cpu(0, cluster=None)]}), "item 0: cluster must be a whole number from -1"),
        (json.dumps({"a": [cpu(0, core_type="big")]}), "item 0: type must be one of standard, p-core"),
    ],
)
def test_an_invalid_file_is_refused_with_the_place_of_the_error(text: str, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        machines(text)
