"""The emulated machines and the command line that asks for them."""

import pytest
from lab.cli import main, parser
from lab.errors import LabError
from lab.nodes import Machine


def test_numa_nodes_share_cpus_and_memory_evenly_and_in_order() -> None:
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
def test_a_machine_that_cannot_be_is_refused(machine: Machine) -> None:
    with pytest.raises(LabError, match="cannot be spread"):
        machine.validate()


def test_the_command_line_asks_for_the_usual_machine_unless_told_otherwise() -> None:
    options = parser().parse_args(["up"])
    usual = Machine()
    assert (options.sockets, options.cores, options.threads, options.numa_nodes, options.memory) == (
        *(usual.sockets, usual.cores, usual.threads, usual.numa_nodes),
        usual.memory_mib,
    )


def test_an_error_is_one_line_and_a_failing_exit_code(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert main(["restart-node", "vm1"]) == 1
    assert capfd.readouterr().err == "lab: there is no node vm1: none was started\n"
