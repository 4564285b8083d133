"""What is served is told: discovery, OpenAPI, and definitions that come and go."""

from typing import Any

import pytest
from recorded_answers import things

from dracpu_sandbox.apiserver.kinds.builtin import BUILT_IN
from dracpu_sandbox.apiserver.kinds.classes import schema
from dracpu_sandbox.apiserver.kinds.descriptions import DESCRIPTIONS
from dracpu_sandbox.apiserver.kinds.discovery import discover
from dracpu_sandbox.apiserver.kinds.model import ATOMIC
from dracpu_sandbox.apiserver.kinds.openapi import openapi
from dracpu_sandbox.apiserver.kinds.registry import Registry
from dracpu_sandbox.apiserver.refusal import RefusedError


def told(path: str) -> dict[str, Any]:
    answer = discover(Registry(), path)
    assert answer is not None
    return answer


def test_groups_and_versions_are_told() -> None:
    assert told("/api") == {"kind": "APIVersions", "versions": ["v1"]}
    groups = {group["name"]: group["preferredVersion"]["groupVersion"] for group in told("/apis")["groups"]}
    assert groups["resource.k8s.io"] == "resource.k8s.io/v1"
    assert "" not in groups
    assert told("/apis/resource.k8s.io")["kind"] == "APIGroup"
    assert told("/version")["minor"] == "36"


def test_resources_are_told_with_their_subresources() -> None:
    resources = {one["name"]: one for one in told("/api/v1")["resources"]}
    assert resources["pods"]["shortNames"] == ["po"]
    assert resources["pods/binding"]["kind"] == "Binding"
    assert resources["pods/status"]["verbs"] == ["get", "patch", "update"]
    assert not resources["nodes"]["namespaced"]


@pytest.mark.parametrize("path", ["/apis/none", "/apis/none/v1", "/api/v2", "/nothing", "/apis/a/b/c"])
def test_what_is_not_served_is_not_told(path: str) -> None:
    assert discover(Registry(), path) is None


def test_a_definition_is_served_until_it_is_withdrawn() -> None:
    registry = Registry()
    (kind,) = registry.serve(things())
    assert registry.find("example.com", "v1", "things") is kind
    assert (kind.kind, kind.list_kind, kind.short_names, kind.subresources) == (
        "Thing",
        "ThingList",
        ("th",),
        ("status",),
    )
    registry.withdraw("things.example.com")
    assert registry.find("example.com", "v1", "things") is None
    registry.withdraw("things.example.com")  # once more does no harm


