"""Editing the CpuDriverConfig changes what a node offers, while a claim is held and without a restart of anything.

The claim keeps its CPUs, nobody else gets them, and they come back to the published devices when it ends.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from harness.cluster import Cluster
from harness.holding import ALL, Held, hold, nothing_moved
from harness.manifests import Object, claim, cpus, devices, pod
from harness.node import Node
from harness.waiting import eventually
from harness.workspace import Workspace

from dracpu_api.cpuset import EMPTY, CpuSet

SECONDS = 30  # from the edit to the slices
HALVES = (CpuSet.parse("0-3"), CpuSet.parse("4-7"))  # a NUMA node is a socket on these machines

Offer = dict[str, int | None]  # device -> its CPUs, None for one that is a CPU


def grouped_offer(name: str, allocatable: CpuSet, foreign: CpuSet) -> Offer:
    """A device for each half, less what claims hold through devices of other names."""
    sizes = {f"{name}{number:03d}": len(half & allocatable - foreign) for number, half in enumerate(HALVES)}
    return {device: size for device, size in sizes.items() if size}


def individual_offer(allocatable: CpuSet) -> Offer:
    """A device for each CPU."""
    return {f"cpudev{cpu:03d}": None for cpu in allocatable}


def offer_of(node: Node) -> Offer:
    """What stands in the slices for new claims."""
    found: Offer = {}
    for name, device in node.devices().items():
        assert not device.get("taints"), f"{name} is closed to new claims: {device['taints']}"
        capacity = device.get("capacity")
        found[name] = int(capacity["dra.cpu/cpu"]["value"]) if capacity else None
    return found


@dataclass(frozen=True, slots=True)
class Scene:
    """A node with a held claim, whose agent must not restart."""

    cluster: Cluster
    held: Held
    agent: str  # the container

    @property
    def node(self) -> Node:
        return self.held.workspace.node

    def change(self, expected: Offer, **spec: Any) -> None:
        """Edits the config, awaits the slices, and sees that nothing else happened."""
        self.cluster.edit(**spec)

        def published() -> None:
            assert offer_of(self.node) == expected

        eventually(published, within=SECONDS)
        eventually(lambda: nothing_moved(self.held), within=10)  # the shared pod may just have got CPUs back
        assert agent_container(self.node) == self.agent

    def rest_goes_to_another(self, request: Object) -> None:
        """All that is left goes to a second claim, and is what the first does not hold."""
        workspace = self.held.workspace
        workspace.apply(claim("rest", request))
        workspace.run(pod("newcomer", claims={"rest": "rest"}))
        assert workspace.cpus("newcomer").isdisjoint(self.held.cpus)
        assert workspace.cpus("exclusive") == self.held.cpus
        workspace.delete_pods("newcomer")
        workspace.kubectl.delete("resourceclaim", "rest", namespace=workspace.namespace)


@pytest.fixture
def scene(editable: Cluster, workspace: Workspace) -> Scene:
    """`editable` stands first: it is undone after the workspace has given its CPUs back."""
    return Scene(editable, hold(workspace), agent_container(workspace.node))


def agent_container(node: Node) -> str:
    (status,) = node.agent_pod()["status"]["containerStatuses"]
    return str(status["containerID"])


def test_the_mode_changes_there_and_back_twice_under_a_held_claim(scene: Scene) -> None:
    rest = ALL - scene.held.cpus
    for first in (True, False):
        scene.change(individual_offer(rest), mode="individual")
        if first:
            scene.rest_goes_to_another(devices(len(rest)))
        scene.change(grouped_offer("cpudevnuma", ALL, EMPTY))  # the scheduler counts the held share itself

    scene.change(individual_offer(rest), mode="individual")
    scene.held.workspace.delete_pods("exclusive")

    def all_come_back() -> None:
        assert offer_of(scene.node) == individual_offer(ALL)
        scene.node.assert_ready()

    eventually(all_come_back, within=SECONDS)


def test_the_grouping_changes_there_and_back_twice_under_a_held_claim(scene: Scene) -> None:
    held = scene.held.cpus
    by_socket = grouped_offer("cpudevsocket", ALL, held)
    for first in (True, False):
        scene.change(by_socket, groupBy="socket")
        if first:
            scene.rest_goes_to_another(cpus(max(size or 0 for size in by_socket.values())))
        scene.change(grouped_offer("cpudevnuma", ALL, EMPTY))
    scene.change({"cpudevmachine": len(ALL - held)}, groupBy="machine")
    scene.held.workspace.delete_pods("exclusive")

    def all_come_back() -> None:
        assert offer_of(scene.node) == {"cpudevmachine": len(ALL)}
        scene.node.assert_ready()

    eventually(all_come_back, within=SECONDS)


@pytest.mark.parametrize("over_the_claim", [False, True], ids=["beside_the_claim", "over_the_claim"])
def test_reserved_cpus_change_there_and_back_twice_under_a_held_claim(scene: Scene, over_the_claim: bool) -> None:
    held = scene.held.cpus
    more = held if over_the_claim else CpuSet([max(ALL - held)])
    reserved = CpuSet.parse("0-1") | more
    for _ in range(2):
        scene.cluster.edit(reservedCPUs=str(reserved))
        eventually(shared_is(scene, ALL - held - more), within=SECONDS)
        assert offer_of(scene.node) == grouped_offer("cpudevnuma", ALL - more, EMPTY)
        assert scene.held.workspace.cpus("exclusive") == held
        scene.change(grouped_offer("cpudevnuma", ALL, EMPTY))
    assert agent_container(scene.node) == scene.agent


def shared_is(scene: Scene, expected: CpuSet) -> Callable[[], None]:
    """The pod without a claim runs there, and the slices have followed."""

    def moved() -> None:
        assert scene.held.workspace.cpus("beside") == expected
        assert scene.node.cpu_node()["status"]["appliedRevision"] == scene.node.cpu_node()["spec"]["revision"]
        scene.node.assert_ready()

    return moved
