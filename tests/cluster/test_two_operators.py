"""Two replicas of the operator: the standby takes over from a leader that is killed or that ends.

Only a real cluster shows this: a kubelet restarts the killed process beside the standby, RBAC decides about the Lease,
and helm changes the Deployment's strategy.
"""

import time
from collections.abc import Callable, Iterator
from typing import Final

import pytest
from harness.cluster import OPERATOR_NODE, Cluster
from harness.helm import Helm
from harness.kubectl import condition
from harness.manifests import Object
from harness.release import NAMESPACE, install, values
from harness.waiting import eventually
from harness.watching import recorded

TAKEOVER_SECONDS: Final = 15.0


@pytest.fixture(scope="module")
def two_operators(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with two replicas of the operator; afterwards it has one again."""
    Helm(cluster.lab).upgrade(values={"operator.replicas": 2})
    eventually(lambda: assert_both_ready(cluster), within=180)
    yield cluster
    install(cluster.lab, values(OPERATOR_NODE))
    cluster.edit()
    eventually(cluster.assert_ready, within=180)
    assert cluster.leader() == cluster.operator_pod()["metadata"]["name"]


def operators(cluster: Cluster) -> list[Object]:
    return cluster.kubectl.list("pods", NAMESPACE, "--selector", "app.kubernetes.io/component=operator")


def assert_both_ready(cluster: Cluster) -> None:
    pods = operators(cluster)
    assert [condition(pod, "Ready") for pod in pods] == ["True", "True"]
    assert cluster.leader() in {pod["metadata"]["name"] for pod in pods}


def seconds_until_another_leads(cluster: Cluster, former: str, since: float) -> float:
    def moved() -> str:
        present = cluster.leader()
        assert present not in ("", former)
        return present

    eventually(moved, within=60)
    return time.monotonic() - since


def test_the_standby_takes_over_in_the_middle_of_a_rollout_when_the_leader_is_killed(
    two_operators: Cluster, record_property: Callable[[str, object], None]
) -> None:
    cluster, leader = two_operators, two_operators.leader()
    former = {node.name: node.cpu_node()["spec"]["revision"] for node in cluster.nodes}

    def changed(state: dict[str, Object]) -> set[str]:
        return {name for name, item in state.items() if item["spec"]["revision"] != former[name]}

    def present() -> dict[str, Object]:
        return {node.name: node.cpu_node() for node in cluster.nodes}

    def one_changed() -> None:
        assert len(changed(present())) == 1

    with recorded(cluster.kubectl, "cpunodes") as recording:
        cluster.edit(groupBy="l3cache", rollout={"maxUnavailable": 1, "settleSeconds": 5})
        eventually(one_changed)
        killed = time.monotonic()
        cluster.kill_operator(leader)
        took = seconds_until_another_leads(cluster, leader, killed)
        assert took <= TAKEOVER_SECONDS
        record_property("seconds until the standby led", took)

        eventually(cluster.assert_settled, within=180)
        assert changed(present()) == set(former)
        for state in recording.states():
            waiting = {name for name in changed(state) if not has_applied(state[name])}
            assert len(waiting) <= 1
    eventually(lambda: assert_both_ready(cluster), within=120)


def has_applied(item: Object) -> bool:
    status = item.get("status", {})
    return bool(status.get("appliedRevision") == item["spec"]["revision"] and status.get("phase") == "Ready")


def test_the_standby_takes_over_when_the_pod_of_the_leader_is_deleted(
    two_operators: Cluster, record_property: Callable[[str, object], None]
) -> None:
    cluster, leader = two_operators, two_operators.leader()
    transitions = cluster.kubectl.get("lease", "dracpu-operator", NAMESPACE)["spec"]["leaseTransitions"]
    began = time.monotonic()
    cluster.kubectl.run("delete", "pod", leader, "--namespace", NAMESPACE, "--wait=false")
    took = seconds_until_another_leads(cluster, leader, began)
    record_property("seconds until another operator led", took)
    after = cluster.kubectl.get("lease", "dracpu-operator", NAMESPACE)["spec"]["leaseTransitions"]
    assert after == transitions + 1
    eventually(lambda: assert_both_ready(cluster), within=180)
    eventually(cluster.assert_settled)


def test_one_of_two_operators_may_be_evicted_at_a_time(two_operators: Cluster) -> None:
    def counted() -> None:
        budget = two_operators.kubectl.get("poddisruptionbudget", "dracpu-operator", NAMESPACE)
        assert budget["status"]["currentHealthy"] == 2
        assert budget["status"]["disruptionsAllowed"] == 1

    eventually(counted)
