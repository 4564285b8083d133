"""What a container uses is read from its cgroup, with the name that each runtime gives it."""

import shutil
from pathlib import Path

import pytest
from cgroup_trees import write_cgroup, write_limits, write_tree

from dracpu_agent.host.cgroup_errors import CgroupError, ControllerMissingError, UnsafeCgroupError
from dracpu_agent.host.cgroups import CgroupTree
from dracpu_agent.host.container_usage import ContainerUsage, ContainerUsages, NumaUsage
from dracpu_agent.host.hugetlb import UNLIMITED

MIB, GIB = 2**20, 2**30
SLICE = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_a.slice"
PLACE = "kubepods/pod1-a/c1"
MEMORY = {
    "current": "104857600",
    "max": "134217728",
    "stat": "anon 73400320\nfile 20971520\nkernel 4096\nshmem 4194304\ninactive_anon 0\ninactive_file 10485760",
    "numa_stat": "anon N0=73400320 N2=0\nfile N0=16777216 N2=4194304\ninactive_file N0=10485760 N2=0",
}
PAGES = {
    "2MB.current": "6291456",
    "2MB.rsvd.current": "8388608",
    "2MB.numa_stat": "total=6291456 N0=2097152 N2=4194304",
    "1GB.current": "0",
    "1GB.rsvd.current": "0",
    "1GB.numa_stat": "total=0 N0=0 N2=0",
}
USAGE = ContainerUsage(
    current=100 * MIB,
    limit=128 * MIB,
    anon=70 * MIB,
    file=20 * MIB,
    inactive_file=10 * MIB,
    shmem=4 * MIB,
    pages={2 * MIB: 6 * MIB, GIB: 0},
    reserved={2 * MIB: 8 * MIB, GIB: 0},
    numa={
        0: NumaUsage(70 * MIB, 16 * MIB, {2 * MIB: 2 * MIB, GIB: 0}),
        2: NumaUsage(0, 4 * MIB, {2 * MIB: 4 * MIB, GIB: 0}),
    },
)


def container_at(mount: Path, place: str = PLACE) -> Path:
    container = write_limits(write_tree(mount, place), {"2MB": "max", "1GB": "max"})
    for prefix, files in (("memory", MEMORY), ("hugetlb", PAGES)):
        for name, text in files.items():
            (container / f"{prefix}.{name}").write_text(f"{text}\n")
    return container


def usages(mount: Path) -> ContainerUsages:
    return ContainerUsages(mount, CgroupTree(mount))


@pytest.mark.parametrize(
    "place",
    [
        PLACE,
        "kubepods/besteffort/pod1-a/crio-c1",
        f"{SLICE}/cri-containerd-c1.scope",
        f"{SLICE}/crio-c1.scope",
        f"{SLICE}/crio-c1.scope/container",
    ],
)
def test_the_usage_of_a_container(tmp_path, place):
    container_at(tmp_path, place)
    assert usages(tmp_path).read("1-a", "c1") == USAGE


def test_what_cannot_be_freed_at_once_and_the_numa_nodes_of_a_container(tmp_path):
    container = container_at(tmp_path)
    stat = f"{MEMORY['stat']}\nfile_dirty 8192\nfile_writeback 4096\nunevictable 40960\n"
    (container / "memory.stat").write_text(stat)
    (container / "cpuset.mems").write_text("0-1\n")
    usage = usages(tmp_path).read("1-a", "c1")
    assert usage is not None
    assert (usage.unwritten, usage.unevictable, usage.nodes) == (12288, 40960, "0-1")


def test_the_limits_of_a_container_are_read_and_written(tmp_path):
    container = container_at(tmp_path)
    (container / "cpuset.mems").write_text("\n")
    assert usages(tmp_path).write("1-a", "c1", "cpuset.mems", "0")
    found = usages(tmp_path).read_files("1-a", "c1", ["cpuset.mems", "memory.max", "memory.zswap.max"])
    assert found == {"cpuset.mems": "0", "memory.max": str(128 * MIB)}


