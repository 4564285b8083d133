"""Tests the decisions of the controllers without a cluster."""

import pytest
from dra_objects import pod, request, template

from dracpu_sandbox.controllers.generated import POD_CLAIM_NAME, claim_from, missing_claims
from dracpu_sandbox.controllers.releasing import uses
from dracpu_sandbox.scheduler.claims import released


def test_a_claim_has_the_spec_of_its_template_and_is_owned_by_the_pod() -> None:
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


def test_a_long_name_leaves_room_for_the_generated_suffix() -> None:
    found = claim_from(template("cpus", request()), pod("p" * 253, templates=["cpus"]), "cpus")
    assert len(found["metadata"]["generateName"]) + 5 == 253


def test_a_claim_is_missing_until_it_exists_and_the_pods_status_names_it() -> None:
    waiting = pod("p", "given", templates=["a", "b", "none"])
    waiting["status"] = {"resourceClaimStatuses": [{"name": "a", "resourceClaimName": "p-a-12345"}, {"name": "none"}]}
    made = {("default", "p-a-12345"): {"metadata": {"ownerReferences": [{"uid": "uid-of-p"}]}}}
    assert [entry["name"] for entry in missing_claims(waiting, lambda key: None)] == ["a", "b"]
    assert [entry["name"] for entry in missing_claims(waiting, made.get)] == ["b"]
    assert missing_claims({**waiting, "status": {"phase": "Succeeded"}}, made.get) == []
    waiting["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert missing_claims(waiting, made.get) == []


def running(**changes):
    found = pod("p", nodeName="n1")
    found["metadata"] |= changes.pop("metadata", {})
    return found | changes


@pytest.mark.parametrize(
    "user, expected",
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
def test_a_pod_uses_its_claim_until_its_containers_cannot_run(user, expected) -> None:
    assert uses(user, "uid-of-p") is expected


def test_a_claim_keeps_its_devices_until_its_last_user_has_ended() -> None:
    users = [{"name": name, "uid": name} for name in ("a", "b")]
    status = {"allocation": {"devices": {}}, "reservedFor": users, "devices": [{"driver": "dra.cpu"}]}
    held = {"metadata": {"name": "c"}, "status": status}
    assert released(held, lambda user: user["uid"] == "b")["status"] == {**status, "reservedFor": users[1:]}
    assert released(held, lambda user: False)["status"] == {}
