"""The limits of hugepages of pods are found, read and written with every cgroup driver of the kubelet."""

import ctypes
import errno
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cgroup_trees import write_cgroup, write_limits, write_tree

from dracpu_agent.host.cgroup_errors import (
    CgroupError,
    ControllerMissingError,
    NotWritableError,
    PodGoneError,
    refusal,
)
from dracpu_agent.host.cgroups import CgroupTree
from dracpu_agent.host.hugetlb import UNLIMITED
from dracpu_agent.host.pod_limits import PodLimits
from dracpu_sandbox.machines.tree import directory

KIB, MIB, GIB = 2**10, 2**20, 2**30
UID = "1-a"
PLACES = [
    ("", "kubepods/pod1-a"),
    ("", "kubepods/burstable/pod1-a"),
    ("", "kubepods/besteffort/pod1-a"),
    ("", "kubepods.slice/kubepods-pod1_a.slice"),
    ("", "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_a.slice"),
    (
        "",
        "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-pod1_a.slice",
    ),
    ("/a/b", "a/b/kubepods/burstable/pod1-a"),
    ("/a/b", "a.slice/a-b.slice/a-b-kubepods.slice/a-b-kubepods-pod1_a.slice"),
]
GUARANTEED = PLACES[0][1]


def limits_of(mount: Path, cgroup_root: str = "") -> PodLimits:
    # the tree that the agent reads is at another mount
    return PodLimits(mount, CgroupTree(Path("/absent"), cgroup_root))


@pytest.mark.parametrize(("cgroup_root", "place"), PLACES)
def test_the_limits_of_a_pod_are_read_and_written(tmp_path, cgroup_root, place):
    limits = limits_of(tmp_path, cgroup_root)
    pod = write_limits(write_tree(tmp_path, place), {"2MB": "0", "1GB": "max"})
    other = write_limits(write_cgroup(pod.parent / "pod2"), {"2MB": "0", "1GB": "0"})
    assert limits.read(UID) == {2 * MIB: 0, GIB: UNLIMITED}
    limits.write(UID, {2 * MIB: 64 * MIB, GIB: 0})
    assert limits.read(UID) == {2 * MIB: 64 * MIB, GIB: 0}
    assert texts(pod) == {
        "2MB.max": "67108864\n",
        "2MB.rsvd.max": "67108864\n",
        "1GB.max": "0\n",
        "1GB.rsvd.max": "0\n",
    }
    assert set(texts(other).values()) == {"0\n"}


def test_the_kernels_sizes_of_every_architecture(tmp_path):
    pod = write_limits(write_tree(tmp_path, GUARANTEED), {"64KB": "65536", "32MB": "0", "16GB": "max"})
    limits = limits_of(tmp_path)
    assert limits.read(UID) == {64 * KIB: 65536, 32 * MIB: 0, 16 * GIB: UNLIMITED}
    limits.write(UID, {64 * KIB: UNLIMITED, 16 * GIB: 16 * GIB})
    assert texts(pod)["64KB.max"] == "max\n"
    assert texts(pod)["32MB.max"] == "0\n"
    assert texts(pod)["16GB.rsvd.max"] == "17179869184\n"


def test_a_shorter_text_replaces_a_longer_one(tmp_path):
    pod = write_limits(write_tree(tmp_path, GUARANTEED), {"2MB": "4611686018427387904"})
    limits_of(tmp_path).write(UID, {2 * MIB: 0})
    assert texts(pod) == {"2MB.max": "0\n", "2MB.rsvd.max": "0\n"}


def test_a_limit_is_written_in_whole_pages(tmp_path):
    pod = write_limits(write_tree(tmp_path, GUARANTEED), {"2MB": "0"})
    limits_of(tmp_path).write(UID, {2 * MIB: 3_000_000})
    assert texts(pod)["2MB.max"] == "2097152\n"


def test_only_files_that_show_another_limit_are_written(tmp_path):
    pod = write_limits(
        write_tree(tmp_path, GUARANTEED), {"2MB": "2097152", "1GB": "max"}, reserved={"2MB": "0", "1GB": "max"}
    )
    for file in pod.glob("hugetlb.*"):
        os.utime(file, (0, 0))
    assert limits_of(tmp_path).write(UID, {2 * MIB: 2 * MIB + 5, GIB: UNLIMITED})
    assert {file.name for file in pod.glob("hugetlb.*") if file.stat().st_mtime} == {"hugetlb.2MB.rsvd.max"}
    assert texts(pod)["2MB.rsvd.max"] == "2097152\n"


def test_a_new_cgroup_is_unlimited_although_the_kernel_shows_a_number(tmp_path):
    largest = str(2**63 - 4096)
    pod = write_limits(write_tree(tmp_path, GUARANTEED), {"2MB": largest, "1GB": largest})
    limits = limits_of(tmp_path)
    assert limits.read(UID) == {2 * MIB: UNLIMITED, GIB: UNLIMITED}
    assert not limits.write(UID, {2 * MIB: UNLIMITED, GIB: UNLIMITED})
    assert set(texts(pod).values()) == {f"{largest}\n"}  # not written


