"""The memory and hugepages of machines, written as the kernel would show them, are read correctly."""

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dracpu_agent.cli.memory import table, to_json
from dracpu_agent.cli.topology import table as topology_table
from dracpu_agent.host.memory import read_free, read_memory
from dracpu_agent.host.sysfs import read
from dracpu_agent.memory.inventory import Inventory, NumaMemory, Pages
from dracpu_agent.topology.topology import TopologyError
from dracpu_api.cpuset import EMPTY, CpuSet
from dracpu_sandbox.machines.description import Machine, Memory, Quirk
from dracpu_sandbox.machines.presets import LAB
from dracpu_sandbox.machines.tree import directory, write_tree

KIB, MIB, GIB = 2**10, 2**20, 2**30

# Two sockets with DRAM, CXL memory on the sparse node 4, and a node 7 without memory.
TIERED = replace(
    LAB,
    empty_nodes=(4, 7),
    memory=(
        Memory(0, 16_316_412, ((1_048_576, 4, 4, 0), (2048, 512, 498, 0)), tier=4),
        Memory(1, 16_512_180, ((1_048_576, 0, 0, 0), (2048, 71, 10, 61)), tier=4),
        Memory(4, 67_108_864, tier=22),
        Memory(7, 0, tier=4),
    ),
)


@pytest.fixture
def root() -> Iterator[Path]:
    with directory() as made:
        yield made


def found(machine: Machine, root: Path) -> Inventory:
    return read_memory(*write_tree(machine, root))


def test_every_numa_node_with_memory_is_read(root: Path) -> None:
    assert found(TIERED, root) == Inventory(
        (
            NumaMemory(
                0,
                CpuSet.parse("0-3"),
                16_316_412 * KIB,
                4,
                (Pages(2 * MIB, 512, 498), Pages(GIB, 4, 4)),
            ),
            # surplus pages do not count
            NumaMemory(1, CpuSet.parse("4-7"), 16_512_180 * KIB, 4, (Pages(2 * MIB, 10, 10, 61), Pages(GIB, 0, 0))),
            NumaMemory(4, EMPTY, 64 * GIB, 22),
        ),
        os.sysconf("SC_PAGE_SIZE"),
    )


def test_a_kernel_without_numa_has_one_node(root: Path) -> None:
    machine = replace(LAB, memory=(Memory(0, 4096, ((2048, 1, 0, 0),)),), quirks=frozenset([Quirk.NO_NUMA]))
    assert found(machine, root).nodes == (NumaMemory(0, CpuSet.parse("0-7"), 4 * MIB, None, (Pages(2 * MIB, 1, 0),)),)


def test_a_kernel_without_memory_tiers(root: Path) -> None:
    machine = replace(TIERED, memory=tuple(replace(memory, tier=None) for memory in TIERED.memory))
    assert {node.tier for node in found(machine, root).nodes} == {None}


def test_the_cpus_of_a_node_are_read_from_a_mask_where_there_is_no_list(root: Path) -> None:
    assert found(TIERED.with_quirks(Quirk.MASKS_ONLY), root).by_numa[1].cpus == CpuSet.parse("4-7")


@pytest.mark.parametrize("kib", [64, 2048, 32_768, 524_288, 1_048_576, 16_777_216])
def test_pages_of_every_size_are_read(root: Path, kib: int) -> None:
    machine = replace(LAB, memory=(Memory(0, 33_554_432, ((kib, 3, 2, 1),)),))
    assert found(machine, root).by_numa[0].pages == (Pages(kib * KIB, 2, 2, 1),)


def test_a_node_that_disappears_while_it_is_read_is_left_out(root: Path) -> None:
    sysfs, procfs = write_tree(TIERED, root)
    (sysfs / "devices/system/node/node4/meminfo").unlink()
    shutil.rmtree(sysfs / "devices/system/node/node1/hugepages")
    assert [(node.numa, node.pages) for node in read_memory(sysfs, procfs).nodes][1:] == [(1, ())]


