"""The number of hugepages of a NUMA node is written as the kernel takes it, unless others have changed it meanwhile."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dracpu_agent.host.memory import NODES
from dracpu_agent.host.page_pools import PagePools, PoolError, PoolNotWritableError
from dracpu_agent.memory.kinds import Kind, Place
from dracpu_agent.memory.own_pages import Change
from dracpu_sandbox.machines.description import Memory, Quirk
from dracpu_sandbox.machines.presets import LAB
from dracpu_sandbox.machines.tree import directory, write_tree

MIB, GIB = 2**20, 2**30
HERE = Place(0, Kind(2 * MIB))
MACHINE = replace(
    LAB,
    memory=(
        Memory(0, 4 * MIB, ((2048, 71, 10, 61), (1_048_576, 1, 1, 0)), used=MIB),
        Memory(1, 4 * MIB, ((2048, 64, 64, 0), (1_048_576, 0, 0, 0))),
    ),
)


@pytest.fixture
def roots() -> Iterator[tuple[Path, Path]]:
    with directory() as made:
        yield write_tree(MACHINE, made)


def pools(roots: tuple[Path, Path]) -> PagePools:
    sysfs, procfs = roots
    return PagePools(sysfs, procfs, sysfs / NODES)


def count(sysfs: Path, numa: int = 0) -> Path:
    return sysfs / NODES / f"node{numa}/hugepages/hugepages-2048kB/nr_hugepages"


def test_what_there_is_is_read(roots: tuple[Path, Path]) -> None:
    sysfs, procfs = roots
    (sysfs / "kernel/mm/hugepages/hugepages-2048kB/resv_hugepages").write_text("7\n")
    (procfs / "sys/kernel/random").mkdir(parents=True)
    (procfs / "sys/kernel/random/boot_id").write_text("a-boot\n")
    found = pools(roots).look()
    assert found.inventory.by_numa[0].pages_of(2 * MIB).count == 10
    assert found.available == {0: ((4 - 1 - 1) * GIB - 142 * MIB, 0), 1: (4 * GIB - 128 * MIB, 0)}
    assert found.mapped == {2 * MIB: 7, GIB: 0}
    assert found.boot == "a-boot"


@pytest.mark.parametrize("then", [4, 512])
def test_a_number_of_pages_is_written(roots: tuple[Path, Path], then: int) -> None:
    change = Change(HERE, 10, then)  # without the surplus pages, as the kernel takes it
    pools(roots).check(change)
    assert count(roots[0]).read_text() == "71\n"
    pools(roots).write(change)
    assert count(roots[0]).read_text() == f"{then}\n"
    assert count(roots[0], 1).read_text() == "64\n"


def test_nothing_is_written_when_others_have_changed_the_number(roots: tuple[Path, Path]) -> None:
    for step in (pools(roots).check, pools(roots).write):
        with pytest.raises(PoolError, match="11 pages have become 10 meanwhile"):
            step(Change(HERE, 11, 512))
    assert count(roots[0]).read_text() == "71\n"


def test_without_a_mount_the_chart_has_to_be_installed_with_another_value(roots: tuple[Path, Path]) -> None:
    without = PagePools(*roots, None)
    assert without.look().inventory.nodes
    with pytest.raises(PoolNotWritableError, match=r"agent\.memory\.provision=true, or remove memory\.provision"):
        without.check(Change(HERE, 10, 512))


def test_a_mount_that_is_absent_is_named(roots: tuple[Path, Path]) -> None:
    sysfs, procfs = roots
    absent = PagePools(sysfs, procfs, sysfs / "nothing")
    with pytest.raises(PoolNotWritableError, match=rf"mount the node's /sys/{NODES} at {sysfs}/nothing, writable"):
        absent.check(Change(HERE, 10, 512))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to every file of a writable file system")
def test_a_file_that_cannot_be_written_is_refused(roots: tuple[Path, Path]) -> None:
    count(roots[0]).chmod(0o444)
    with pytest.raises(PoolNotWritableError, match="Permission denied: mount the node's"):
        pools(roots).check(Change(HERE, 10, 512))


@pytest.mark.parametrize("place", [Place(0, Kind(64 * 2**10)), Place(9, Kind(2 * MIB))])
def test_a_size_or_a_numa_node_that_the_kernel_does_not_have(roots: tuple[Path, Path], place: Place) -> None:
    with pytest.raises(PoolError, match="does not exist: the kernel has no pages of this size there"):
        pools(roots).write(Change(place, 0, 1))


def test_a_kernel_without_numa_has_nothing_to_write(roots: tuple[Path, Path]) -> None:
    with directory() as made:
        machine = replace(MACHINE, memory=MACHINE.memory[:1], quirks=frozenset([Quirk.NO_NUMA]))
        sysfs, procfs = write_tree(machine, made)
        found = PagePools(sysfs, procfs, sysfs / NODES)
        assert found.look().available == {0: (0, 0)}
        with pytest.raises(PoolNotWritableError):
            found.check(Change(HERE, 10, 512))


def test_a_link_is_not_followed(roots: tuple[Path, Path], tmp_path: Path) -> None:
    count(roots[0]).unlink()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("71\n")
    count(roots[0]).symlink_to(elsewhere)
    with pytest.raises(PoolError, match="is a link or no file"):
        pools(roots).write(Change(HERE, 10, 512))
    assert elsewhere.read_text() == "71\n"


def test_a_count_that_is_no_number_is_refused(roots: tuple[Path, Path]) -> None:
    count(roots[0]).write_text("many\n")
    with pytest.raises(PoolError, match='nr_hugepages: "many" is not a number of pages'):
        pools(roots).check(Change(HERE, 10, 512))
