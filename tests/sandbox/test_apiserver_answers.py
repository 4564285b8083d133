"""Answers that a person meets through kubectl, as a real API server gave them."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from api_caller import CONFIG_MAPS, CRDS, PODS, THING, THINGS, Caller, thing

EVENTS = "/api/v1/namespaces/default/events"
SECRETS = "/api/v1/namespaces/default/secrets"


@pytest.fixture
async def api() -> AsyncIterator[Caller]:
    async with Caller(THING) as caller:
        yield caller


# What is not there


@pytest.mark.parametrize("path", ["/api/v1/nothing", f"{PODS}/web/ephemeralcontainers", "/nothing"])
async def test_what_is_not_served_has_details_though_empty(api: Caller, path: str) -> None:
    refusal = await api.refused("GET", path)
    assert (refusal["code"], refusal["reason"], refusal["details"]) == (404, "NotFound", {})


async def test_a_custom_object_has_no_unknown_subresource(api: Caller) -> None:
    refusal = await api.refused("GET", f"{THINGS}/one/scale")
    assert refusal["message"] == 'things.things.dev "one" not found'


async def test_the_old_description_of_the_api_is_there_and_says_nothing(api: Caller) -> None:
    async with api.session.get("/openapi/v2") as answer:
        assert answer.content_type == "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
        assert await answer.read() == b"\n\x032.0\x12\x15\n\nKubernetes\x12\x07v1.36.0"


# Lists


@pytest.mark.parametrize(
    "query, code",
    [
        ({"resourceVersion": "x"}, 400),
        ({"resourceVersionMatch": "Exact"}, 422),
        ({"resourceVersionMatch": "Near", "resourceVersion": "1"}, 422),
    ],
    ids=str,
)
async def test_a_list_of_no_moment_is_refused(api: Caller, query: dict[str, str], code: int) -> None:
    assert (await api.refused("GET", CONFIG_MAPS, **query))["code"] == code


# Deleting


@pytest.mark.parametrize("name", ["default", "kube-public", "kube-system"])
async def test_the_first_namespaces_stay(api: Caller, name: str) -> None:
    refusal = await api.refused("DELETE", f"/api/v1/namespaces/{name}")
    assert refusal["message"] == f'namespaces "{name}" is forbidden: this namespace may not be deleted'
    assert name in await api.names("/api/v1/namespaces")


async def test_nothing_is_created_of_a_kind_that_is_going(api: Caller) -> None:
    held = thing("held")
    held["metadata"]["finalizers"] = ["things.dev/held"]
    await api.create(THINGS, held)
    assert "finalizers" not in (await api.get(f"{CRDS}/things.things.dev"))["metadata"]
    await api.delete(f"{CRDS}/things.things.dev")
    refusal = await api.refused("POST", THINGS, thing("late"))
    assert refusal["message"].endswith("create not allowed while custom resource definition is terminating")


# Patching and applying


@pytest.mark.parametrize(
    "how, patch",
    [("merge", {"spec": {"colour": "red"}}), ("json", [{"op": "add", "path": "/spec/colour", "value": "red"}])],
)
async def test_a_patch_with_an_unknown_field_makes_the_object_invalid(api: Caller, how: str, patch: Any) -> None:
    await api.create(THINGS, thing())
    refusal = await api.refused("PATCH", f"{THINGS}/one", patch, how, fieldValidation="Strict")
    assert (refusal["code"], refusal["reason"]) == (422, "Invalid")
    (cause,) = refusal["details"]["causes"]
    assert cause["field"] == "patch"
    assert cause["message"].endswith('strict decoding error: unknown field "spec.colour"')


async def test_to_apply_a_status_is_not_to_apply_labels(api: Caller) -> None:
    await api.apply(f"{THINGS}/one", {**thing(), "metadata": {"name": "one", "labels": {"a": "b"}}}, "first")
    config = {**thing(), "metadata": {"name": "one", "labels": {"a": "c"}}, "status": {"phase": "Ready"}}
    after = await api.apply(f"{THINGS}/one/status", config, "second")
    assert (after["metadata"]["labels"], after["status"]) == ({"a": "b"}, {"phase": "Ready"})


# What is always told


async def test_events_have_their_times_where_nobody_tells_them(api: Caller) -> None:
    event = {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "namespace": "default"}}
    made = await api.create(EVENTS, event)
    assert {name: made[name] for name in ("eventTime", "firstTimestamp", "lastTimestamp")} == {
        "eventTime": None,
        "firstTimestamp": None,
        "lastTimestamp": None,
    }
    other = await api.get("/apis/events.k8s.io/v1/namespaces/default/events/e")
    assert other["deprecatedLastTimestamp"] is None
