"""How many hugepages pods may use and use is read from their cgroups, with both cgroup drivers of the kubelet."""

from pathlib import Path

import pytest
from cgroup_trees import write_limits, write_tree

from dracpu_agent.host.cgroup_errors import CgroupError
from dracpu_agent.host.cgroups import CgroupTree
from dracpu_agent.host.hugetlb import UNLIMITED
from dracpu_agent.host.pod_pages import PodPagesReader, PodUse

MIB = 2**20
UID = "1a-2b"
PLACES = [
    f"kubepods/pod{UID}",
    f"kubepods/burstable/pod{UID}",
    "kubepods.slice/kubepods-pod1a_2b.slice",
    "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1a_2b.slice",
    "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod1a_2b.slice",
]


def pod_at(mount: Path, place: str, limit: str = "8388608", used: str = "2097152") -> Path:
    pod = write_limits(write_tree(mount, place), {"2MB": limit})
    (pod / "hugetlb.2MB.current").write_text(f"{used}\n")
    return pod


def reader(mount: Path) -> PodPagesReader:
    return PodPagesReader(mount, CgroupTree(mount))


@pytest.mark.parametrize("place", PLACES)
def test_the_pages_of_a_pod(tmp_path: Path, place: str) -> None:
    pod_at(tmp_path, place)
    assert reader(tmp_path).read() == {UID: {2 * MIB: PodUse(8 * MIB, 2 * MIB)}}


def test_pods_of_every_class_are_read_and_containers_are_not(tmp_path: Path) -> None:
    for place in ("kubepods/poda", "kubepods/burstable/podb", "kubepods/besteffort/podc", "kubepods/poda/podx"):
        pod_at(tmp_path, place)
    assert reader(tmp_path).read().keys() == {"a", "b", "c"}


def test_a_pod_without_a_limit(tmp_path: Path) -> None:
    pod_at(tmp_path, "kubepods/poda", limit="max")
    assert reader(tmp_path).read() == {"a": {2 * MIB: PodUse(UNLIMITED, 2 * MIB)}}


def test_a_pod_that_ends_meanwhile_uses_nothing(tmp_path: Path) -> None:
    (pod_at(tmp_path, "kubepods/poda") / "hugetlb.2MB.current").unlink()
    assert reader(tmp_path).read() == {"a": {}}


def test_a_node_without_pods(tmp_path: Path) -> None:
    assert reader(tmp_path).read() == {}


def test_what_is_no_number_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    pod_at(tmp_path, "kubepods/poda", used="many")
    with pytest.raises(CgroupError, match='poda/hugetlb.2MB.current contains "many"'):
        reader(tmp_path).read()
