"""The verbs over HTTP store objects, and answer as a real API server does."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from api_caller import CONFIG_MAPS, CRDS, NODES, PODS, THING, THINGS, Caller, config_map, pod, thing

NAMESPACES = "/api/v1/namespaces"
FIRST = ["default", "kube-node-lease", "kube-public", "kube-system"]


@pytest.fixture
async def api() -> AsyncIterator[Caller]:
    async with Caller(THING) as caller:
        yield caller


# Creating


async def test_a_created_object_gets_a_uid_a_version_and_a_creation_time(api: Caller) -> None:
    made = await api.create(CONFIG_MAPS, config_map("a", {"k": "v"}, uid="mine", generation=7))
    metadata = made["metadata"]
    assert (made["apiVersion"], made["kind"], metadata["namespace"]) == ("v1", "ConfigMap", "default")
    assert metadata["uid"] != "mine"
    assert {"creationTimestamp", "resourceVersion"} <= set(metadata)
    assert await api.get(f"{CONFIG_MAPS}/a") == made


async def test_generate_name_appends_a_random_suffix(api: Caller) -> None:
    names = [(await api.create(CONFIG_MAPS, {"metadata": {"generateName": "a-"}}))["metadata"]["name"] for _ in "ab"]
    assert all(name.startswith("a-") and len(name) == 7 for name in names)
    assert names[0] != names[1]


async def test_an_object_that_exists_is_not_created_again(api: Caller) -> None:
    await api.create(CONFIG_MAPS, config_map("a"))
    refusal = await api.refused("POST", CONFIG_MAPS, config_map("a"))
    assert (refusal["code"], refusal["reason"]) == (409, "AlreadyExists")
    assert refusal["message"] == 'configmaps "a" already exists'
    assert refusal["details"] == {"name": "a", "kind": "configmaps"}


@pytest.mark.parametrize(
    "body, code, words",
    [
        ({"metadata": {}}, 422, "name or generateName is required"),
        ({"metadata": {"name": "a"}, "kind": "Pod"}, 400, "the kind of the object (Pod) does not match"),
        ({"metadata": {"name": "a"}, "apiVersion": "v2"}, 400, "the API version of the object (v2) does not match"),
        ({"metadata": {"name": "a", "namespace": "b"}}, 400, "the namespace of the object (b) does not match"),
        ({"metadata": {"name": "a", "resourceVersion": "5"}}, 400, "resourceVersion should not be set"),
        ({"metadata": 5}, 400, "the body and its metadata must be objects"),
        (b"{", 400, "the body is not JSON"),
    ],
    ids=str,
)
async def test_an_object_that_contradicts_its_request_is_refused(
    api: Caller, body: object, code: int, words: str
) -> None:
    refusal = await api.refused("POST", CONFIG_MAPS, body)
    assert (refusal["code"], words in refusal["message"]) == (code, True), refusal


async def test_an_object_is_not_created_in_a_namespace_that_does_not_exist(api: Caller) -> None:
    refusal = await api.refused("POST", CONFIG_MAPS.replace("default", "nowhere"), config_map("a"))
    assert (refusal["code"], refusal["message"]) == (404, 'namespaces "nowhere" not found')


async def test_defaults_are_filled_in_and_errors_name_their_field(api: Caller) -> None:
    assert (await api.create(THINGS, thing()))["spec"]["color"] == "grey"
    refusal = await api.refused("POST", THINGS, thing("two", size="big"))
    assert (refusal["code"], refusal["details"]["causes"][0]["field"]) == (422, "spec.size")


async def test_unknown_fields_cause_a_warning_or_a_refusal_as_the_client_requests(api: Caller) -> None:
    warned = await api.call("POST", THINGS, thing(colour="red"))
    assert (warned.code, warned.headers["Warning"]) == (201, r'299 - "unknown field \"spec.colour\""')
    assert "colour" not in warned.body["spec"]
    refusal = await api.refused("POST", THINGS, thing("two", colour="red"), fieldValidation="Strict")
    assert (refusal["code"], refusal["reason"]) == (400, "BadRequest")
    assert refusal["message"] == (
        'Thing in version "v1" cannot be handled as a Thing: strict decoding error: unknown field "spec.colour"'
    )
    ignored = await api.call("POST", THINGS, thing("two", colour="red"), fieldValidation="Ignore")
    assert (ignored.code, "Warning" in ignored.headers) == (201, False)


async def test_a_dry_run_stores_nothing(api: Caller) -> None:
    made = await api.create(CONFIG_MAPS, config_map("a"), dryRun="All")
    assert "resourceVersion" not in made["metadata"]
    assert await api.names(CONFIG_MAPS) == []
    await api.create(CONFIG_MAPS, config_map("a"))
    assert (await api.patch(f"{CONFIG_MAPS}/a", {"data": {"k": "v"}}, dryRun="All"))["data"] == {"k": "v"}
    await api.delete(f"{CONFIG_MAPS}/a", dryRun="All")
    assert (await api.get(f"{CONFIG_MAPS}/a"))["data"] == {}


# Listing


async def test_all_pages_of_a_list_show_the_same_revision(api: Caller) -> None:
    for name in "abcde":
        await api.create(CONFIG_MAPS, config_map(name))
    first = await api.get(CONFIG_MAPS, limit="2")
    await api.create(CONFIG_MAPS, config_map("aa"))
    await api.delete(f"{CONFIG_MAPS}/c")
    second = await api.get(CONFIG_MAPS, limit="2", **{"continue": first["metadata"]["continue"]})
    third = await api.get(CONFIG_MAPS, **{"continue": second["metadata"]["continue"]})
    pages = [first, second, third]
    assert [item["metadata"]["name"] for page in pages for item in page["items"]] == list("abcde")
    assert len({page["metadata"]["resourceVersion"] for page in pages}) == 1
    assert "continue" not in third["metadata"]
    assert await api.names(CONFIG_MAPS) == ["a", "aa", "b", "d", "e"]


async def test_a_page_at_a_revision_without_history_is_expired(api: Caller) -> None:
    for name in "ab":
        await api.create(CONFIG_MAPS, config_map(name))
    token = (await api.get(CONFIG_MAPS, limit="1"))["metadata"]["continue"]
    api.server.watches.expire()
    expired = await api.refused("GET", CONFIG_MAPS, **{"continue": token})
    assert expired["code"] == 410
    rest = await api.get(CONFIG_MAPS, **{"continue": expired["metadata"]["continue"]})
    assert [item["metadata"]["name"] for item in rest["items"]] == ["b"]
    assert "continue" not in rest["metadata"]
    assert (await api.refused("GET", CONFIG_MAPS, **{"continue": "nonsense"}))["code"] == 400


async def test_a_list_of_a_past_version_is_refused(api: Caller) -> None:
    refusal = await api.refused("GET", CONFIG_MAPS, resourceVersion="1", resourceVersionMatch="Exact")
    assert "KUBEBUILDER_ASSETS" in refusal["message"]


async def test_a_list_is_limited_to_a_namespace_and_to_selected_objects(api: Caller) -> None:
    await api.create(NAMESPACES, {"metadata": {"name": "other"}})
    await api.create(CONFIG_MAPS, config_map("a", labels={"app": "x"}))
    await api.create(CONFIG_MAPS.replace("default", "other"), config_map("b", labels={"app": "x"}))
    await api.create(CONFIG_MAPS, config_map("c"))
    assert await api.names("/api/v1/configmaps", labelSelector="app=x") == ["a", "b"]
    assert await api.names(CONFIG_MAPS, labelSelector="app=x") == ["a"]
    assert await api.names(CONFIG_MAPS, fieldSelector="metadata.name=c") == ["c"]


# Changing


async def test_a_replacement_of_an_outdated_or_another_object_is_a_conflict(api: Caller) -> None:
    made = await api.create(CONFIG_MAPS, config_map("a"))
    newer = await api.replace(f"{CONFIG_MAPS}/a", {**made, "data": {"k": "1"}})
    assert newer["metadata"]["resourceVersion"] != made["metadata"]["resourceVersion"]
    refusal = await api.refused("PUT", f"{CONFIG_MAPS}/a", {**made, "data": {"k": "2"}})
    assert (refusal["code"], refusal["reason"]) == (409, "Conflict")
    assert refusal["message"].endswith(
        '"a": the object has been modified; please apply your changes to the latest version and try again'
    )
    assert (await api.refused("PUT", f"{CONFIG_MAPS}/a", config_map("a", uid="another")))["reason"] == "Conflict"
    assert (await api.refused("PUT", f"{CONFIG_MAPS}/a", config_map("b")))["code"] == 400
    assert (await api.replace(f"{CONFIG_MAPS}/a", config_map("a")))["metadata"]["uid"] == made["metadata"]["uid"]


async def test_a_custom_object_is_not_replaced_without_its_version(api: Caller) -> None:
    await api.create(THINGS, thing())
    refusal = await api.refused("PUT", f"{THINGS}/one", thing())
    assert refusal["message"] == (
        'Thing.things.dev "one" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update'
    )


async def test_a_write_without_changes_creates_no_version(api: Caller) -> None:
    made = await api.create(THINGS, thing(color="red"))
    assert await api.patch(f"{THINGS}/one", {"spec": {"color": "red"}}) == made
    assert await api.replace(f"{THINGS}/one", made) == made
    applied = await api.apply(f"{THINGS}/one", thing(color="red"), "a")
    assert await api.apply(f"{THINGS}/one", thing(color="red"), "a") == applied


async def test_the_generation_counts_changes_of_the_spec(api: Caller) -> None:
    made = await api.create(THINGS, thing(color="red"))
    await api.patch(f"{THINGS}/one/status", {"status": {"phase": "x"}})
    await api.patch(f"{THINGS}/one", {"metadata": {"labels": {"a": "b"}}})
    assert (await api.get(f"{THINGS}/one"))["metadata"]["generation"] == made["metadata"]["generation"] == 1
    assert (await api.patch(f"{THINGS}/one", {"spec": {"color": "blue"}}))["metadata"]["generation"] == 2


async def test_the_status_is_written_only_through_its_subresource(api: Caller) -> None:
    made = await api.create(THINGS, {**thing(), "status": {"phase": "mine"}})
    assert "status" not in made
    whole = {"spec": {"color": "green"}, "status": {"phase": "x"}, "metadata": {"labels": {"a": "b"}}}
    after = await api.patch(f"{THINGS}/one/status", whole)
    assert (after["status"], after["spec"]["color"], "labels" in after["metadata"]) == ({"phase": "x"}, "grey", False)
    after = await api.patch(f"{THINGS}/one", whole)
    assert (after["status"], after["spec"]["color"]) == ({"phase": "x"}, "green")
    after = await api.replace(f"{THINGS}/one/status", {**after, "status": {"phase": "y"}, "spec": {"size": 1}})
    assert (after["status"], "size" in after["spec"]) == ({"phase": "y"}, False)
    assert await api.get(f"{THINGS}/one/status") == after


async def test_an_object_is_patched_in_each_format(api: Caller) -> None:
    await api.create(PODS, pod())
    await api.patch(f"{PODS}/web", {"metadata": {"labels": {"a": "1", "b": "2"}}}, "merge")
    await api.patch(f"{PODS}/web", [{"op": "remove", "path": "/metadata/labels/a"}], "json")
    await api.patch(f"{PODS}/web", {"spec": {"containers": [{"name": "main", "image": "new"}]}}, "strategic")
    after = await api.get(f"{PODS}/web")
    assert after["metadata"]["labels"] == {"b": "2"}
    assert [container["image"] for container in after["spec"]["containers"]] == ["new"]
    outdated = {"metadata": {"resourceVersion": "1", "labels": {"c": "3"}}}
    assert (await api.refused("PATCH", f"{PODS}/web", outdated, "merge"))["code"] == 409
    foreign = {"metadata": {"uid": "another"}}
    assert (await api.refused("PATCH", f"{PODS}/web", foreign, "merge"))["code"] == 422


async def test_a_patch_in_a_format_that_the_kind_does_not_support_is_refused(api: Caller) -> None:
    await api.create(THINGS, thing())
    assert (await api.refused("PATCH", f"{THINGS}/one", {}, "strategic"))["code"] == 415
    assert (await api.refused("PATCH", f"{THINGS}/one", {}))["code"] == 415
    assert (await api.refused("PATCH", f"{THINGS}/two", {}, "merge"))["code"] == 404


async def test_a_patch_with_an_unknown_field_makes_the_object_invalid(api: Caller) -> None:
    await api.create(THINGS, thing())
    patch = {"spec": {"colour": "red"}}
    refusal = await api.refused("PATCH", f"{THINGS}/one", patch, "merge", fieldValidation="Strict")
    assert (refusal["code"], refusal["reason"]) == (422, "Invalid")  # so that `kubectl edit` opens the editor again
    (cause,) = refusal["details"]["causes"]
    assert (cause["field"], 'unknown field "spec.colour"' in cause["message"]) == ("patch", True)


# Applying


async def test_an_apply_creates_and_changes_an_object(api: Caller) -> None:
    made = await api.apply(f"{THINGS}/one", thing(color="red"), "a")
    assert made["spec"] == {"color": "red"}
    (entry,) = made["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"], entry["fieldsV1"]) == ("a", "Apply", {"f:spec": {"f:color": {}}})
    refusal = await api.refused("PATCH", f"{THINGS}/one", thing(color="blue"), "apply", fieldManager="b")
    assert refusal["message"] == 'Apply failed with 1 conflict: conflict with "a": .spec.color'
    forced = await api.apply(f"{THINGS}/one", thing(color="blue"), "b", force="true")
    assert [entry["manager"] for entry in forced["metadata"]["managedFields"]] == ["b"]


async def test_an_apply_of_the_status_owns_and_changes_only_the_status(api: Caller) -> None:
    await api.apply(f"{THINGS}/one", thing(color="red"), "a")
    status = {**thing(), "metadata": {"name": "one", "labels": {"a": "c"}}, "status": {"phase": "x"}}
    after = await api.apply(f"{THINGS}/one/status", status, "a")
    assert (after["status"], "labels" in after["metadata"]) == ({"phase": "x"}, False)
    entries = {entry.get("subresource", ""): entry["fieldsV1"] for entry in after["metadata"]["managedFields"]}
    assert entries == {"": {"f:spec": {"f:color": {}}}, "status": {"f:status": {"f:phase": {}}}}
    missing = {**thing("two"), "status": {"phase": "x"}}
    assert (await api.refused("PATCH", f"{THINGS}/two/status", missing, "apply", fieldManager="a"))["code"] == 404


@pytest.mark.parametrize(
    "body, query, code, words",
    [
        (thing(), {}, 422, "fieldManager: Required value: is required for apply patch"),
        (thing("two"), {"fieldManager": "a"}, 400, "the name of the object (two) does not match"),
        (thing(colour="red"), {"fieldManager": "a"}, 500, ".spec.colour: field not declared in schema"),
        ({**thing(), "metadata": {"managedFields": [{}]}}, {"fieldManager": "a"}, 400, "managedFields must be nil"),
        ({**thing(), "metadata": {"uid": "x"}}, {"fieldManager": "a"}, 409, "no existing object was found"),
    ],
    ids=str,
)
async def test_an_apply_that_cannot_be_carried_out_is_refused(
    api: Caller, body: dict[str, Any], query: dict[str, str], code: int, words: str
) -> None:
    refusal = await api.refused("PATCH", f"{THINGS}/one", body, "apply", **query)
    assert (refusal["code"], words in refusal["message"]) == (code, True), refusal


async def test_the_client_program_is_the_default_field_manager(api: Caller) -> None:
    answered = await api.call("POST", THINGS, thing(color="red"), headers={"User-Agent": "kubectl/v1.36 (linux)"})
    (entry,) = answered.body["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"], entry["apiVersion"]) == ("kubectl", "Update", "things.dev/v1")


# Deleting


async def test_an_object_stays_until_its_finalizers_are_removed(api: Caller) -> None:
    await api.create(CONFIG_MAPS, config_map("a", finalizers=["x.dev/one", "x.dev/two"]))
    deleted = await api.delete(f"{CONFIG_MAPS}/a")
    assert "deletionTimestamp" in deleted["metadata"]
    assert await api.delete(f"{CONFIG_MAPS}/a") == deleted
    finalizers = {"metadata": {"finalizers": ["x.dev/one", "x.dev/three"]}}
    refusal = await api.refused("PATCH", f"{CONFIG_MAPS}/a", finalizers, "merge")
    assert refusal["message"].endswith("if the object is being deleted: x.dev/three")
    await api.patch(f"{CONFIG_MAPS}/a", {"metadata": {"finalizers": ["x.dev/one"]}})
    await api.patch(f"{CONFIG_MAPS}/a", {"metadata": {"finalizers": None}})
    assert await api.names(CONFIG_MAPS) == []


async def test_an_object_that_differs_from_the_preconditions_is_not_deleted(api: Caller) -> None:
    made = (await api.create(CONFIG_MAPS, config_map("a")))["metadata"]
    for required in ({"uid": "another"}, {"resourceVersion": "1"}):
        refusal = await api.refused("DELETE", f"{CONFIG_MAPS}/a", {"preconditions": required})
        assert (refusal["code"], refusal["reason"]) == (409, "Conflict")
    required = {"uid": made["uid"], "resourceVersion": made["resourceVersion"]}
    status = await api.delete(f"{CONFIG_MAPS}/a", {"preconditions": required})
    assert (status["status"], status["details"]["uid"]) == ("Success", made["uid"])
    assert (await api.refused("DELETE", f"{CONFIG_MAPS}/a"))["code"] == 404


# Definitions, and requests that are not served


async def test_a_kind_is_served_as_long_as_its_definition_exists(api: Caller) -> None:
    crd = await api.get(f"{CRDS}/things.things.dev")
    assert {"type": "Established", "status": "True"}.items() <= crd["status"]["conditions"][-1].items()
    await api.create(THINGS, thing())
    deleted = await api.delete(f"{CRDS}/things.things.dev")
    since = {"watch": "true", "resourceVersion": deleted["metadata"]["resourceVersion"]}
    async with api.session.get(CRDS, params=since) as watch:
        async for line in watch.content:
            if b'"DELETED"' in line:
                break
    refusal = await api.refused("GET", THINGS)
    assert (refusal["code"], refusal["message"]) == (404, "the server could not find the requested resource")
    await api.create(CRDS, THING)
    assert await api.names(THINGS) == []


async def test_no_object_is_created_while_its_definition_is_being_deleted(api: Caller) -> None:
    held = thing("held")
    held["metadata"]["finalizers"] = ["things.dev/held"]
    await api.create(THINGS, held)
    await api.delete(f"{CRDS}/things.things.dev")
    refusal = await api.refused("POST", THINGS, thing("late"))
    assert refusal["message"].endswith("create not allowed while custom resource definition is terminating")


@pytest.mark.parametrize(
    "method, path, code",
    [
        ("GET", "/api/v1/nothing", 404),
        ("GET", "/nothing", 404),
        ("GET", f"{NODES}/n1/log", 404),
        ("GET", f"{THINGS}/one/scale", 404),
        ("GET", f"{PODS}/web/ephemeralcontainers", 404),
        ("GET", f"{NAMESPACES}/default/nodes", 404),
        ("POST", f"{CONFIG_MAPS}/a", 405),
        ("POST", "/api/v1/configmaps", 405),
        ("PUT", CONFIG_MAPS, 405),
        ("DELETE", f"{PODS}/web/status", 405),
        ("DELETE", CONFIG_MAPS, 400),
        ("GET", f"{PODS}/web/binding", 405),
        ("OPTIONS", CONFIG_MAPS, 405),
    ],
)
async def test_unknown_paths_and_methods_are_refused(api: Caller, method: str, path: str, code: int) -> None:
    refusal = await api.refused(method, path, {} if method in {"POST", "PUT"} else None)
    assert refusal["code"] == code
    assert "details" in refusal  # kubectl reads the details unchecked


async def test_the_first_namespaces_exist_and_cannot_be_deleted(api: Caller) -> None:
    assert await api.names(NAMESPACES) == FIRST
    refusal = await api.refused("DELETE", f"{NAMESPACES}/default")
    assert refusal["message"] == 'namespaces "default" is forbidden: this namespace may not be deleted'


async def test_the_server_is_healthy_and_has_an_empty_openapi_v2(api: Caller) -> None:
    assert [(await api.call("GET", path)).body for path in ("/healthz", "/livez", "/readyz")] == ["ok"] * 3
    async with api.session.get("/openapi/v2") as answer:
        assert answer.content_type == "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
        assert b"Kubernetes" in await answer.read()
