"""The runtime's messages become records, and records become messages."""

import pytest

from dracpu_agent.errors import PlacementError
from dracpu_agent.placement.container import Container, ContainerUpdate, Placement
from dracpu_agent.runtime import convert
from dracpu_agent.runtime.proto import nri_pb2 as nri
from dracpu_api.cpuset import EMPTY, CpuSet

POD = nri.PodSandbox(id="sandbox", name="web-0", namespace="shop", uid="pod-uid")
LABELS = {
    "io.kubernetes.container.name": "app",
    "io.kubernetes.pod.name": "web-0",
    "io.kubernetes.pod.namespace": "shop",
    "io.kubernetes.pod.uid": "pod-uid",
}
WEB = Container(id="c1", name="app", namespace="shop", pod_name="web-0", pod_uid="pod-uid")


def running(container_id: str, pod_id: str = "sandbox", *, name: str = "app", cpus: str = "") -> nri.Container:
    message = nri.Container(id=container_id, pod_sandbox_id=pod_id, name=name, state=nri.CONTAINER_RUNNING)
    message.linux.resources.cpu.cpus = cpus
    return message


def test_a_container_is_known_by_its_pod() -> None:
    assert convert.container(running("c1"), POD) == WEB


def test_labels_name_what_the_runtime_leaves_out() -> None:
    message = nri.Container(id="c1", labels=LABELS)
    assert convert.container(message, nri.PodSandbox()) == WEB


def test_the_runtimes_own_word_counts_more_than_labels() -> None:
    message = nri.Container(id="c1", name="app", labels=dict.fromkeys(LABELS, "other"))
    assert convert.container(message, POD) == WEB


def test_cdi_devices_and_our_environment_are_kept_and_nothing_else() -> None:
    message = running("c1", cpus="0-3,8")
    message.env[:] = ["PATH=/bin", "DRA_CPUSET_abc=0-3", "XDRA_CPUSET_abc=1", "DRA_CPUSET=2"]
    message.CDI_devices.add(name="dra.k8s.io/cpu=claim-abc")
    message.CDI_devices.add(name="vendor.com/gpu=0")
    container = convert.container(message, POD)
    assert container.env == ("DRA_CPUSET_abc=0-3",)
    assert container.cdi_devices == ("dra.k8s.io/cpu=claim-abc", "vendor.com/gpu=0")
    assert container.cpus == CpuSet.parse("0-3,8")


def test_a_cpuset_that_cannot_be_read_is_not_known() -> None:
    assert convert.container(running("c1", cpus="zero"), POD).cpus == EMPTY


def test_the_list_of_containers_comes_in_parts_and_pods_may_come_last() -> None:
    inventory = convert.Inventory()
    inventory.add([], [running("c1"), running("c2", "other")])
    inventory.add([nri.PodSandbox(id="other", name="db-0", namespace="shop")], [running("c3")])
    inventory.add([POD], [])
    assert [(known.id, str(known)) for known in inventory.containers()] == [
        ("c1", "shop/web-0/app"),
        ("c2", "shop/db-0/app"),
        ("c3", "shop/web-0/app"),
    ]


def test_containers_that_have_ended_are_left_out() -> None:
    ended = running("c1")
    ended.state = nri.CONTAINER_STOPPED
    inventory = convert.Inventory()
    inventory.add([POD], [ended, running("c2")])
    assert [known.id for known in inventory.containers()] == ["c2"]


def test_a_container_whose_pod_is_not_listed_is_listed_all_the_same() -> None:
    message = running("c1")
    message.labels.update(LABELS)
    inventory = convert.Inventory()
    inventory.add([], [message])
    assert inventory.containers() == [WEB]


def test_an_update_changes_the_cpus_and_nothing_else() -> None:
    message = convert.update(ContainerUpdate("c1", CpuSet([1, 2, 3])))
    wanted = nri.ContainerUpdate(container_id="c1")
    wanted.linux.resources.cpu.cpus = "1-3"
    assert message == wanted


def test_a_placement_is_an_adjustment_and_the_updates_of_others() -> None:
    response = convert.create_response(WEB, Placement(CpuSet([2]), (ContainerUpdate("c2", CpuSet([3])),)))
    assert response.adjust.linux.resources.cpu.cpus == "2"
    assert [(update.container_id, update.linux.resources.cpu.cpus) for update in response.update] == [("c2", "3")]


def test_an_empty_cpuset_is_never_sent_for_the_runtime_would_read_it_as_unchanged() -> None:
    with pytest.raises(PlacementError, match="c1"):
        convert.create_response(WEB, Placement(EMPTY))
    with pytest.raises(PlacementError, match="c2"):
        convert.create_response(WEB, Placement(CpuSet([1]), (ContainerUpdate("c2", EMPTY),)))