def test_a_kernel_that_does_not_limit_reservations(tmp_path):
    pod = write_limits(write_tree(tmp_path, GUARANTEED), {"2MB": "0"}, counts_reserved=False)
    limits = limits_of(tmp_path)
    limits.write(UID, {2 * MIB: 2 * MIB})
    assert texts(pod) == {"2MB.max": "2097152\n"}
    assert limits.files(UID) == [pod / "hugetlb.2MB.max"]


def test_the_files_to_watch_are_those_of_use_and_of_reservation(tmp_path):
    limits = limits_of(tmp_path)
    assert limits.files(UID) == []
    pod = write_limits(write_tree(tmp_path, GUARANTEED), {"1GB": "0", "2MB": "0"})
    names = ["hugetlb.2MB.max", "hugetlb.2MB.rsvd.max", "hugetlb.1GB.max", "hugetlb.1GB.rsvd.max"]
    assert limits.files(UID) == [pod / name for name in names]


def test_a_pod_without_a_cgroup(tmp_path):
    limits = limits_of(tmp_path)
    pod = write_limits(write_tree(tmp_path, GUARANTEED), {"2MB": "0"})
    assert limits.read("2-b") is None
    with pytest.raises(PodGoneError, match="pod 2-b has no cgroup in .*/kubepods: "):
        limits.write("2-b", {2 * MIB: 0})
    shutil.rmtree(pod)
    assert limits.read(UID) is None
    with pytest.raises(PodGoneError):
        limits.write(UID, {})


def test_a_pod_whose_cgroup_is_being_removed(tmp_path):
    pod = write_tree(tmp_path, GUARANTEED)
    (pod / "cgroup.controllers").unlink()  # what the kernel shows of a cgroup that was removed while it was open
    assert limits_of(tmp_path).read(UID) is None
    with pytest.raises(PodGoneError, match="has ended"):
        limits_of(tmp_path).write(UID, {2 * MIB: 0})


def test_a_cgroup_without_the_hugetlb_controller(tmp_path):
    pod = write_tree(tmp_path, GUARANTEED)
    write_cgroup(pod, controllers="cpu memory")
    assert limits_of(tmp_path).read(UID) == {}
    with pytest.raises(ControllerMissingError, match=r"write \+hugetlb to .*/kubepods/cgroup\.subtree_control"):
        limits_of(tmp_path).write(UID, {2 * MIB: 0})


def test_a_size_that_the_kernel_does_not_support_is_refused_before_anything_is_written(tmp_path):
    pod = write_limits(write_tree(tmp_path, GUARANTEED), {"2MB": "0"})
    with pytest.raises(ControllerMissingError, match="hugepages of 32MB, 1GB: the kernel does not support"):
        limits_of(tmp_path).write(UID, {2 * MIB: 2 * MIB, GIB: GIB, 32 * MIB: 0})
    assert set(texts(pod).values()) == {"0\n"}


def test_without_a_tree_the_error_says_what_to_mount(tmp_path):
    limits = limits_of(tmp_path / "absent")
    assert limits.read(UID) is None
    with pytest.raises(NotWritableError, match="/absent: No such file or directory: mount the node's cgroup v2 tree"):
        limits.write(UID, {2 * MIB: 0})


def test_a_file_without_a_number_is_an_error_that_names_it(tmp_path):
    write_limits(write_tree(tmp_path, GUARANTEED), {"2MB": "many"})
    with pytest.raises(CgroupError, match=r'kubepods/pod1-a/hugetlb\.2MB\.max contains "many"'):
        limits_of(tmp_path).read(UID)


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        (errno.EROFS, NotWritableError, "/mount/pod/name: Read-only file system: mount .* at /mount, writable"),
        (errno.EACCES, NotWritableError, "AppArmor"),
        (errno.EPERM, NotWritableError, "AppArmor"),
        (errno.ENODEV, PodGoneError, "/mount/pod/name does not exist any more"),
        (errno.ENOENT, PodGoneError, "/mount/pod/name does not exist any more"),
        (errno.EINVAL, CgroupError, "/mount/pod/name: Invalid argument"),
    ],
)
def test_each_refusal_of_the_kernel_has_its_error(code, kind, message):
    error = refusal(OSError(code, os.strerror(code), "name"), Path("/mount/pod"), Path("/mount"))
    assert type(error) is kind
    with pytest.raises(kind, match=message):
        raise error


@pytest.fixture
def readable() -> Iterator[Path]:
    """A directory that every user may enter, unlike pytest's."""
    with directory() as made:
        made.chmod(0o755)
        yield made


def test_a_tree_that_cannot_be_written(readable):
    limits = limits_of(readable)
    for cgroup in (write_tree(readable, GUARANTEED), readable / "kubepods"):
        for file in write_limits(cgroup, {"2MB": "0"}).glob("hugetlb.*"):
            file.chmod(0o444)
    failures = without_privileges(lambda: [limits.problem(), refused(lambda: limits.write(UID, {2 * MIB: 2 * MIB}))])
    pods, pod = (f"{readable}/{place}/hugetlb.2MB.max: Permission denied: mount" for place in ("kubepods", GUARANTEED))
    assert failures[0].startswith(pods)
    assert failures[1].startswith(f"NotWritableError: {pod}")
    assert limits.read(UID) == {2 * MIB: 0}