def test_nothing_is_written_outside_of_the_cgroup_of_a_container(tmp_path):
    container, outside = container_at(tmp_path), tmp_path / "outside"
    outside.write_text("1\n")
    (container / "cpuset.mems").symlink_to(outside)
    with pytest.raises(UnsafeCgroupError):
        usages(tmp_path).write("1-a", "c1", "cpuset.mems", "0")
    with pytest.raises(CgroupError):
        usages(tmp_path).write("1-a", "c1", "../c1/memory.max", "0")
    assert not usages(tmp_path).write("1-a", "c2", "cpuset.mems", "0")
    assert usages(tmp_path).read_files("1-a", "c2", ["cpuset.mems"]) is None
    assert outside.read_text() == "1\n"


def test_a_container_that_is_gone(tmp_path):
    container = container_at(tmp_path)
    assert usages(tmp_path).read("1-a", "c2") is None
    assert usages(tmp_path).read("2-b", "c1") is None
    (container / "cgroup.controllers").unlink()  # what the kernel shows of a cgroup that was removed while it was open
    assert usages(tmp_path).read("1-a", "c1") is None
    shutil.rmtree(tmp_path / "kubepods")
    assert usages(tmp_path).read("1-a", "c1") is None


def test_no_limit(tmp_path):
    (container_at(tmp_path) / "memory.max").write_text("max\n")
    usage = usages(tmp_path).read("1-a", "c1")
    assert usage is not None
    assert usage.limit == UNLIMITED


def test_what_an_older_kernel_does_not_count_is_absent(tmp_path):
    container = container_at(tmp_path)
    for file in ("memory.numa_stat", *(f"hugetlb.{name}" for name in PAGES if not name.endswith("B.current"))):
        (container / file).unlink()
    usage = usages(tmp_path).read("1-a", "c1")
    assert usage is not None
    assert (usage.numa, usage.reserved, usage.pages) == ({}, {}, USAGE.pages)


def test_a_container_without_the_hugetlb_controller(tmp_path):
    container = container_at(tmp_path)
    for file in container.glob("hugetlb.*"):
        file.unlink()
    usage = usages(tmp_path).read("1-a", "c1")
    assert usage is not None
    assert (usage.current, usage.pages, usage.reserved) == (USAGE.current, {}, {})
    assert usage.numa == {0: NumaUsage(70 * MIB, 16 * MIB), 2: NumaUsage(0, 4 * MIB)}


def test_a_container_without_the_memory_controller_is_an_error_that_names_the_file_to_write(tmp_path):
    (container_at(tmp_path) / "memory.current").unlink()
    with pytest.raises(CgroupError, match="use a newer kernel"):
        usages(tmp_path).read("1-a", "c1")
    write_cgroup(tmp_path / PLACE, controllers="cpu hugetlb")
    with pytest.raises(ControllerMissingError, match=r"kubepods/pod1-a/cgroup\.subtree_control on the node"):
        usages(tmp_path).read("1-a", "c1")


@pytest.mark.parametrize("file", ["memory.current", "memory.stat", "memory.numa_stat", "hugetlb.2MB.current"])
def test_a_text_that_cannot_be_read_as_bytes_is_an_error_that_names_the_file(tmp_path, file):
    (container_at(tmp_path) / file).write_text("anon N0=x\n")
    with pytest.raises(CgroupError, match=rf"kubepods/pod1-a/c1/{file} contains"):
        usages(tmp_path).read("1-a", "c1")


@pytest.mark.parametrize("linked", ["kubepods", "kubepods/pod1-a", PLACE, f"{PLACE}/memory.current"])
def test_no_link_is_followed(tmp_path, linked):
    mount = tmp_path / "mount"
    container_at(mount)
    (mount / linked).rename(tmp_path / "elsewhere")
    (mount / linked).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnsafeCgroupError):
        usages(mount).read("1-a", "c1")
