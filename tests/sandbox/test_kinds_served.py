"""Discovery and OpenAPI describe the kinds that are served, and definitions add and remove kinds."""

from typing import Any

import pytest
from recorded_answers import things

from dracpu_sandbox.apiserver.kinds.discovery import discover
from dracpu_sandbox.apiserver.kinds.kind import ATOMIC
from dracpu_sandbox.apiserver.kinds.openapi import openapi
from dracpu_sandbox.apiserver.kinds.registry import Registry
from dracpu_sandbox.apiserver.refusal import RefusedError


def discovered(path: str) -> dict[str, Any]:
    answer = discover(Registry(), path)
    assert answer is not None
    return answer


def test_groups_versions_and_resources_are_listed() -> None:
    assert discovered("/api") == {"kind": "APIVersions", "versions": ["v1"]}
    groups = {group["name"]: group["preferredVersion"]["groupVersion"] for group in discovered("/apis")["groups"]}
    assert groups["resource.k8s.io"] == "resource.k8s.io/v1"
    assert discovered("/apis/resource.k8s.io")["kind"] == "APIGroup"
    assert discovered("/version")["gitVersion"].startswith("v1.")
    resources = {resource["name"]: resource for resource in discovered("/api/v1")["resources"]}
    assert resources["pods"]["shortNames"] == ["po"]
    assert resources["pods/binding"]["kind"] == "Binding"
    assert resources["pods/status"]["verbs"] == ["get", "patch", "update"]
    assert not resources["nodes"]["namespaced"]


@pytest.mark.parametrize("path", ["/apis/none", "/apis/none/v1", "/api/v2", "/nothing", "/apis/a/b/c"])
def test_a_path_that_is_not_served_has_no_discovery_document(path: str) -> None:
    assert discover(Registry(), path) is None


def test_a_definition_is_served_until_it_is_withdrawn() -> None:
    registry = Registry()
    kind = registry.serve(things())
    assert registry.find("example.com", "v1", "things") is kind
    assert (kind.kind, kind.list_kind, kind.short_names, kind.subresources) == (
        "Thing",
        "ThingList",
        ("th",),
        ("status",),
    )
    bad = things()
    bad["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["x-kubernetes-validations"] = [{"rule": "self.a >"}]
    with pytest.raises(RefusedError, match=r"x-kubernetes-validations\[0\].rule.*self.a >"):
        registry.serve(bad)
    assert registry.find("example.com", "v1", "things") is kind
    for _ in range(2):  # the second time has no effect
        registry.withdraw("things.example.com")
        assert registry.find("example.com", "v1", "things") is None


def test_a_served_definition_is_established_and_keeps_its_transition_times() -> None:
    registry = Registry()
    status = registry.crd_status(things())
    conditions = {condition["type"]: condition["status"] for condition in status["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}
    assert (status["storedVersions"], status["acceptedNames"]["singular"]) == (["v1"], "thing")
    for condition in status["conditions"]:
        condition["lastTransitionTime"] = "2020-01-01T00:00:00Z"
    assert registry.crd_status({**things(), "status": status}) == status


def test_lists_and_maps_are_merged_as_their_schema_defines() -> None:
    thing, pod = Registry().serve(things()), Registry().find("", "v1", "pods")
    assert pod is not None
    assert thing.list_type(("spec", "items")).keys == ("name",)
    assert thing.list_type(("metadata", "finalizers")).kind == "set"
    assert pod.list_type(("spec", "containers", "ports")).keys == ("containerPort", "protocol")
    assert pod.list_type(("spec", "containers", "ports")).defaults == {"protocol": "TCP"}
    assert pod.list_type(("spec", "containers", "args")) is ATOMIC
    assert ("spec", "nodeSelector") in pod.atomic_maps


def document(registry: Registry, root: str) -> dict[str, Any]:
    found = openapi(registry, f"/openapi/v3/{root}")
    assert found is not None
    return found


def test_the_index_of_openapi_names_all_documents_and_changes_with_them() -> None:
    registry, changed = Registry(), things()
    before = document(registry, "")["paths"]
    registry.serve(things())
    after = document(registry, "")["paths"]
    assert set(after) - set(before) == {"apis/example.com/v1"}
    changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["description"] = "other"
    registry.serve(changed)
    assert document(registry, "")["paths"]["apis/example.com/v1"] != after["apis/example.com/v1"]
    assert openapi(registry, "/openapi/v3/apis/none/v1") is None


def test_a_document_describes_the_fields_and_the_patch_formats_of_each_kind() -> None:
    registry = Registry()
    registry.serve(things())
    core, own = document(registry, "api/v1"), document(registry, "apis/example.com/v1")
    schemas, identity = core["components"]["schemas"], {"group": "", "version": "v1", "kind": "Pod"}
    assert schemas["io.k8s.api.core.v1.Pod"]["x-kubernetes-group-version-kind"] == [identity]
    assert schemas["io.k8s.api.core.v1.PodSpec"]["required"] == ["containers"]
    assert own["components"]["schemas"]["com.example.v1.Thing"]["properties"]["spec"]["required"] == ["size"]
    pods, ours = (next(iter(api["paths"].values()))["patch"]["requestBody"]["content"] for api in (core, own))
    assert set(pods) - set(ours) == {"application/strategic-merge-patch+json"}
