"""Individual mode: each CPU is a device, and a claim's containers run on the CPUs that its allocation names."""

import pytest
from harness.cluster import Cluster
from harness.manifests import claim, devices, on_numa_node, pod
from harness.waiting import eventually
from harness.workspace import Workspace

from dracpu_api.cpuset import CpuSet


@pytest.fixture
def individual(editable: Cluster) -> Cluster:
    """The cluster in individual mode, without a restart of anything; grouped again afterwards."""
    editable.configure(mode="individual")
    return editable


# `individual` stands first: it is undone last, after the workspace has given its CPUs back
def test_a_claim_runs_on_the_cpus_that_its_allocation_names(individual: Cluster, workspace: Workspace) -> None:
    published = individual.node.devices()
    assert sorted(published) == [f"cpudev{cpu:03d}" for cpu in range(2, 8)]
    for name, device in published.items():
        cpu = int(name.removeprefix("cpudev"))
        assert "capacity" not in device
        assert device["attributes"]["dra.cpu/cpuID"] == {"int": cpu}
        assert device["attributes"]["resource.kubernetes.io/numaNode"] == {"int": cpu // 4}

    workspace.run(pod("shared"))
    workspace.apply(claim("four", devices(4, selector=on_numa_node(1))))
    workspace.run(pod("exclusive", claims={"four": "four"}))

    named = CpuSet(int(device.removeprefix("cpudev")) for _, device in workspace.allocated_devices("four"))
    assert named == CpuSet.parse("4-7")
    assert workspace.cpus("exclusive") == workspace.cpus_at_start("exclusive") == named
    assert workspace.published_cpus("four") == named
    assert workspace.cpus("shared") == CpuSet.parse("2-3")

    workspace.delete_pods("exclusive")

    def given_back() -> None:
        assert workspace.cpus("shared") == CpuSet.parse("2-7")

    eventually(given_back, within=10)
