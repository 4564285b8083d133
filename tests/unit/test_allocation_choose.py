"""How settings determine the chosen CPUs, and the reasons of refusals."""

import pytest
import random_machines
from hypothesis import given, settings
from hypothesis import strategies as st

import vectors
from dracpu_agent.allocation.choose import Ask, choose
from dracpu_agent.allocation.distributed import Level
from dracpu_agent.allocation.errors import (
    AllocationError,
    CpusetCutsCoresError,
    CpusetInUseError,
    CpusetOfflineError,
    CpusetOutsideDeviceError,
    CpusetReservedError,
    CpusetSizeError,
    InvalidCountError,
    NotEnoughCoresError,
    NotEnoughCpusError,
)
from dracpu_agent.allocation.machine import Machine
from dracpu_agent.errors import ClaimError
from dracpu_agent.topology.topology import Cpu, Topology
from dracpu_api.cpuset import CpuSet
from dracpu_api.settings import Allocation, Strategy

EPYC = vectors.topologies()["epyc-2s-64c-nps4"]  # 2 sockets, 8 nodes, 32 L3 groups of 8 CPUs, threads n and n+128
HYBRID = vectors.topologies()["hybrid-6p8e2lpe"]  # 0-11 are 6 P-cores, 12-21 cores with one thread
PACKED = Allocation()
DISTRIBUTED = Allocation(strategy=Strategy.DISTRIBUTED)
FULL_CORES = Allocation(full_cores=True)


def given_cpus(
    topology: Topology,
    count: int,
    *,
    allocation: Allocation = PACKED,
    group: CpuSet | None = None,
    available: CpuSet | None = None,
    over: Level = Level.UNCORES,
) -> CpuSet:
    return choose(
        Machine.of(topology),
        topology.online if group is None else group,
        topology.online if available is None else available,
        Ask(count, allocation),
        over,
    )


def test_packed_stays_in_one_l3_group_and_takes_whole_cores() -> None:
    assert str(given_cpus(EPYC, 4, group=EPYC.numa_nodes[1])) == "16-17,144-145"


def test_packed_without_preference_for_l3_uses_up_partly_used_cores() -> None:
    node = EPYC.numa_nodes[0]
    available = node - CpuSet.parse("3,131")  # the first L3 group has three whole cores left, the others four
    aligned = given_cpus(EPYC, 8, group=node, available=available)
    closest = given_cpus(EPYC, 8, group=node, available=available, allocation=Allocation(prefer_uncore_cache=False))
    assert str(aligned) == "4-7,132-135"
    assert str(closest) == "0-2,4,128-130,132"


def test_distributed_over_the_l3_groups_of_a_numa_node() -> None:
    got = given_cpus(EPYC, 12, allocation=DISTRIBUTED, group=EPYC.numa_nodes[0])
    assert [len(got & l3) for l3 in EPYC.l3_groups.values() if got & l3] == [6, 6]
    assert got <= EPYC.numa_nodes[0]


def test_distributed_over_the_numa_nodes_of_larger_devices() -> None:
    got = given_cpus(EPYC, 48, allocation=DISTRIBUTED, group=EPYC.sockets[1], over=Level.NUMA_NODES)
    assert [len(got & node) for node in EPYC.numa_nodes.values() if got & node] == [24, 24]
    assert got <= EPYC.sockets[1]


def test_distributed_in_full_cores_gives_parts_of_whole_cores() -> None:
    allocation = Allocation(strategy=Strategy.DISTRIBUTED, full_cores=True)
    got = given_cpus(EPYC, 68, allocation=allocation, over=Level.NUMA_NODES)
    parts = [got & node for node in EPYC.numa_nodes.values() if got & node]
    assert [len(part) for part in parts] == [24, 22, 22]
    assert all(cpus <= got for cpus in EPYC.cores.values() if cpus & got)


def test_a_whole_machine_is_packed_numa_node_by_numa_node() -> None:
    available = EPYC.online - CpuSet.parse("0")
    got = given_cpus(EPYC, 64, available=available, over=Level.NUMA_NODES)
    assert got == EPYC.numa_nodes[1] | EPYC.numa_nodes[2]


def test_full_cores_leave_half_free_cores_alone() -> None:
    available = CpuSet.parse("0-4,129-131")
    assert str(given_cpus(EPYC, 1, available=available)) == "4"  # its L3 group has the fewest free CPUs
    assert str(given_cpus(EPYC, 4, available=available, allocation=FULL_CORES)) == "1-2,129-130"


def test_full_cores_refuse_half_a_core() -> None:
    with pytest.raises(NotEnoughCoresError, match="3 CPUs in whole cores requested; whole free cores: 16 with 2 CPUs"):
        given_cpus(EPYC, 3, allocation=FULL_CORES, group=EPYC.numa_nodes[0])


def test_full_cores_refuse_free_threads_without_a_whole_core() -> None:
    with pytest.raises(NotEnoughCoresError, match="2 CPUs in whole cores requested; whole free cores: none"):
        given_cpus(EPYC, 2, allocation=FULL_CORES, available=CpuSet.parse("0-7"))


