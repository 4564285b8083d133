"""The allocator returns the same CPUs as the kubelet for recorded requests on twenty machines."""

from functools import cache

import pytest

import vectors
from dracpu_agent.allocation.distributed import distributed
from dracpu_agent.allocation.errors import NotEnoughCpusError
from dracpu_agent.allocation.machine import Machine
from dracpu_agent.allocation.packed import packed
from dracpu_api.cpuset import CpuSet
from vectors import Case


@cache
def cases_by_machine() -> dict[str, list[Case]]:
    cases: dict[str, list[Case]] = {}
    for case in vectors.answers():
        cases.setdefault(case.topology, []).append(case)
    return cases


def answer(machine: Machine, case: Case) -> CpuSet:
    if case.mode == "numa-packed":
        return CpuSet.of_mask(
            packed(machine, case.available.mask, case.count, prefer_uncore=case.prefer_uncore, spread=case.spread)
        )
    return CpuSet.of_mask(distributed(machine, case.available.mask, case.count, case.group_size, spread=case.spread))


def test_the_number_of_vectors_is_that_in_the_readme() -> None:
    assert sum(map(len, cases_by_machine().values())) == 14_102


@pytest.mark.parametrize("name", vectors.topologies())
def test_the_answer_to_every_vector_is_the_kubelets(name: str) -> None:
    topology = vectors.topologies()[name]
    machine = Machine.of(topology)
    for case in cases_by_machine()[name]:
        if case.expect == "refuse":
            with pytest.raises(NotEnoughCpusError, match=f"^{case.count} CPUs? requested, "):
                answer(machine, case)
            continue
        got = answer(machine, case)
        if case.expect == "exact":
            assert got == case.cpus, case.id
        else:
            assert len(got) == case.count, case.id
            assert got <= case.available & topology.online, case.id


@pytest.mark.parametrize("case", vectors.bench(), ids=lambda case: case.id)
def test_the_benchmark_measures_correct_answers(case: Case) -> None:
    assert answer(Machine.of(vectors.topologies()[case.topology]), case) == case.cpus
