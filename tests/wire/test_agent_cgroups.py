"""The whole agent on machines whose cgroup tree restricts pods, or lets no container be pinned."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from cgroup_trees import write_cgroup
from nodes import claim_object, ref, share, spec
from whole_agent import whole_node

from dracpu_agent.host.cgroups import CgroupTree
from dracpu_agent.host.machine import HostMachine
from dracpu_sandbox.machines.presets import LAB
from dracpu_sandbox.machines.tree import directory, write_tree
from dracpu_sandbox.node.plugins import KubeletError

NUMA0, NUMA1 = "cpudevnuma000", "cpudevnuma001"


@pytest.fixture
def tree() -> Iterator[tuple[Path, Path]]:
    with directory() as root:
        yield write_tree(LAB, root)


def pods_use(tree, cpus):
    cgroups = tree[0] / "fs/cgroup"
    write_cgroup(cgroups, "0-7")
    write_cgroup(cgroups / "kubepods.slice", cpus)


def read(tree):
    sysfs, procfs = tree
    return HostMachine(sysfs, procfs, CgroupTree(sysfs / "fs/cgroup")).topology()


def capacities(node):
    return {name: device["capacity"]["dra.cpu/cpu"]["value"] for name, device in node.devices().items()}


async def test_only_cpus_in_the_cpuset_of_all_pods_are_offered_and_shared(tree):
    pods_use(tree, "0-5")
    async with whole_node(topology=read(tree), tree=tree) as node:
        assert capacities(node) == {NUMA0: "2", NUMA1: "2"}
        await node.api.until(lambda: node.condition("StateHealthy")["reason"] == "CPUsForbidden")
        assert "CPUs 6-7" in node.condition("StateHealthy")["message"]
        shared = await node.runtime.create_container(node.pod(), "shared")
        assert node.runtime.cpuset_of(shared) == "2-5"


async def test_the_offer_follows_the_cpuset_of_all_pods(tree):
    async with whole_node(topology=read(tree), tree=tree) as node:
        shared = await node.runtime.create_container(node.pod(), "shared")
        pods_use(tree, "0-5")  # the kubelet starts after the agent
        node.read_machine_again()
        await node.api.until(lambda: capacities(node) == {NUMA0: "2", NUMA1: "2"})
        await node.runtime.until(lambda: node.runtime.cpuset_of(shared) == "2-5")
        pods_use(tree, "0-7")
        node.read_machine_again()
        await node.api.until(lambda: capacities(node) == {NUMA0: "2", NUMA1: "4"})
        await node.runtime.until(lambda: node.runtime.cpuset_of(shared) == "2-7")


async def test_a_node_that_cannot_pin_containers_leaves_them_as_they_are_and_takes_no_claims(tree):
    def closed():
        return {taint["key"] for device in node.devices().values() for taint in device.get("taints", ())}

    pods_use(tree, "0-7")
    async with whole_node(spec(reserved="0-1"), topology=read(tree), tree=tree) as node:
        await node.stop_agent()
        write_cgroup(tree[0] / "fs/cgroup/kubepods.slice", controllers="cpu memory pids")
        await node.start_agent(pins=False)
        await node.api.until(lambda: node.condition("RuntimeConnected").get("reason") == "CpusetNotDelegated")
        await node.api.until(lambda: closed() == {"dra.cpu/not-ready"})
        status, reasons = await node.probe("/readyz")
        assert (status, "/kubepods.slice lacks the cpuset controller" in reasons) == (503, True)
        untouched = await node.runtime.create_container(node.pod(), "untouched")
        assert node.runtime.cpuset_of(untouched) == ""
        node.claim(claim_object(1, [share(NUMA1, 2)]))
        with pytest.raises(KubeletError, match="NRI"):
            await node.kubelet.prepare_one(ref(1))

        pods_use(tree, "0-7")
        node.read_machine_again()
        await node.runtime.synchronized()
        await node.api.until(lambda: closed() == set())
        await node.kubelet.prepare_one(ref(1))
        assert node.condition("RuntimeConnected")["status"] == "True"