@pytest.mark.parametrize("numa", [True, False])
def test_a_machine_whose_memory_cannot_be_read_is_an_error_that_names_the_files(root: Path, numa: bool) -> None:
    unknown = replace(LAB, memory=())
    sysfs, procfs = write_tree(unknown if numa else unknown.with_quirks(Quirk.NO_NUMA), root)
    with pytest.raises(TopologyError, match=r"no memory in .*/meminfo: mount"):
        read_memory(sysfs, procfs)


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        ("node0/meminfo", "Node 0 MemFree: 1 kB", "node0/meminfo has no MemTotal"),
        ("node0/meminfo", "Node 0 MemTotal: many kB", 'node0/meminfo: MemTotal "many kB" is not a number of kB'),
        ("node0/hugepages/hugepages-2048kB/nr_hugepages", "x", 'nr_hugepages: "x" is not a number of pages'),
        ("node0/cpulist", "3-1", "node0/cpulist: "),
    ],
)
def test_a_file_with_other_content_is_an_error_that_names_it(root: Path, path: str, text: str, message: str) -> None:
    sysfs, procfs = write_tree(TIERED, root)
    (sysfs / "devices/system/node" / path).write_text(text)
    with pytest.raises(TopologyError, match=message):
        read_memory(sysfs, procfs)


@given(
    st.lists(
        st.builds(
            Memory,
            st.integers(0, 1023),
            st.integers(1, 2**40),
            st.just(()),
            st.none() | st.integers(0, 200),
        ),
        min_size=1,
        max_size=8,
        unique_by=lambda memory: memory.numa,
    )
)
def test_any_machine_is_read_as_it_is_described(memory: list[Memory]) -> None:
    machine = replace(LAB, empty_nodes=tuple(node.numa for node in memory if node.numa > 1), memory=tuple(memory))
    with directory() as made:
        nodes = found(machine, made).nodes
    assert [(node.numa, node.total, node.tier) for node in nodes] == sorted(
        (node.numa, node.kib * KIB, node.tier) for node in memory
    )


def test_the_table_has_a_row_for_each_node(root: Path) -> None:
    assert table(found(TIERED, root)) == dedent("""\
        NUMA  CPUS  TIER     TOTAL  2Mi             1Gi
           0  0-3      4  15.6 GiB  512 (498 free)  4 (4 free)
           1  4-7      4  15.7 GiB  10 (10 free)    0
           4  -       22  64.0 GiB  0               0
        """)


def test_json_has_bytes_and_counts(root: Path) -> None:
    first, *_, last = json.loads(to_json(found(TIERED, root)))
    assert first == {
        "numa": 0,
        "cpus": "0-3",
        "tier": 4,
        "total": 16_316_412 * KIB,
        "hugepages": {"2Mi": {"pages": 512, "free": 498}, "1Gi": {"pages": 4, "free": 4}},
    }
    assert last == {"numa": 4, "cpus": "", "tier": 22, "total": 64 * GIB, "hugepages": {}}


def test_the_table_of_the_topology_has_the_memory_of_each_node(root: Path) -> None:
    sysfs, procfs = write_tree(TIERED, root)
    lines = topology_table(read(sysfs, procfs), CpuSet((0,)), read_memory(sysfs, procfs)).splitlines()
    assert lines[1:3] == [
        "1 reserved (0), marked *",
        "95.3 GiB of memory: 15.6 GiB on NUMA node 0, 15.7 GiB on NUMA node 1, 64.0 GiB on NUMA node 4 (without CPUs)",
    ]


def test_the_free_memory_of_each_numa_node(tmp_path: Path) -> None:
    for numa, free in ((0, 1024), (3, 0)):
        meminfo = tmp_path / f"devices/system/node/node{numa}/meminfo"
        meminfo.parent.mkdir(parents=True)
        meminfo.write_text(f"Node {numa} MemTotal:  4096 kB\nNode {numa} MemFree:   {free} kB\n")
    assert read_free(tmp_path) == {0: 1024 * KIB, 3: 0}
    assert read_free(tmp_path / "without-numa") == {}
