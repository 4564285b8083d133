"""Packed follows the kubelet's rules on random machines and never returns a wrong answer."""

import pytest
import random_machines
from hypothesis import given, settings
from hypothesis import strategies as st
from kubelet_rules import Rules

import vectors
from dracpu_agent.allocation.errors import NotEnoughCpusError
from dracpu_agent.allocation.machine import Machine
from dracpu_agent.allocation.packed import packed
from dracpu_api.cpuset import EMPTY, CpuSet

HYBRID = Machine.of(vectors.topologies()["hybrid-6p8e2lpe"])


@settings(max_examples=400)
@given(st.data())
def test_packed_follows_the_kubelets_rules(data: st.DataObject) -> None:
    topology = data.draw(random_machines.machines())
    free = data.draw(random_machines.available(topology))
    count = data.draw(st.integers(0, len(free)))
    prefer_uncore, spread = data.draw(st.booleans()), data.draw(st.booleans())

    got = packed(Machine.of(topology), free.mask, count, prefer_uncore=prefer_uncore, spread=spread)

    expected = Rules(topology).packed(set(free), count, prefer_uncore=prefer_uncore, spread=spread)
    assert CpuSet.of_mask(got) == CpuSet(expected)


@settings(max_examples=50)
@given(st.data())
def test_packed_refuses_more_cpus_than_are_free(data: st.DataObject) -> None:
    topology = data.draw(random_machines.machines())
    free = data.draw(random_machines.available(topology))
    too_many = len(free) + data.draw(st.integers(1, 5))
    with pytest.raises(NotEnoughCpusError, match=f"{len(free)} free"):
        packed(Machine.of(topology), free.mask, too_many)


def test_the_rules_agree_with_the_kubelets_answers() -> None:
    cases = [case for case in vectors.answers() if case.expect == "exact" and case.mode == "numa-packed"]
    rules = {name: Rules(topology) for name, topology in vectors.topologies().items()}
    for case in cases[::40]:
        got = rules[case.topology].packed(
            set(case.available), case.count, prefer_uncore=case.prefer_uncore, spread=case.spread
        )
        assert CpuSet(got) == case.cpus, case.id


def test_cpus_that_the_machine_does_not_have_are_not_allocated() -> None:
    with pytest.raises(NotEnoughCpusError, match="3 CPUs requested, 2 free: 20-21$"):
        packed(HYBRID, CpuSet.parse("20-30").mask, 3)


def test_a_busy_thread_is_not_taken_with_its_core_on_uneven_machines() -> None:
    # P-cores have two threads, E-cores one. The rounded average is one, so the kubelet counts a P-core with one busy
    # thread as wholly free.
    one_thread_of_each_p_core = CpuSet.parse("0,2,4,6,8,10")
    got = packed(HYBRID, one_thread_of_each_p_core.mask, 6)
    assert CpuSet.of_mask(got) == one_thread_of_each_p_core


def test_half_a_core_is_not_taken_from_an_uncore_if_cores_have_one_thread_on_average() -> None:
    # The whole machine is one uncore. Its first core has two threads, so the uncore cannot give exactly one CPU.
    got = packed(HYBRID, HYBRID.cpus, 1, prefer_uncore=True)
    assert str(CpuSet.of_mask(got)) == "12"


def test_a_request_for_no_cpus_takes_none() -> None:
    assert CpuSet.of_mask(packed(HYBRID, HYBRID.cpus, 0)) == EMPTY
    assert CpuSet.of_mask(packed(HYBRID, 0, 0)) == EMPTY


def test_a_long_list_of_free_cpus_is_shortened_in_the_message() -> None:
    machine = Machine.of(vectors.topologies()["big-512-nps4"])
    every_other = CpuSet(range(0, 512, 2))
    with pytest.raises(NotEnoughCpusError) as refused:
        packed(machine, every_other.mask, 300)
    assert str(refused.value).endswith(",... (256 CPUs)")
    assert len(str(refused.value)) < 200
