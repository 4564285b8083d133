"""Conversion between the runtime's messages and the agent's records."""

import pytest

from dracpu_agent.errors import PlacementError
from dracpu_agent.placement.container import AtCreation, Container, ContainerUpdate, Placement
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


def test_a_container_has_the_names_of_its_pod() -> None:
    assert convert.container(running("c1"), POD) == WEB


def test_labels_replace_names_that_the_runtime_leaves_out() -> None:
    message = nri.Container(id="c1", labels=LABELS)
    assert convert.container(message, nri.PodSandbox()) == WEB


def test_the_runtimes_names_take_precedence_over_labels() -> None:
    message = nri.Container(id="c1", name="app", labels=dict.fromkeys(LABELS, "other"))
    assert convert.container(message, POD) == WEB


def test_only_cdi_devices_and_our_environment_variables_are_kept() -> None:
    message = running("c1", cpus="0-3,8")
    message.env[:] = ["PATH=/bin", "DRA_CPUSET_abc=0-3", "XDRA_CPUSET_abc=1", "DRA_CPUSET=2"]
    message.CDI_devices.add(name="dra.k8s.io/cpu=claim-abc")
    message.CDI_devices.add(name="vendor.com/gpu=0")
    container = convert.container(message, POD)
    assert container.env == ("DRA_CPUSET_abc=0-3", "DRA_CPUSET=2")
    assert container.cdi_devices == ("dra.k8s.io/cpu=claim-abc", "vendor.com/gpu=0")
    assert container.cpus == CpuSet.parse("0-3,8")


def test_an_invalid_cpuset_is_read_as_empty() -> None:
    assert convert.container(running("c1", cpus="zero"), POD).cpus == EMPTY


def test_the_list_of_containers_may_arrive_in_parts_with_pods_last() -> None:
    inventory = convert.Inventory()
    inventory.add([], [running("c1"), running("c2", "other")])
    inventory.add([nri.PodSandbox(id="other", name="db-0", namespace="shop")], [running("c3")])
    inventory.add([POD], [])
    assert [(container.id, str(container)) for container in inventory.containers()] == [
        ("c1", "shop/web-0/app"),
        ("c2", "shop/db-0/app"),
        ("c3", "shop/web-0/app"),
    ]


def test_containers_that_have_ended_are_left_out() -> None:
    ended = running("c1")
    ended.state = nri.CONTAINER_STOPPED
    inventory = convert.Inventory()
    inventory.add([POD], [ended, running("c2")])
    assert [container.id for container in inventory.containers()] == ["c2"]


def test_a_container_whose_pod_is_not_listed_is_kept() -> None:
    message = running("c1")
    message.labels.update(LABELS)
    inventory = convert.Inventory()
    inventory.add([], [message])
    assert inventory.containers() == [WEB]


def test_an_update_changes_only_the_cpus() -> None:
    message = convert.update(ContainerUpdate("c1", CpuSet([1, 2, 3])))
    expected = nri.ContainerUpdate(container_id="c1")
    expected.linux.resources.cpu.cpus = "1-3"
    assert message == expected


def test_a_placement_becomes_an_adjustment_and_updates_of_others() -> None:
    response = convert.create_response(WEB, Placement(CpuSet([2]), (ContainerUpdate("c2", CpuSet([3])),)))
    assert response.adjust.linux.resources.cpu.cpus == "2"
    assert [(update.container_id, update.linux.resources.cpu.cpus) for update in response.update] == [("c2", "3")]


def test_an_empty_cpuset_is_an_error_as_the_runtime_would_read_it_as_unchanged() -> None:
    with pytest.raises(PlacementError, match="c1"):
        convert.create_response(WEB, Placement(EMPTY))
    with pytest.raises(PlacementError, match="c2"):
        convert.create_response(WEB, Placement(CpuSet([1]), (ContainerUpdate("c2", EMPTY),)))


def test_nodes_are_preferred_one_or_many() -> None:
    for nodes, mode, text in (((1,), nri.MPOL_PREFERRED, "1"), ((0, 1, 3), nri.MPOL_PREFERRED_MANY, "0-1,3")):
        response = convert.create_response(WEB, Placement(CpuSet([2]), at_creation=AtCreation(nodes)))
        policy = response.adjust.linux.memory_policy
        assert (policy.mode, policy.nodes) == (mode, text)


def test_a_kernel_that_cannot_prefer_many_nodes_gets_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convert, "_PREFERS_MANY", False)
    response = convert.create_response(WEB, Placement(CpuSet([2]), at_creation=AtCreation((1, 3))))
    policy = response.adjust.linux.memory_policy
    assert (policy.mode, policy.nodes) == (nri.MPOL_PREFERRED, "1")


@pytest.mark.parametrize(
    ("release", "answer"),
    [("5.14.0-427.el9", False), ("5.4.0", False), ("4.18.0", False), ("5.15.0-91-generic", True), ("6.8", True)],
)
def test_kernels_from_5_15_on_can_prefer_many_nodes(release: str, answer: bool) -> None:
    assert convert.prefers_many(release) is answer


def test_without_a_preference_the_runtime_sets_no_policy() -> None:
    assert not convert.create_response(WEB, Placement(CpuSet([2]))).adjust.linux.HasField("memory_policy")
