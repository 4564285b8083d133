"""Tests the pure rules for starting containers, and for the pod's phase and status."""

from typing import Any

import pytest

from dracpu_sandbox.node.pod_status import Seen, status_of
from dracpu_sandbox.node.pods import Phase, Pod, Run, due, phase_of, restart_delay

NOW = "2026-01-01T00:00:00Z"
RUNNING = Run("running", "c1", since=NOW)
DONE = RUNNING.finished(0, NOW)
FAILED = RUNNING.finished(3, NOW)


def pod(policy: str = "Always", init: tuple[str, ...] = (), sidecars: tuple[str, ...] = (), **status: Any) -> Pod:
    inits = [{"name": name} for name in init] + [{"name": name, "restartPolicy": "Always"} for name in sidecars]
    return Pod(
        {
            "metadata": {"namespace": "default", "name": "web", "uid": "u1"},
            "spec": {"restartPolicy": policy, "initContainers": inits, "containers": [{"name": "a"}, {"name": "b"}]},
            "status": status,
        }
    )


@pytest.mark.parametrize(
    "made, runs, expected, phase",
    [
        (pod(), {}, ("a", "b"), "Pending"),
        (pod(), {"a": RUNNING}, ("b",), "Pending"),
        (pod(), {"a": RUNNING, "b": RUNNING}, (), "Running"),
        (pod(), {"a": RUNNING, "b": DONE}, ("b",), "Running"),
        (pod("OnFailure"), {"a": FAILED, "b": DONE}, ("a",), "Running"),
        (pod("OnFailure"), {"a": DONE, "b": DONE}, (), "Succeeded"),
        (pod("Never"), {"a": FAILED, "b": RUNNING}, (), "Running"),
        (pod("Never"), {"a": FAILED, "b": DONE}, (), "Failed"),
        (pod(init=("i", "j")), {}, ("i",), "Pending"),
        (pod(init=("i", "j")), {"i": RUNNING}, (), "Pending"),
        (pod(init=("i", "j")), {"i": DONE}, ("j",), "Pending"),
        (pod(init=("i",)), {"i": FAILED}, ("i",), "Pending"),
        (pod(init=("i",)), {"i": DONE}, ("a", "b"), "Pending"),
        (pod("Never", init=("i",)), {"i": FAILED}, (), "Failed"),
        (pod(sidecars=("s",)), {}, ("s",), "Pending"),
        (pod(sidecars=("s",)), {"s": RUNNING}, ("a", "b"), "Pending"),
        (pod("Never", sidecars=("s",)), {"s": RUNNING, "a": DONE, "b": DONE}, (), "Succeeded"),
        (pod(sidecars=("s", "t")), {"s": FAILED}, ("s", "t"), "Pending"),
        (pod(sidecars=("s",)), {"s": FAILED, "a": DONE, "b": RUNNING}, ("s", "a"), "Running"),
    ],
)
def test_due_containers_and_phase(made: Pod, runs: dict[str, Run], expected: tuple[str, ...], phase: Phase) -> None:
    assert due(made, runs) == expected
    assert phase_of(made, runs) == phase


def test_the_delay_of_restarts_doubles() -> None:
    assert [restart_delay(restarts, 10, 300) for restarts in (0, 1, 2, 3, 6, 100)] == [0, 10, 20, 40, 300, 300]


def test_a_restarted_container_keeps_the_result_of_its_last_run() -> None:
    again = FAILED.holding("CrashLoopBackOff", "back-off").started("c2", NOW)
    assert (again.restarts, again.held, again.last) == (1, None, FAILED)


def seen(runs: dict[str, Run], **cpus: str) -> Seen:
    return Seen(phase_of(pod(), runs), runs, cpus, {}, True, "10.0.0.1", "10.0.0.2", NOW)


def test_a_changed_condition_gets_a_new_time_and_loses_its_outdated_reason() -> None:
    early = "2025-01-01T00:00:00Z"
    former = [
        {"type": "Ready", "status": "False", "reason": "ContainersNotReady", "lastTransitionTime": early},
        {"type": "Initialized", "status": "True", "lastTransitionTime": early},
    ]
    status = status_of(pod(conditions=former), seen({"a": RUNNING, "b": RUNNING}, a="2-3", b="4"))
    conditions = {item["type"]: item for item in status["conditions"]}
    assert conditions["Ready"] == {"type": "Ready", "status": "True", "reason": None, "lastTransitionTime": NOW}
    assert conditions["Initialized"]["lastTransitionTime"] == early
    assert conditions["sandbox.dra.cpu/Pinned"]["message"] == "a: 2-3, b: 4"


def test_a_crashed_container_waits_and_reports_its_last_exit_code() -> None:
    status = status_of(pod(), seen({"a": RUNNING, "b": FAILED.holding("CrashLoopBackOff", "back-off 10s")}))
    b = status["containerStatuses"][1]
    assert b["state"] == {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}
    assert b["lastState"]["terminated"]["exitCode"] == 3


def test_claims_come_from_names_templates_and_extended_resources() -> None:
    made = pod(
        resourceClaimStatuses=[{"name": "t", "resourceClaimName": "web-t-x"}, {"name": "none"}],
        extendedResourceClaimStatus={
            "resourceClaimName": "web-ext",
            "requestMappings": [{"containerName": "a", "resourceName": "dra.cpu/core", "requestName": "r0"}],
        },
    )
    made.object["spec"]["resourceClaims"] = [
        {"name": "n", "resourceClaimName": "mine"},
        {"name": "t", "resourceClaimTemplateName": "t"},
        {"name": "none", "resourceClaimTemplateName": "t"},
        {"name": "later", "resourceClaimTemplateName": "t"},
    ]
    assert made.claims == {"n": "mine", "t": "web-t-x", "later": "", "extended-resources": "web-ext"}
    assert made.claims_of(made.container("a")) == (("extended-resources", "r0"),)