def test_full_cores_on_a_hybrid_machine_mix_cores_that_add_up() -> None:
    # Packed begins with the single thread, and would end with half of a P-core.
    available = CpuSet.parse("0-3,12")
    assert str(given_cpus(HYBRID, 4, available=available, allocation=FULL_CORES)) == "0-3"
    assert str(given_cpus(HYBRID, 3, available=available, allocation=FULL_CORES)) == "0-1,12"


def test_full_cores_find_a_mix_that_neither_smallest_first_nor_largest_first_finds() -> None:
    threads = [1, 3, 3, 4]  # an SMT4 machine with threads offline
    lowest = [0, 4, 8, 12]
    cpus = [
        Cpu(core + n, core, core, 0, 0, 0) for core, online in zip(lowest, threads, strict=True) for n in range(online)
    ]
    assert str(given_cpus(Topology(tuple(cpus)), 6, allocation=FULL_CORES)) == "4-6,8-10"
    with pytest.raises(NotEnoughCoresError, match="1 with 1 CPU, 2 with 3 CPUs, 1 with 4 CPUs"):
        given_cpus(Topology(tuple(cpus)), 9, allocation=FULL_CORES)


@settings(max_examples=300)
@given(st.data())
def test_every_answer_is_correct_and_every_refusal_has_a_reason(data: st.DataObject) -> None:
    topology = data.draw(random_machines.machines())
    free = data.draw(random_machines.available(topology))
    group = data.draw(st.sampled_from([topology.online, *topology.numa_nodes.values(), *topology.sockets.values()]))
    count = data.draw(st.integers(1, len(topology.cpus) + 1))
    allocation = Allocation(
        data.draw(st.sampled_from(Strategy)), full_cores=data.draw(st.booleans()), prefer_uncore_cache=True
    )
    over = data.draw(st.sampled_from(Level))
    whole = [cpus for cpus in topology.cores.values() if cpus <= free & group]
    usable = CpuSet(cpu for cpus in whole for cpu in cpus) if allocation.full_cores else free & group
    totals = {0}
    for cpus in whole:
        totals |= {total + len(cpus) for total in totals}

    try:
        got = given_cpus(topology, count, allocation=allocation, group=group, available=free, over=over)
    except NotEnoughCpusError:
        assert count > len(free & group)
    except NotEnoughCoresError:
        assert allocation.full_cores
        assert count not in totals
    else:
        assert len(got) == count
        assert got <= usable
        if allocation.full_cores:
            assert all(cpus <= got for cpus in topology.cores.values() if cpus & got)


@pytest.mark.parametrize("count", [0, -1, 1.5, 2.0])
def test_only_positive_whole_numbers_are_allocated(count: int) -> None:
    with pytest.raises(InvalidCountError, match=f"^{count} CPUs requested: request a whole number"):
        given_cpus(EPYC, count)


def explicit(cpus: str, *, count: int | None = None, allocation: Allocation = PACKED) -> CpuSet:
    """On NUMA node 0 with 0-1 and 128-129 reserved and 4-5 in use."""
    node = EPYC.numa_nodes[0]
    named = CpuSet.parse(cpus)
    reserved = CpuSet.parse("0-1,128-129")
    return choose(
        Machine.of(EPYC),
        node - reserved,
        EPYC.online - reserved - CpuSet.parse("4-5"),
        Ask(len(named) if count is None else count, allocation, named),
        Level.UNCORES,
        reserved=reserved,
    )


@pytest.mark.parametrize("cpus", ["2", "2-3,130", "6-15,134-143"])
def test_an_explicit_cpuset_is_allocated_unchanged(cpus: str) -> None:
    assert str(explicit(cpus)) == cpus


@pytest.mark.parametrize(
    ("cpus", "count", "error", "message"),
    [
        ("2-3", 3, CpusetSizeError, r"cpuset 2-3 \(2 CPUs\) but asks for 3 CPUs"),
        ("", 1, CpusetSizeError, r"cpuset none \(0 CPUs\) but asks for 1 CPU"),
        ("255-257", 3, CpusetOfflineError, "256-257 of the cpuset 255-257 is offline or not on this node.* 0-255$"),
        ("1-2", 2, CpusetReservedError, "1 of the cpuset 1-2 is reserved for the system"),
        ("15-17", 3, CpusetOutsideDeviceError, "16-17 of the cpuset 15-17 is outside the allocated device, 2-15,130-"),
        ("4-6", 3, CpusetInUseError, "4-5 of the cpuset 4-6 is in use by"),
        ("4-5", 2, CpusetInUseError, "and the cpuset 4-5 is in use by"),
    ],
)
def test_an_explicit_cpuset_is_refused_with_its_specific_reason(
    cpus: str, count: int, error: type[AllocationError], message: str
) -> None:
    with pytest.raises(error, match=message) as refused:
        explicit(cpus, count=count)
    assert isinstance(refused.value, ClaimError)


def test_an_explicit_cpuset_of_partial_cores_is_refused_with_full_cores() -> None:
    assert str(explicit("2,130", allocation=FULL_CORES)) == "2,130"
    with pytest.raises(CpusetCutsCoresError, match="the cpuset 2-3 leaves out 130-131"):
        explicit("2-3", allocation=FULL_CORES)
