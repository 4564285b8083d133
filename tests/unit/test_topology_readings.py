"""How readings become a topology, with readings made by hand."""

import pytest

from dracpu_agent.topology.readings import (
    Group,
    Readings,
    arch_of,
    decide,
    merge_by_id,
    parse_list,
    parse_mask,
    partition,
)
from dracpu_agent.topology.topology import TopologyError
from dracpu_api.cpuset import EMPTY, CpuSet

SINGLE = {cpu: Group(CpuSet((cpu,)), cpu) for cpu in range(8)}
ONE_SOCKET = (Group(CpuSet(range(8)), 0),)


def readings_with(**changes: object) -> Readings:
    values: dict[str, object] = {"online": CpuSet(range(8)), "cores": tuple(SINGLE.values()), "sockets": ONE_SOCKET}
    return Readings(**(values | changes))  # type: ignore[arg-type]


def test_a_group_is_read_once_and_not_once_per_cpu() -> None:
    asked: list[int] = []

    def read_group(cpu: int) -> Group:
        asked.append(cpu)
        return Group(CpuSet((cpu % 4, cpu % 4 + 4)), cpu % 4)

    groups = partition(CpuSet(range(8)), read_group)
    assert asked == [0, 1, 2, 3]
    assert [str(group.cpus) for group in groups] == ["0,4", "1,5", "2,6", "3,7"]


def test_groups_contain_only_the_given_cpus_and_may_be_absent() -> None:
    groups = partition(CpuSet.parse("1-3"), lambda cpu: None if cpu == 3 else Group(CpuSet.parse("0-2"), 7))
    assert groups == (Group(CpuSet.parse("1-2"), 7),)


def test_groups_with_the_same_id_are_merged() -> None:
    merged = merge_by_id([Group(CpuSet((0,)), 5), Group(CpuSet((1,)), -1), Group(CpuSet((2,)), 5)])
    assert merged == (Group(CpuSet((0, 2)), 5), Group(CpuSet((1,)), -1))


@pytest.mark.parametrize(
    ("ids", "sockets", "l3"),
    [
        ((36, 8442), {36, 8442}, {36, 8442}),
        ((0, 0), {0, 1}, {0, 4}),
        ((-1, -1), {0, 1}, {0, 4}),
        ((-1, 4), {0, 1}, {0, 4}),
    ],
    ids=["tell apart", "repeat", "unknown", "half unknown"],
)
def test_the_kernels_ids_are_used_only_when_they_are_distinct(
    ids: tuple[int, int], sockets: set[int], l3: set[int]
) -> None:
    halves = [Group(CpuSet.parse(cpus), number) for cpus, number in zip(("0-3", "4-7"), ids, strict=True)]
    topology = decide(readings_with(sockets=halves, l3=halves))
    assert set(topology.sockets) == sockets
    assert set(topology.l3_groups) == l3


@pytest.mark.parametrize(
    ("capacities", "types"),
    [
        ({}, ["standard"] * 8),
        (dict.fromkeys(range(8), 1024), ["standard"] * 8),
        # Firmware that rates each core separately: a few percent do not make another type.
        (dict(enumerate((1024, 1013, 990, 1024, 1000, 1024, 1024, 870))), ["standard"] * 8),
        # Three types of Arm cores: 1 prime, 4 big, 3 little.
        (dict(enumerate((326, 326, 326, 894, 894, 894, 894, 1024))), ["e-core"] * 3 + ["p-core"] * 5),
    ],
    ids=["unknown", "equal", "almost equal", "big and little"],
)
def test_core_types_follow_capacity(capacities: dict[int, int], types: list[str]) -> None:
    assert [cpu.type for cpu in decide(readings_with(capacities=capacities)).cpus] == types


def test_the_kernels_lists_of_core_types_take_precedence_over_capacity() -> None:
    lists = (("p-core", CpuSet.parse("0-3")), ("e-core", CpuSet.parse("3-6")))
    topology = decide(readings_with(core_types=lists, capacities=dict(enumerate(range(100, 900, 100)))))
    assert [cpu.type for cpu in topology.cpus] == ["p-core"] * 4 + ["e-core"] * 3 + ["standard"]


def test_a_mask_is_parsed_as_the_kernel_prints_it() -> None:
    assert parse_mask("00000001,80000000,00000003\n", "cpumap") == CpuSet((0, 1, 63, 64))
    assert parse_mask("\n", "cpumap") == EMPTY
    with pytest.raises(TopologyError, match='cpumap: "0-3" is not a CPU mask'):
        parse_mask("0-3\n", "cpumap")
    with pytest.raises(TopologyError, match="cpumap"):
        parse_mask("-1\n", "cpumap")


def test_an_unset_list_is_empty() -> None:
    assert parse_list("  (null)\n", "nohz_full") == EMPTY
    assert parse_list("\n", "nohz_full") == EMPTY


@pytest.mark.parametrize(
    ("cpuinfo", "arch"),
    [
        ("processor\t: 0\nvendor_id\t: AuthenticAMD\nflags\t\t: fpu vme lm sse2\n", "x86_64"),
        ("processor\t: 0\nflags\t\t: fpu vme almost\n", "i686"),
        ("processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\n", "aarch64"),
        ("Processor\t: ARMv7 rev 1\nCPU architecture: 7\n", "armv7l"),
        ("processor\t: 0\ncpu\t\t: POWER9 (raw), altivec supported\n", "ppc64le"),
        ("vendor_id       : IBM/S390\n# processors    : 3\n", "s390x"),
        ("processor\t: 0\nhart\t\t: 0\nisa\t\t: rv64imafdc\n", "riscv64"),
        ("something else entirely", ""),
        ("", ""),
    ],
)
def test_the_architecture_is_found_in_cpuinfo(cpuinfo: str, arch: str) -> None:
    assert arch_of(cpuinfo) == arch


def test_a_core_is_named_after_the_lowest_thread_that_is_offered() -> None:
    pair = Group(CpuSet((0, 1)), 0)
    topology = decide(Readings(online=pair.cpus, cores=(pair,), sockets=(pair,), numa=(Group(CpuSet((1,)), 0),)))
    assert topology.cores == {1: CpuSet((1,))}
    assert set(topology.incomplete) == {0}