def test_a_definition_that_has_become_bad_leaves_what_is_served() -> None:
    registry = Registry()
    (kind,) = registry.serve(things())
    bad = things()
    bad["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["x-kubernetes-validations"] = [{"rule": "self.a >"}]
    with pytest.raises(RefusedError, match=r"x-kubernetes-validations\[0\].rule.*self.a >"):
        registry.serve(bad)
    assert registry.find("example.com", "v1", "things") is kind


def test_a_version_that_is_not_stored_is_kept_in_the_one_that_is() -> None:
    registry = Registry()
    definition = things()
    first = definition["spec"]["versions"][0]
    definition["spec"]["versions"].append({**first, "name": "v2", "storage": False})
    definition["spec"]["versions"].append({**first, "name": "v3", "storage": False, "served": False})
    stored, shown = registry.serve(definition)
    assert (stored.hub, shown.hub) == ("", "v1")
    assert stored.storage == shown.storage
    item = {"apiVersion": "example.com/v2", "kind": "Thing"}
    assert shown.to_stored(item)["apiVersion"] == "example.com/v1"
    assert shown.from_stored(shown.to_stored(item)) == item


def test_a_served_definition_says_so_and_keeps_since_when() -> None:
    registry = Registry()
    status = registry.crd_status(things())
    assert {one["type"]: one["status"] for one in status["conditions"]} == {
        "NamesAccepted": "True",
        "Established": "True",
    }
    assert status["storedVersions"] == ["v1"]
    assert status["acceptedNames"]["singular"] == "thing"
    for one in status["conditions"]:
        one["lastTransitionTime"] = "2020-01-01T00:00:00Z"
    assert registry.crd_status({**things(), "status": status}) == status


def test_lists_merge_as_their_schema_says() -> None:
    (kind,) = Registry().serve(things())
    assert kind.list_type(("spec", "items")).keys == ("name",)
    assert kind.list_type(("spec", "set")).kind == "set"
    assert kind.list_type(("spec", "atomic")) is ATOMIC
    assert kind.list_type(("metadata", "finalizers")).kind == "set"


def test_lists_of_pods_merge_as_upstream() -> None:
    kind = Registry().find("", "v1", "pods")
    assert kind is not None
    assert kind.list_type(("spec", "containers", "ports")).keys == ("containerPort", "protocol")
    assert kind.list_type(("spec", "containers", "ports")).defaults == {"protocol": "TCP"}
    assert kind.list_type(("spec", "containers", "args")) is ATOMIC
    assert ("spec", "nodeSelector") in kind.atomic_maps


@pytest.mark.parametrize("kind", BUILT_IN, ids=lambda kind: kind.resource)
def test_the_lists_and_maps_of_a_built_in_kind_are_there(kind: Any) -> None:
    for path in (*kind.list_types, *kind.atomic_maps):
        inside = schema(kind.model)
        for name in path:
            inside = inside.get("items", inside)
            assert name in inside["properties"], path
            inside = inside["properties"][name]


def document(registry: Registry, root: str) -> dict[str, Any]:
    found = openapi(registry, f"/openapi/v3/{root}")
    assert found is not None
    return found


def test_the_index_names_all_documents_and_changes_with_them() -> None:
    registry = Registry()
    before = document(registry, "")["paths"]
    assert {"api/v1", "apis/resource.k8s.io/v1"} <= set(before)
    registry.serve(things())
    after = document(registry, "")["paths"]
    assert set(after) - set(before) == {"apis/example.com/v1"}
    changed = things()
    changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["description"] = "other"
    registry.serve(changed)
    assert document(registry, "")["paths"]["apis/example.com/v1"] != after["apis/example.com/v1"]


@pytest.mark.parametrize("root", ["api/v1", "apis/resource.k8s.io/v1", "apis/example.com/v1"])
def test_all_references_of_a_document_lead_somewhere(root: str) -> None:
    registry = Registry()
    registry.serve(things())
    whole = document(registry, root)
    names = {f"#/components/schemas/{name}" for name in whole["components"]["schemas"]}
    assert set(references(whole)) <= names


def references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if "$ref" in value else []
        return own + [ref for one in value.values() for ref in references(one)]
    return [ref for one in value for ref in references(one)] if isinstance(value, list) else []


def test_a_document_describes_the_fields_of_a_kind() -> None:
    whole = document(Registry(), "api/v1")
    pod = whole["components"]["schemas"]["io.k8s.v1.Pod"]
    assert pod["x-kubernetes-group-version-kind"] == [{"group": "", "version": "v1", "kind": "Pod"}]
    spec = whole["components"]["schemas"]["io.k8s.v1.PodSpec"]
    assert spec["required"] == ["containers"]
    assert "containers" in spec["properties"]["containers"]["description"]
    assert spec["properties"]["containers"]["x-kubernetes-patch-merge-key"] == "name"
    patch = whole["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"]
    assert "application/strategic-merge-patch+json" in patch["requestBody"]["content"]
    assert patch["x-kubernetes-group-version-kind"]["kind"] == "Pod"


def test_custom_resources_have_no_strategic_patch() -> None:
    registry = Registry()
    registry.serve(things())
    whole = document(registry, "apis/example.com/v1")
    patch = whole["paths"]["/apis/example.com/v1/namespaces/{namespace}/things/{name}"]["patch"]
    assert "application/strategic-merge-patch+json" not in patch["requestBody"]["content"]


@pytest.mark.parametrize("path", ["/openapi/v2", "/openapi/v3/apis/none/v1", "/other"])
def test_there_is_no_other_document(path: str) -> None:
    assert openapi(Registry(), path) is None


def test_each_kind_and_each_object_in_it_that_is_described_exists() -> None:
    known = {
        name.rpartition(".")[2]
        for root in document(Registry(), "")["paths"]
        for name in document(Registry(), root)["components"]["schemas"]
    }
    assert set(DESCRIPTIONS) <= known
    assert {kind.kind for kind in BUILT_IN} <= set(DESCRIPTIONS)
