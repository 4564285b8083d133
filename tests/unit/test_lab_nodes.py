"""The lab's emulated machines, the names and init systems of its nodes, and its command line."""

import json
from dataclasses import asdict

import pytest
from lab.cli import main, parser
from lab.disk import Init
from lab.errors import LabError
from lab.network import node_number
from lab.nodes import Machine


def test_cpus_and_memory_are_divided_evenly_and_in_order_among_numa_nodes() -> None:
    options = Machine(sockets=2, cores=4, threads=2, numa_nodes=4, memory_mib=4096).options()
    assert options[:4] == ["-smp", "16,sockets=2,cores=4,threads=2", "-m", "4096M"]
    numa = [value for value in options if value.startswith("node,")]
    assert numa == [
        f"node,nodeid={number},cpus={cpus},memdev=memory{number}"
        for number, cpus in enumerate(("0-3", "4-7", "8-11", "12-15"))
    ]
    assert [value for value in options if value.startswith("memory-backend-ram")] == [
        f"memory-backend-ram,id=memory{number},size=1024M" for number in range(4)
    ]


@pytest.mark.parametrize("machine", [Machine(numa_nodes=3), Machine(sockets=0), Machine(threads=-2)])
def test_an_impossible_machine_is_refused(machine: Machine) -> None:
    with pytest.raises(LabError, match="cannot be divided into"):
        machine.validate()


def test_the_number_of_a_node_is_read_from_its_name() -> None:
    assert node_number("vm3") == 3


@pytest.mark.parametrize("name", ["vm", "node-1", ""])
def test_a_name_that_no_node_can_have_is_refused(name: str) -> None:
    with pytest.raises(LabError, match="the names are vm1, vm2"):
        node_number(name)


def test_nodes_after_the_last_init_system_have_the_last_one() -> None:
    machine = Machine(inits=(Init.BUSYBOX, Init.SYSTEMD))
    assert [machine.init(f"vm{number}") for number in (1, 2, 3)] == [Init.BUSYBOX, Init.SYSTEMD, Init.SYSTEMD]


def test_by_default_one_node_has_systemd_and_the_others_have_not() -> None:
    assert [Machine().init(f"vm{number}") for number in (1, 2, 3)] == [Init.SYSTEMD, Init.BUSYBOX, Init.BUSYBOX]


def test_a_stored_machine_is_read_again() -> None:
    machine = Machine(sockets=1, inits=(Init.BUSYBOX,))
    assert Machine.decode(json.loads(json.dumps(asdict(machine)))) == machine


def test_the_command_line_takes_an_init_system_for_each_node() -> None:
    assert parser().parse_args(["up", "--init", "busybox,systemd"]).init == (Init.BUSYBOX, Init.SYSTEMD)
    assert parser().parse_args(["up"]).init == Machine().inits


def test_the_command_line_names_the_init_systems_when_it_refuses_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["up", "--init", "systemd,upstart"])
    assert "upstart is not an init system of the lab: choose from systemd, busybox" in capsys.readouterr().err


def test_the_command_line_has_the_default_machine_as_its_default() -> None:
    options = parser().parse_args(["up"])
    default = Machine()
    assert (options.sockets, options.cores, options.threads, options.numa_nodes, options.memory) == (
        *(default.sockets, default.cores, default.threads, default.numa_nodes),
        default.memory_mib,
    )


def test_an_error_of_the_lab_is_printed_as_one_line_with_exit_code_1(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert main(["restart-node", "vm1"]) == 1
    assert capfd.readouterr().err == "lab: there is no node vm1: start a cluster with `python -m lab up`\n"
