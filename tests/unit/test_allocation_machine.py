"""Masks of cores agree with sets of cores."""

import random_machines
from hypothesis import given, settings
from hypothesis import strategies as st

import vectors
from dracpu_agent.allocation.machine import Machine, lowest
from dracpu_api.cpuset import CpuSet


@settings(max_examples=200)
@given(st.data())
def test_masks_of_cores_agree_with_sets_of_cores(data: st.DataObject) -> None:
    topology = data.draw(random_machines.machines())
    free = data.draw(random_machines.available(topology))
    machine = Machine.of(topology)
    threads = {core: len(cpus & free) for core, cpus in topology.cores.items()}

    touched = machine.cores_of(free.mask)

    assert CpuSet.of_mask(touched) == CpuSet(core for core in threads if threads[core])
    assert CpuSet.of_mask(machine.cpus_of(touched)) == CpuSet(
        cpu for core, cpus in topology.cores.items() if threads[core] for cpu in cpus
    )
    assert CpuSet.of_mask(machine.whole_cores(free.mask)) == CpuSet(
        core for core, cpus in topology.cores.items() if cpus <= free
    )
    assert [(count, CpuSet.of_mask(cores)) for count, cores in machine.cores_by_threads(free.mask)] == [
        (count, CpuSet(core for core in threads if threads[core] == count))
        for count in sorted({count for count in threads.values() if count})
    ]


@given(st.sets(st.integers(0, 600)), st.integers(0, 700))
def test_the_lowest_bits_are_the_lowest_cpus(cpus: set[int], count: int) -> None:
    assert CpuSet.of_mask(lowest(CpuSet(cpus).mask, count)) == CpuSet(sorted(cpus)[:count])


def test_offline_cpus_are_not_part_of_the_machine() -> None:
    topology = vectors.topologies()["asym-offline"]
    assert CpuSet.of_mask(Machine.of(topology).cpus) == topology.online


def test_cpus_without_l3_belong_to_the_uncore_of_their_socket() -> None:
    topology = vectors.topologies()["vm-no-l3"]
    uncores = Machine.of(topology).uncores
    assert [(uncore.id, CpuSet.of_mask(uncore.mask)) for uncore in uncores] == list(topology.sockets.items())


def test_sockets_are_the_outer_groups_only_if_there_are_fewer_of_them() -> None:
    first = {name: Machine.of(topology).numa_first for name, topology in vectors.topologies().items()}
    assert first["xeon-gold-2x20"]  # one node per socket
    assert first["quad-socket-2numa"]
    assert not first["epyc-2s-64c-nps4"]
