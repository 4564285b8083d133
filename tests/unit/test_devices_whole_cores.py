"""fullCores: whatever the scheduler may subtract from what a group offers, whole cores can make."""

from collections.abc import Callable
from random import Random

import random_machines
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from dracpu_agent.allocation.choose import Ask, choose
from dracpu_agent.allocation.distributed import Level
from dracpu_agent.allocation.machine import Machine
from dracpu_agent.devices.device import Capacity
from dracpu_agent.devices.offer import Offer
from dracpu_agent.devices.publish import publish
from dracpu_agent.topology.topology import Cpu, Topology
from dracpu_api.cpuset import EMPTY, CpuSet
from dracpu_api.settings import Allocation, GroupBy, Settings, Strategy


def machine_of(*threads: int) -> Topology:
    """One socket whose cores have these numbers of threads."""
    cpus: list[Cpu] = []
    for count in threads:
        first = len(cpus)
        cpus += [Cpu(first + thread, first, first, 0, 0, 0) for thread in range(count)]
    return Topology(tuple(cpus))


def offered(topology: Topology, held: CpuSet, allocation: Allocation, reserved: CpuSet = EMPTY) -> Capacity | None:
    offer = Offer(Settings(group_by=GroupBy.MACHINE, allocation=allocation), reserved, {"cpudevmachine": held})
    devices = publish(topology, offer)
    return devices[0].capacity if devices else None


def unit_and_value(topology: Topology, reserved: str = "") -> tuple[int, int]:
    capacity = offered(topology, EMPTY, Allocation(full_cores=True), CpuSet.parse(reserved))
    assert capacity is not None
    return capacity.policy.default, capacity.value


def test_equal_cores_are_offered_whole_and_those_with_a_reserved_thread_not_at_all() -> None:
    assert unit_and_value(machine_of(2, 2, 2)) == (2, 6)
    assert unit_and_value(machine_of(2, 2, 2), reserved="1-2") == (2, 2)


def test_a_hybrid_machine_is_offered_in_units_of_its_large_cores() -> None:
    assert unit_and_value(machine_of(2, 2, 1, 1, 1)) == (2, 6)


def test_cores_that_cannot_be_combined_are_not_offered() -> None:
    # 16 CPUs in whole cores, but no eight of them: 4+3 is 7, 3+3+3 is 9.
    assert unit_and_value(machine_of(4, 3, 3, 3, 3)) == (3, 12)
    assert unit_and_value(machine_of(4, 4, 4, 3, 1)) == (4, 12)
    # Each divides six, and they are seven; but no six of them: 2+2+3.
    assert unit_and_value(machine_of(6, 3, 2, 2)) == (6, 6)


def test_one_odd_core_does_not_close_the_others() -> None:
    assert unit_and_value(machine_of(4, *[3] * 20)) == (3, 60)
    assert unit_and_value(machine_of(4, *[2] * 20)) == (4, 44)


def test_a_group_that_is_reserved_as_a_whole_is_not_offered() -> None:
    assert offered(machine_of(2, 2), EMPTY, Allocation(full_cores=True), CpuSet(range(4))) is None


@settings(max_examples=150)
@given(st.data())
def test_every_amount_that_the_scheduler_subtracts_can_be_granted(data: st.DataObject) -> None:
    topology = data.draw(random_machines.machines())
    strategy = data.draw(st.sampled_from(Strategy))
    play(topology, data.draw(random_machines.available(topology)), strategy, data.draw(st.randoms()).randint)


@given(st.lists(st.integers(1, 8), min_size=1, max_size=8), st.randoms(), st.sampled_from(Strategy))
@settings(max_examples=200)
@example(threads=[2, 2, 2, 1, 1, 1], random=None, strategy=Strategy.PACKED)
@example(threads=[2, 2, 3, 6], random=None, strategy=Strategy.PACKED)
def test_every_amount_can_be_granted_on_cores_of_any_size(
    threads: list[int], random: Random | None, strategy: Strategy
) -> None:
    topology = machine_of(*threads)
    play(topology, topology.online, strategy, random.randint if random else min)


def play(topology: Topology, allocatable: CpuSet, strategy: Strategy, draw: Callable[[int, int], int]) -> None:
    """Claims of amounts that the requestPolicy allows, until the scheduler sees nothing left."""
    assume(allocatable)
    machine, allocation = Machine.of(topology), Allocation(strategy, full_cores=True)
    reserved, held = topology.online - allocatable, EMPTY
    consumed, unit = 0, None
    while (capacity := offered(topology, held, allocation, reserved)) and capacity.value > consumed:
        assert unit in (None, capacity.policy.default), "claims do not change the unit"
        unit = capacity.policy.default
        amount = draw(1, (capacity.value - consumed) // unit) * unit
        given_cpus = choose(machine, topology.online, allocatable - held, Ask(amount, allocation), Level.NUMA_NODES)
        held |= given_cpus
        consumed += amount
    assert len(held) == consumed
