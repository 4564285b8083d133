"""What controllers decide, without a cluster."""

from datetime import UTC, datetime

import pytest
from dra_objects import node, pod, request, single, slice_of, template

from dracpu_sandbox.controllers.eviction import NEVER, end_of_tolerance, taints_by_device
from dracpu_sandbox.controllers.generated import POD_CLAIM_NAME, claim_from, missing_claims
from dracpu_sandbox.controllers.readiness import taints_of
from dracpu_sandbox.controllers.releasing import uses
from dracpu_sandbox.scheduler.claims import released

MOMENT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
TAINT = {"key": "broken", "value": "yes", "effect": "NoExecute", "timeAdded": "2026-01-02T03:04:05Z"}


def allocated(*tolerations):
    result = {"driver": "dra.cpu", "pool": "n1", "device": "cpudev000", "tolerations": list(tolerations)}
    return {"status": {"allocation": {"devices": {"results": [result]}}}}


@pytest.mark.parametrize(
    "tolerations, end",
    [
        ([], 0.0),
        ([{"key": "other", "operator": "Exists"}], 0.0),
        ([{"key": "broken", "value": "yes", "effect": "NoSchedule"}], 0.0),
        ([{"key": "broken", "value": "yes"}], NEVER),
        ([{"operator": "Exists"}], NEVER),
        ([{"operator": "Exists", "tolerationSeconds": 6}], MOMENT.timestamp() + 6),
        ([{"operator": "Exists"}, {"operator": "Exists", "tolerationSeconds": 6}], MOMENT.timestamp() + 6),
        ([{"operator": "Exists", "tolerationSeconds": -1}], MOMENT.timestamp()),
    ],
)
def test_a_taint_is_tolerated_until_a_moment(tolerations, end) -> None:
    taints = taints_by_device([slice_of("n1", [single(0, taints=[TAINT])])])
    assert end_of_tolerance(allocated(*tolerations), taints) == end


@pytest.mark.parametrize("effect", ["NoSchedule", "None"])
def test_other_taints_evict_nobody(effect) -> None:
    taints = taints_by_device([slice_of("n1", [single(0, taints=[{**TAINT, "effect": effect}])])])
    assert end_of_tolerance(allocated(), taints) == NEVER


def test_a_taint_of_a_former_generation_evicts_nobody() -> None:
    former = slice_of("n1", [single(0, taints=[TAINT])], name="former")
    newest = slice_of("n1", [single(0)], name="newest", generation=2)
    for slices in ([former, newest], [newest, former]):
        assert end_of_tolerance(allocated(), taints_by_device(slices)) == NEVER


def test_a_tainted_device_of_another_pool_evicts_nobody() -> None:
    taints = taints_by_device([slice_of("n2", [single(0, taints=[TAINT])])])
    assert end_of_tolerance(allocated(), taints) == NEVER


def test_a_claim_is_made_of_its_template_and_belongs_to_the_pod() -> None:
    made_of = template("cpus", request(count=2))
    made_of["spec"]["metadata"] = {"labels": {"team": "a"}, "annotations": {"why": "speed"}}
    found = claim_from(made_of, pod("p", templates=["cpus"]), "cpus")
    assert found["spec"] == made_of["spec"]["spec"]
    assert found["metadata"] == {
        "generateName": "p-cpus-",
        "namespace": "default",
        "labels": {"team": "a"},
        "annotations": {"why": "speed", POD_CLAIM_NAME: "cpus"},
        "ownerReferences": [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": "p",
                "uid": "uid-of-p",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }


def test_a_long_name_leaves_room_for_what_is_generated() -> None:
    found = claim_from(template("cpus", request()), pod("p" * 253, templates=["cpus"]), "cpus")
    assert len(found["metadata"]["generateName"]) + 5 == 253


def test_claims_of_templates_are_missing_until_the_pod_is_told_of_one_that_is_there() -> None:
    waiting = pod("p", "given", templates=["a", "b", "none"])
    waiting["status"] = {"resourceClaimStatuses": [{"name": "a", "resourceClaimName": "p-a-12345"}, {"name": "none"}]}
    made = {("default", "p-a-12345"): {"metadata": {"ownerReferences": [{"uid": "uid-of-p"}]}}}
    assert [one["name"] for one in missing_claims(waiting, lambda key: None)] == ["a", "b"]
    assert [one["name"] for one in missing_claims(waiting, made.get)] == ["b"]
    assert missing_claims({**waiting, "status": {"phase": "Succeeded"}}, made.get) == []
    waiting["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert missing_claims(waiting, made.get) == []


def running(**changes):
    found = pod("p", nodeName="n1")
    found["metadata"] |= changes.pop("metadata", {})
    return found | changes


@pytest.mark.parametrize(
    "one, answer",
    [
        (running(), True),
        (running(metadata={"deletionTimestamp": "now"}), True),  # its containers may still run
        (running(spec={}), True),
        (running(spec={}, metadata={"deletionTimestamp": "now"}), False),
        (running(status={"phase": "Failed"}), False),
        (running(metadata={"uid": "another"}), False),
        (None, False),
    ],
)
def test_a_pod_uses_its_claim_until_nothing_of_it_can_run(one, answer) -> None:
    assert uses(one, "uid-of-p") is answer


def test_a_claim_keeps_its_devices_until_the_last_user_is_gone() -> None:
    users = [{"name": name, "uid": name} for name in ("a", "b")]
    status = {"allocation": {"devices": {}}, "reservedFor": users, "devices": [{"driver": "dra.cpu"}]}
    held = {"metadata": {"name": "c"}, "status": status}
    assert released(held, lambda user: user["uid"] == "b")["status"] == {**status, "reservedFor": users[1:]}
    assert released(held, lambda user: False)["status"] == {}


def conditions(ready):
    return {"conditions": [{"type": "Ready", "status": ready}]} if ready else {}


@pytest.mark.parametrize(
    "ready, keys",
    [
        ("True", ["mine"]),
        ("False", ["mine", "node.kubernetes.io/not-ready"]),
        ("Unknown", ["mine", "node.kubernetes.io/unreachable"]),
        ("", ["mine"]),  # it has not said anything yet
    ],
)
@pytest.mark.parametrize("before", [[], ["node.kubernetes.io/not-ready"], ["node.kubernetes.io/unreachable"]])
def test_a_node_bears_the_taint_of_its_condition(ready, keys, before) -> None:
    taints = [{"key": key, "effect": "NoSchedule"} for key in ["mine", *before]]
    one = {**node("n1", taints=taints), "status": conditions(ready)}
    assert [taint["key"] for taint in taints_of(one)] == keys