def refused(work):
    try:
        work()
    except CgroupError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def without_privileges(work):
    """The result of work in a thread whose accesses to files are those of a user without rights. The kernel has this
    user for each thread; the process keeps its own."""
    results = []

    def run():
        ctypes.CDLL(None).setfsuid(65534)
        results.extend(work())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return results


def texts(cgroup: Path) -> dict[str, str]:
    return {file.name.removeprefix("hugetlb."): file.read_text() for file in cgroup.glob("hugetlb.*")}


def test_a_node_where_limits_can_be_written_has_no_problem(tmp_path):
    for _, place in PLACES[:2]:
        pod = write_limits(write_tree(tmp_path, place), {"2MB": "0"})
        write_limits(pod.parent, {"2MB": "max"})
    assert limits_of(tmp_path).problem() == ""
    for cgroup in (tmp_path / "kubepods", tmp_path / "kubepods/burstable"):
        (cgroup / "cgroup.subtree_control").write_text("cpu hugetlb\n")
    assert limits_of(tmp_path).problem() == ""


def test_a_mount_without_a_cgroup_v2_tree_is_a_problem(tmp_path):
    assert "mount the node's cgroup v2 tree there" in limits_of(tmp_path / "absent").problem()
    assert (
        limits_of(tmp_path).problem()
        == f"{tmp_path} is no cgroup v2 tree: mount the node's cgroup v2 tree there, writable"
    )


def test_a_tree_without_a_cgroup_of_pods_is_a_problem(tmp_path):
    write_tree(tmp_path, "a/b/kubepods")
    assert "set the agent's --cgroup-root" in limits_of(tmp_path).problem()
    assert limits_of(tmp_path, "/a/b").problem() == ""


def test_a_kernel_without_the_controller_is_a_problem(tmp_path):
    for cgroup in (tmp_path, tmp_path / "kubepods"):
        write_cgroup(cgroup, controllers="cpu memory")
    assert "CONFIG_CGROUP_HUGETLB" in limits_of(tmp_path).problem()


@pytest.mark.parametrize("lacking", ["kubelet.slice", "kubelet.slice/kubelet-kubepods.slice"])
def test_a_cgroup_to_which_the_controller_is_not_passed_on_is_a_problem(tmp_path, lacking):
    pods = write_tree(tmp_path, "kubelet.slice/kubelet-kubepods.slice")
    for cgroup in {tmp_path / lacking, pods}:
        write_cgroup(cgroup, controllers="cpu")
    problem = limits_of(tmp_path).problem()
    assert problem.startswith(f"{(tmp_path / lacking).parent} does not pass the hugetlb controller on")


@pytest.mark.parametrize("qos", ["burstable", "besteffort"])
def test_a_qos_class_without_the_controller_is_a_problem(tmp_path, qos):
    write_cgroup(write_tree(tmp_path, f"kubepods/{qos}"), controllers="cpu memory")
    assert f"write +hugetlb to {tmp_path}/kubepods/cgroup.subtree_control" in limits_of(tmp_path).problem()


@pytest.mark.parametrize("qos", ["burstable", "besteffort"])
def test_a_qos_class_in_which_the_kubelet_has_made_no_pod_yet_is_no_problem(tmp_path, qos):
    (write_tree(tmp_path, f"kubepods/{qos}") / "cgroup.subtree_control").write_text("\n")
    assert limits_of(tmp_path).problem() == ""


def test_a_link_in_place_of_the_cgroup_of_all_pods_is_a_problem(tmp_path):
    write_tree(tmp_path, "elsewhere")
    (tmp_path / "kubepods").symlink_to("elsewhere")
    assert limits_of(tmp_path).problem().startswith(f"{tmp_path}/kubepods is not a part of the cgroup tree")


@pytest.mark.parametrize(
    ("controllers", "why"),
    [
        ("cpuset cpu memory hugetlb", ""),
        ("cpuset cpu hugetlb", "has no memory controller: start the kernel without cgroup_disable=memory"),
        ("", "has no memory controller"),  # the v2 part of a hybrid tree
        (None, "is no cgroup v2 tree, and only cgroup v2 has the limits that claims need"),
    ],
)
def test_a_machine_that_cannot_limit_memory_is_recognized(tmp_path, controllers, why):
    write_tree(tmp_path, "kubepods")
    if controllers is None:
        (tmp_path / "cgroup.controllers").unlink()
    else:
        (tmp_path / "cgroup.controllers").write_text(f"{controllers}\n")
    found = limits_of(tmp_path).memory_problem()
    assert why in found
    assert bool(found) == bool(why)


def test_ordinary_memory_does_not_need_the_agents_mount(tmp_path):
    assert limits_of(tmp_path / "absent").memory_problem() == ""
