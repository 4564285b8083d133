"""How the pod of an agent is read: whether it is ready, and the words of the kubelet and the scheduler about it."""

from typing import Any

import pytest
from agent_pods import READY, ago, pod, status, unscheduled

from dracpu_operator.decide.records import Agent
from dracpu_operator.known.read_agents import read_agent, read_daemon_set

SINCE = "2026-01-01T00:10:00Z"
BEFORE, AFTER = "2026-01-01T00:00:00Z", "2026-01-01T00:20:00Z"
ENDED = {"exitCode": 1, "reason": "Error", "finishedAt": AFTER, "message": "first line\nno NRI socket"}


def agent(found: dict[str, Any], **metadata: Any) -> Agent:
    body = pod("agent-x", "n1", uid="u1", resourceVersion="7", created=BEFORE, **metadata)
    return read_agent({**body, "status": found}).agent


def test_a_ready_pod() -> None:
    found = agent(status(READY, ready=True, since=SINCE))
    assert (found.name, found.ready, found.running, found.reason, found.since) == ("n1", True, True, "Ready", SINCE)


def test_a_pod_that_was_just_created_has_the_node_that_the_daemon_set_names() -> None:
    found = read_agent({**pod("agent-x", "n1", scheduled=False, uid="u1", resourceVersion="7", created=BEFORE)})
    assert found.node == "n1"
    assert (found.agent.ready, found.agent.reason, found.agent.since) == (False, "Pending", BEFORE)


def test_a_pod_that_the_scheduler_cannot_place_has_its_words() -> None:
    found = agent(unscheduled("1 Insufficient memory"))
    assert (found.ready, found.reason, found.message) == (False, "Unschedulable", "1 Insufficient memory")


@pytest.mark.parametrize("reason", ["ErrImagePull", "ImagePullBackOff"])
def test_an_image_that_is_not_found_has_one_reason_in_both_states_that_follow_each_other(reason: str) -> None:
    found = agent(status({"waiting": {"reason": reason, "message": "manifest unknown"}}, since=SINCE))
    assert (found.ready, found.running, found.reason) == (False, False, "ImagePullBackOff")
    assert found.message == "manifest unknown"


def test_a_container_that_cannot_be_created_has_the_kubelets_reason() -> None:
    found = agent(status({"waiting": {"reason": "CreateContainerError", "message": "no such path"}}))
    assert (found.reason, found.message) == ("CreateContainerError", "no such path")


@pytest.mark.parametrize(
    "state",
    [{"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}, {"terminated": ENDED}, READY],
    ids=["waiting", "terminated", "running"],
)
def test_a_crash_loop_has_one_reason_in_all_its_states_and_the_last_words_of_the_process(state: dict[str, Any]) -> None:
    found = agent(status(state, since=SINCE, last=ENDED, restarts=3))
    assert (found.ready, found.reason, found.since) == (False, "CrashLoopBackOff", SINCE)
    assert "exit code 1 (Error): first line\nno NRI socket" in found.message


def test_an_agent_that_starts_again_after_it_has_ended_once_is_not_in_a_crash_loop() -> None:
    found = agent(status(READY, since=SINCE, last=ENDED, restarts=1))
    assert (found.reason, found.running) == ("NotReady", True)


def test_ends_from_before_the_agent_was_ready_last_do_not_count() -> None:
    found = agent(status(READY, since=SINCE, last={**ENDED, "finishedAt": BEFORE}, restarts=9))
    assert found.reason == "NotReady"
    assert "readiness probe" in found.message


def test_a_long_message_of_a_process_is_quoted_from_its_end() -> None:
    found = agent(status({"terminated": {**ENDED, "message": "x" * 2000 + " no NRI socket"}}, since=SINCE))
    assert found.reason == "Error"
    assert found.message.endswith("no NRI socket")
    assert len(found.message) <= 512


def test_a_pod_that_the_kubelet_no_longer_reports_about_is_on_a_lost_node() -> None:
    """The controller of nodes sets Ready to False and leaves what the kubelet has reported about the containers."""
    found = status(READY, ready=True, since=SINCE)
    found["conditions"][1]["status"] = "False"
    lost = agent(found)
    assert (lost.ready, lost.running, lost.reason) == (False, False, "NodeLost")
    assert agent({"reason": "NodeLost", "message": "node n1 is unresponsive"}).message == "node n1 is unresponsive"


def test_a_pod_that_is_being_deleted_is_not_ready_from_the_moment_of_its_deletion() -> None:
    deletion = {"deletionTimestamp": "2026-01-01T00:20:30Z", "deletionGracePeriodSeconds": 30}
    found = agent(status(READY, ready=True, since=SINCE), **deletion)
    assert (found.ready, found.reason, found.since) == (False, "Terminating", AFTER)


def test_a_pod_that_the_kubelet_has_refused_has_its_words() -> None:
    found = agent({"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."})
    assert (found.reason, found.message) == ("Evicted", "The node was low on resource: memory.")


@pytest.mark.parametrize(("observed", "desired"), [(1, None), (2, 5)])
def test_the_count_of_a_daemon_set_is_known_when_its_controller_has_seen_the_present_version(
    observed: int, desired: int | None
) -> None:
    counts = {"observedGeneration": observed, "desiredNumberScheduled": 5}
    metadata = {"name": "dracpu-agent", "uid": "u", "resourceVersion": "3", "generation": 2}
    assert read_daemon_set({"metadata": metadata, "status": counts}).desired == desired


def test_times_are_never_missing() -> None:
    assert agent({}).since == BEFORE
    assert agent(status(None, since=ago())).reason == "NotReady"
