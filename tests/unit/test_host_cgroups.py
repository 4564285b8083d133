"""The cgroup of all pods is found with every cgroup driver of the kubelet, and read."""

from pathlib import Path

import pytest
from cgroup_trees import write_cgroup

from dracpu_agent.host.cgroups import CgroupTree
from dracpu_agent.topology.topology import TopologyError
from dracpu_api.cpuset import CpuSet


def test_a_node_without_cgroup_v2_is_not_restricted(tmp_path: Path) -> None:
    for tree in (CgroupTree(tmp_path / "absent"), CgroupTree(tmp_path)):
        assert (tree.pods_cpus(), tree.without_cpuset()) == (None, "")
    (tmp_path / "cpuset" / "kubepods").mkdir(parents=True)  # cgroup v1
    assert (CgroupTree(tmp_path).pods_cpus(), CgroupTree(tmp_path).without_cpuset()) == (None, "")


def test_before_the_kubelets_first_start_nothing_is_known(tmp_path: Path) -> None:
    write_cgroup(tmp_path, "0-7")
    write_cgroup(tmp_path / "system.slice", "0-7")
    assert (CgroupTree(tmp_path).pods_cpus(), CgroupTree(tmp_path).without_cpuset()) == (None, "")


@pytest.mark.parametrize(
    ("cgroup_root", "place"),
    [
        ("", "kubepods"),
        ("", "kubepods.slice"),
        ("", "kubelet/kubepods"),
        ("", "kubelet.slice/kubelet-kubepods.slice"),
        ("", "my_root.slice/my_root-kubepods.slice"),
        ("/", "kubepods.slice"),
        ("/kubelet", "kubelet.slice/kubelet-kubepods.slice"),
        ("/a/b", "a/b/kubepods"),
        ("/a/b", "a.slice/a-b.slice/a-b-kubepods.slice"),
        ("my-root/b", "my-root/b/kubepods"),
        ("my-root/b", "my_root.slice/my_root-b.slice/my_root-b-kubepods.slice"),
    ],
)
def test_the_cgroup_of_all_pods_is_found(tmp_path: Path, cgroup_root: str, place: str) -> None:
    write_cgroup(tmp_path, "0-7")
    write_cgroup(tmp_path / "system.slice", "0-1")
    write_cgroup(tmp_path / place, "2-5")
    assert CgroupTree(tmp_path, cgroup_root).pods_cpus() == CpuSet.parse("2-5")


def test_with_a_root_only_the_cgroup_below_it_counts(tmp_path: Path) -> None:
    write_cgroup(tmp_path, "0-7")
    write_cgroup(tmp_path / "kubepods", "0-3")
    assert CgroupTree(tmp_path, "/kubelet").pods_cpus() is None


def test_a_cgroup_that_a_kubelet_with_another_driver_left_behind_does_not_count(tmp_path: Path) -> None:
    write_cgroup(tmp_path, "0-7")
    write_cgroup(tmp_path / "kubepods.slice", "0-1", populated=False)
    write_cgroup(tmp_path / "kubepods", "2-7")
    assert CgroupTree(tmp_path).pods_cpus() == CpuSet.parse("2-7")


def test_a_cgroup_that_no_pod_has_entered_yet_counts(tmp_path: Path) -> None:
    write_cgroup(tmp_path, "0-7")
    write_cgroup(tmp_path / "kubepods.slice", "2-7", populated=False)
    assert CgroupTree(tmp_path).pods_cpus() == CpuSet.parse("2-7")


def test_an_empty_list_restricts_nothing(tmp_path: Path) -> None:
    write_cgroup(tmp_path, "0-7")
    write_cgroup(tmp_path / "kubepods", "")
    assert CgroupTree(tmp_path).pods_cpus() is None


def test_a_list_that_is_no_cpuset_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    write_cgroup(tmp_path, "0-7")
    write_cgroup(tmp_path / "kubepods", "3-1")
    with pytest.raises(TopologyError, match=r"kubepods/cpuset\.cpus\.effective"):
        CgroupTree(tmp_path).pods_cpus()


def test_a_kernel_without_the_cpuset_controller_is_recognized(tmp_path: Path) -> None:
    write_cgroup(tmp_path, controllers="cpu memory pids")
    assert CgroupTree(tmp_path).without_cpuset() == "/"
    assert CgroupTree(tmp_path).pods_cpus() is None


def test_a_cgroup_to_which_cpuset_is_not_delegated_is_recognized(tmp_path: Path) -> None:
    write_cgroup(tmp_path, "0-7")
    pods = write_cgroup(tmp_path / "kubepods.slice", controllers="cpu memory pids")
    assert CgroupTree(tmp_path).without_cpuset() == "/kubepods.slice"
    write_cgroup(pods, "0-7")
    assert CgroupTree(tmp_path).without_cpuset() == ""


def tree_above(root: Path, place: str) -> CgroupTree:
    """A tree with all cgroups above this one."""
    write_cgroup(root)
    for parent in reversed(Path(place).parents[:-1]):
        write_cgroup(root / parent, "0-7")
    return CgroupTree(root)


@pytest.mark.parametrize(
    "place",
    [
        "kubepods/pod1-a/c1",
        "kubepods/burstable/pod1-a/c1",
        "kubepods/burstable/pod1-a/crio-c1",
        "kubepods.slice/kubepods-pod1_a.slice/cri-containerd-c1.scope",
        "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1_a.slice/crio-c1.scope",
    ],
)
def test_the_cpus_of_a_container_are_those_of_its_cgroup(tmp_path: Path, place: str) -> None:
    tree = tree_above(tmp_path, place)
    assert tree.container_cpus("1-a", "c1") is None
    write_cgroup(tmp_path / place, "0-7")
    assert tree.container_cpus("1-a", "c1") == CpuSet.parse("0-7")
    write_cgroup(tmp_path / place, "2", limit="2-3")  # CPU 3 is offline, and may come back
    assert tree.container_cpus("1-a", "c1") == CpuSet.parse("2-3")
    assert tree.container_cpus("1-a", "c2") is None


def test_the_cgroup_that_crun_adds_below_a_containers_scope_is_the_containers(tmp_path: Path) -> None:
    place = "kubepods.slice/kubepods-pod1_a.slice/crio-c1.scope/container"
    tree = tree_above(tmp_path, place)
    assert tree.container_cpus("1-a", "c1") == CpuSet.parse("0-7")
    write_cgroup(tmp_path / place, limit="2-3")
    assert tree.container_cpus("1-a", "c1") == CpuSet.parse("2-3")


@pytest.mark.parametrize(
    "place",
    [
        "kubepods/pod1-a",
        "kubepods/burstable/pod1-a",
        "kubepods/besteffort/pod1-a",
        "kubepods.slice/kubepods-pod1_a.slice",
        "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_a.slice",
        "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-pod1_a.slice",
    ],
)
def test_a_pod_runs_while_its_cgroup_has_processes(tmp_path: Path, place: str) -> None:
    tree = tree_above(tmp_path, place)
    assert tree.running(frozenset(["1-a", "2-b"])) == set()
    write_cgroup(tmp_path / place)
    assert tree.running(frozenset(["1-a", "2-b"])) == {"1-a"}
    write_cgroup(tmp_path / place, populated=False)
    assert tree.running(frozenset(["1-a", "2-b"])) == set()
