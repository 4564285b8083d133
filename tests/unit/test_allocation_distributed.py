"""Distributed follows the kubelet's rules on random machines and never returns a wrong answer."""

import pytest
import random_machines
from hypothesis import given, settings
from hypothesis import strategies as st
from kubelet_rules import Rules

import vectors
from dracpu_agent.allocation.distributed import Level, distributed
from dracpu_agent.allocation.errors import NotEnoughCpusError
from dracpu_agent.allocation.machine import Machine
from dracpu_api.cpuset import CpuSet


@settings(max_examples=400)
@given(st.data())
def test_distributed_follows_the_kubelets_rules(data: st.DataObject) -> None:
    # At most six nodes, because the rules try every subset of every subset.
    topology = data.draw(random_machines.machines(max_numa_nodes=6))
    free = data.draw(random_machines.available(topology))
    chunk = data.draw(st.sampled_from([1, 1, 2, 3, 4]))
    count = data.draw(st.integers(0, len(free)))
    if data.draw(st.booleans()):
        count -= count % chunk
    spread = data.draw(st.booleans())

    got = distributed(Machine.of(topology), free.mask, count, chunk, spread=spread)

    assert CpuSet.of_mask(got) == CpuSet(Rules(topology).distributed(set(free), count, chunk, spread=spread))


@settings(max_examples=200)
@given(st.data())
def test_any_machine_is_served_in_bounded_time(data: st.DataObject) -> None:
    topology = data.draw(random_machines.machines())
    free = data.draw(random_machines.available(topology))
    count = data.draw(st.integers(1, len(topology.cpus) + 1))
    chunk, over = data.draw(st.integers(1, 8)), data.draw(st.sampled_from(Level))
    if count > len(free):
        with pytest.raises(NotEnoughCpusError):
            distributed(Machine.of(topology), free.mask, count, chunk, over=over)
        return
    got = CpuSet.of_mask(distributed(Machine.of(topology), free.mask, count, chunk, over=over))
    assert len(got) == count
    assert got <= free


def test_a_count_that_is_not_a_multiple_of_the_chunk_is_packed() -> None:
    machine = Machine.of(vectors.topologies()["snc2-2s-32c"])
    odd = CpuSet.of_mask(distributed(machine, machine.cpus, 33, 2))
    even = CpuSet.of_mask(distributed(machine, machine.cpus, 34, 2))
    per_node = [[len(cpus & CpuSet.of_mask(node.mask)) for node in machine.numa_nodes] for cpus in (odd, even)]
    assert per_node == [[32, 1, 0, 0], [18, 16, 0, 0]]
