"""CPUs go offline under running containers, and come online again.

Only real nodes show this: the kernel itself changes the cgroups of containers when a CPU goes offline.
"""

from collections.abc import Callable, Iterator

import pytest
from harness.manifests import claim, cpus, pod
from harness.node import Node
from harness.waiting import eventually
from harness.workspace import Workspace

from dracpu_api.cpuset import CpuSet

ALL = CpuSet.parse("2-7")  # the agent withholds the lowest core
WITHIN = 30  # the agent reads the CPUs every five seconds

Switch = Callable[[CpuSet, bool], None]


@pytest.fixture
def switch(node: Node) -> Iterator[Switch]:
    """Switches CPUs off and on; at the end, all are online and the node is ready."""

    def switched(which: CpuSet, on: bool) -> None:
        for cpu in which:
            node.sh(f"echo {int(on)} > /sys/devices/system/cpu/cpu{cpu}/online")

    yield switched
    switched(ALL, True)
    eventually(node.assert_ready, within=WITHIN)


def state(node: Node) -> tuple[str, str]:
    """Returns reason and message of StateHealthy."""
    conditions = node.cpu_node()["status"]["conditions"]
    found = next(item for item in conditions if item["type"] == "StateHealthy")
    return found["reason"], found["message"]


def capacity(node: Node) -> int:
    return sum(int(device["capacity"]["dra.cpu/cpu"]["value"]) for device in node.devices().values())


# `switch` comes first: it is undone last, after the workspace has released its CPUs
def test_a_claim_keeps_its_offline_cpus_and_runs_on_the_others(
    switch: Switch, workspace: Workspace, node: Node
) -> None:
    workspace.apply(claim("two", cpus(2)))
    workspace.run(pod("exclusive", claims={"two": "two"}), pod("shared"))
    claimed = workspace.cpus("exclusive")
    before = capacity(node)
    lost = CpuSet((claimed.lowest,))

    switch(lost, False)

    def runs_on_the_rest() -> None:
        assert workspace.cpus("exclusive") == claimed - lost
        assert workspace.cpus("shared") == ALL - claimed
        assert capacity(node) == before - 1
        reason, message = state(node)
        assert reason == "CPUsOffline"
        assert f"{workspace.namespace}/two ({lost})" in message
        taints = [taint for device in node.devices().values() for taint in device.get("taints", ())]
        assert [(taint["key"], taint["effect"]) for taint in taints] == [("dra.cpu/offline", "None")]

    eventually(runs_on_the_rest, within=WITHIN)
    assert workspace.published_cpus("two") == claimed

    switch(lost, True)

    def has_all_of_them_again() -> None:
        assert workspace.cpus("exclusive") == claimed
        assert capacity(node) == before
        assert state(node)[0] == "Healthy"

    eventually(has_all_of_them_again, within=WITHIN)


def test_a_claim_without_online_cpus_does_not_run_on_cpus_of_other_claims(
    switch: Switch, workspace: Workspace, node: Node
) -> None:
    workspace.apply(claim("first", cpus(2)), claim("second", cpus(2)))
    workspace.run(pod("one", claims={"first": "first"}), pod("other", claims={"second": "second"}))
    lost, others = workspace.cpus("one"), workspace.cpus("other")

    switch(lost, False)

    def runs_on_shared_cpus() -> None:
        assert workspace.cpus("one") == ALL - lost - others
        assert workspace.cpus("other") == others

    eventually(runs_on_shared_cpus, within=WITHIN)

    switch(lost, True)

    def has_its_own_again() -> None:
        assert workspace.cpus("one") == lost

    eventually(has_its_own_again, within=WITHIN)


def test_offline_cpus_are_not_offered_and_shared_containers_leave_them(
    switch: Switch, workspace: Workspace, node: Node
) -> None:
    workspace.run(pod("shared"))
    before = capacity(node)
    gone = CpuSet.parse("6-7")
    switch(gone, False)

    def follows() -> None:
        assert capacity(node) == before - 2
        assert workspace.cpus("shared") == ALL - gone
        assert node.cpu_node()["status"]["topology"]["counts"]["cpus"] == 6

    eventually(follows, within=WITHIN)
    switch(gone, True)

    def is_as_before() -> None:
        assert capacity(node) == before
        assert workspace.cpus("shared") == ALL

    eventually(is_as_before, within=WITHIN)
