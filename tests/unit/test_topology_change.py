"""A machine keeps its identity while CPUs come and go."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machine_answers import topology_of

from dracpu_agent.host.sysfs import read
from dracpu_agent.topology.change import changed
from dracpu_agent.topology.topology import Topology
from dracpu_api.cpuset import EMPTY, CpuSet
from dracpu_sandbox.machines.description import Machine, Quirk, uniform
from dracpu_sandbox.machines.tree import write_tree

MACHINE = Machine("four-sockets", sockets=4, cores=uniform(2, 2))
NAMELESS = MACHINE.with_quirks(Quirk.PACKAGE_UNKNOWN, Quirk.NO_L3_IDS)
BOOKS = MACHINE.with_quirks(Quirk.PACKAGE_REPEATS, Quirk.L3_IDS_REPEAT)
STRONG_AND_WEAK = Machine(
    "big-little", arch="aarch64", cores=(("e-core", 4, 1), ("p-core", 4, 1)), l3_groups=0
).with_quirks(Quirk.CAPACITY)


def shown(machine: Machine, offline: str) -> Topology:
    """The topology that sysfs describes while these CPUs are offline."""
    return topology_of(replace(machine, offline=CpuSet.parse(offline)))


def sockets(topology: Topology) -> dict[int, str]:
    return {socket: str(cpus) for socket, cpus in topology.sockets.items()}


def test_the_last_description_of_a_cpu_is_kept_while_it_is_offline() -> None:
    whole = shown(MACHINE, "")
    less = changed(whole, shown(MACHINE, "4-5"))
    assert [cpu.id for cpu in less.gone] == [4, 5]
    assert {cpu: less.known[cpu] for cpu in (4, 5)} == {cpu: whole.by_id[cpu] for cpu in (4, 5)}
    lesser = changed(less, shown(MACHINE, "4-7"))
    assert [cpu.id for cpu in lesser.gone] == [4, 5, 6, 7]
    assert lesser.present == whole.online
    assert changed(lesser, shown(MACHINE, "")) == whole


def test_a_core_is_named_after_its_lowest_online_cpu() -> None:
    less = changed(shown(MACHINE, ""), shown(MACHINE, "4"))
    assert less.cores[5] == CpuSet((5,))
    assert less.known[4].core == 4


@pytest.mark.parametrize("machine", [NAMELESS, BOOKS], ids=["without ids", "with ids that repeat"])
def test_sockets_and_caches_without_usable_ids_keep_their_numbers(machine: Machine) -> None:
    whole = shown(machine, "")
    assert sockets(whole) == {0: "0-3", 1: "4-7", 2: "8-11", 3: "12-15"}
    less = changed(whole, shown(machine, "0-4"))
    assert sockets(less) == {1: "5-7", 2: "8-11", 3: "12-15"}
    assert {l3: cpus.lowest for l3, cpus in less.l3_groups.items()} == {4: 5, 8: 8, 12: 12}
    assert changed(less, shown(machine, "")) == whole


def test_a_new_socket_gets_an_unused_number() -> None:
    first = shown(NAMELESS, "0-3,8-11")
    assert sockets(first) == {0: "4-7", 1: "12-15"}
    more = changed(first, shown(NAMELESS, ""))
    assert sockets(more) == {0: "4-7", 1: "12-15", 2: "0-3", 3: "8-11"}


def test_e_cores_stay_e_cores_while_all_p_cores_are_offline() -> None:
    less = changed(shown(STRONG_AND_WEAK, ""), shown(STRONG_AND_WEAK, "4-7"))
    assert {cpu.type for cpu in less.cpus} == {"e-core"}


@given(history=st.lists(st.frozensets(st.integers(0, 15), max_size=15), max_size=6))
def test_a_cpu_keeps_its_groups_through_any_sequence_of_changes(history: list[frozenset[int]]) -> None:
    whole = now = shown(NAMELESS, "")
    for offline in history:
        now = changed(now, shown(NAMELESS, str(CpuSet(offline))))
        assert now.online | CpuSet(cpu.id for cpu in now.gone) == whole.online
        for cpu in now.known.values():
            assert (cpu.socket, cpu.l3, cpu.numa) == (whole.by_id[cpu.id].socket, whole.by_id[cpu.id].l3, cpu.numa)
    assert changed(now, shown(NAMELESS, "")) == whole


def test_topologies_read_from_files_are_carried_over_too(tmp_path: Path) -> None:
    whole = read(*write_tree(NAMELESS, tmp_path / "before"))
    less = read(*write_tree(replace(NAMELESS, offline=CpuSet(range(5))), tmp_path / "after"))
    assert changed(whole, whole) == whole
    assert less.offline - CpuSet(range(5)) == EMPTY
    assert list(changed(whole, less).sockets) == [1, 2, 3]
