"""Pods: their bindings to nodes, resizes, grace periods and logs."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from api_caller import PODS, Caller, pod


@pytest.fixture
async def api() -> AsyncIterator[Caller]:
    async with Caller() as caller:
        yield caller


def binding(name: str = "web", node: str = "n1", **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **metadata}, "target": {"kind": "Node", "name": node}}


async def test_a_new_pod_is_pending(api: Caller) -> None:
    made = await api.create(PODS, {**pod(), "status": {"phase": "Running"}})
    assert made["status"] == {"phase": "Pending", "qosClass": "BestEffort"}


async def test_the_quality_of_service_compares_amounts_and_not_their_texts(api: Caller) -> None:
    body = pod()
    resources = {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m", "memory": "1024Mi"}}
    body["spec"]["containers"][0]["resources"] = resources
    assert (await api.create(PODS, body))["status"]["qosClass"] == "Guaranteed"


async def test_a_pod_is_bound_to_a_node_only_once(api: Caller) -> None:
    await api.create(PODS, pod())
    assert (await api.create(f"{PODS}/web/binding", binding()))["status"] == "Success"
    bound = await api.get(f"{PODS}/web")
    assert bound["spec"]["nodeName"] == "n1"
    conditions = [(condition["type"], condition["status"]) for condition in bound["status"]["conditions"]]
    assert conditions == [("PodScheduled", "True")]
    refusal = await api.refused("POST", f"{PODS}/web/binding", binding(node="n2"))
    assert refusal["code"] == 409
    assert refusal["message"].endswith('pod web is already assigned to node "n1"')


async def test_a_deleted_pod_and_a_pod_with_another_uid_are_not_bound(api: Caller) -> None:
    await api.create(PODS, pod())
    await api.create(PODS, pod("leaving", finalizers=["x.dev/slow"]))
    await api.delete(f"{PODS}/leaving")
    assert "is being deleted" in (await api.refused("POST", f"{PODS}/leaving/binding", binding("leaving")))["message"]
    assert (await api.refused("POST", f"{PODS}/web/binding", {}))["code"] == 400
    assert (await api.refused("POST", f"{PODS}/web/binding", binding(uid="another")))["code"] == 409


async def test_the_grace_period_of_a_pod_on_a_node_can_be_shortened_but_not_extended(api: Caller) -> None:
    await api.create(PODS, pod(node="n1", grace=7))
    deleted = await api.delete(f"{PODS}/web")
    assert deleted["metadata"]["deletionGracePeriodSeconds"] == 7
    shorter = await api.delete(f"{PODS}/web", gracePeriodSeconds="1")
    assert shorter["metadata"]["deletionGracePeriodSeconds"] == 1
    longer = await api.delete(f"{PODS}/web", {"gracePeriodSeconds": 30})
    assert longer["metadata"]["deletionGracePeriodSeconds"] == 1
    await api.delete(f"{PODS}/web", {"gracePeriodSeconds": 0})  # as the kubelet does in the end
    assert await api.names(PODS) == []


@pytest.mark.parametrize("phase", ["", "Succeeded", "Failed"])
async def test_a_pod_that_does_not_run_is_deleted_at_once(api: Caller, phase: str) -> None:
    await api.create(PODS, pod(node="n1" if phase else ""))
    if phase:
        await api.patch(f"{PODS}/web/status", {"status": {"phase": phase}})
    last = await api.delete(f"{PODS}/web")
    assert last["metadata"]["name"] == "web"
    assert await api.names(PODS) == []


def resources(memory: str, **more: str) -> dict[str, Any]:
    return {"limits": {"memory": memory, "hugepages-2Mi": "4Mi", **more}, "requests": {"memory": "64Mi", **more}}


def resized(memory: str, **more: str) -> dict[str, Any]:
    return {
        "spec": {"containers": [{"name": "main", "resources": resources(memory, **more)}], "restartPolicy": "Never"}
    }


async def test_a_resize_changes_the_resources_of_containers_and_nothing_else(api: Caller) -> None:
    small = pod(node="n1")
    small["spec"]["containers"][0]["resources"] = resources("128Mi")
    await api.create(PODS, small)
    assert (await api.refused("PATCH", f"{PODS}/web", resized("256Mi"), "strategic"))["code"] == 422
    found = await api.patch(f"{PODS}/web/resize", resized("256Mi"), "strategic")
    (container,) = found["spec"]["containers"]
    assert container["resources"]["limits"] == {"memory": "256Mi", "hugepages-2Mi": "4Mi"}
    assert (container["image"], found["spec"]["restartPolicy"]) == ("example", "Always")


@pytest.mark.parametrize(
    "change, reason",
    [
        (resized("256Mi", **{"hugepages-1Gi": "1Gi"}), "only cpu and memory resources are mutable"),
        (resized("64Mi", cpu="1"), "Pod QOS Class may not change as a result of resizing"),
        (resized("32Mi"), "must be at most the memory limit of 32Mi"),
    ],
)
async def test_a_resize_changes_memory_and_cpu_time_within_a_quality_of_service(
    api: Caller, change: dict[str, Any], reason: str
) -> None:
    small = pod(node="n1")
    small["spec"]["containers"][0]["resources"] = resources("128Mi")
    await api.create(PODS, small)
    assert reason in (await api.refused("PATCH", f"{PODS}/web/resize", change, "strategic"))["message"]


async def test_logs_are_those_of_the_requested_container(api: Caller) -> None:
    two = pod()
    two["spec"]["containers"].append({"name": "side", "image": "example"})
    await api.create(PODS, two)
    assert "no node serves logs" in (await api.refused("GET", f"{PODS}/web/log", container="main"))["message"]
    api.server.logs = lambda namespace, name, container: f"{namespace}/{name}/{container}\nsecond\nthird\n"
    assert (await api.call("GET", f"{PODS}/web/log", container="side")).body == "default/web/side\nsecond\nthird\n"
    assert (await api.call("GET", f"{PODS}/web/log", container="side", tailLines="1")).body == "third\n"
    unclear = await api.refused("GET", f"{PODS}/web/log")
    assert unclear["message"] == "a container name must be specified for pod web, choose one of: [main side]"
    unknown = await api.refused("GET", f"{PODS}/web/log", container="x")
    assert unknown["message"] == "container x is not valid for pod web"
    assert (await api.refused("GET", f"{PODS}/none/log", container="x"))["code"] == 404


async def test_logs_are_followed_until_the_pod_has_finished(api: Caller) -> None:
    await api.create(PODS, pod(node="n1"))
    lines = ["one\n"]
    api.server.logs = lambda namespace, name, container: "".join(lines)
    async with api.session.get(f"{PODS}/web/log", params={"follow": "true"}) as answer:
        assert await answer.content.readline() == b"one\n"
        lines.append("two\n")
        assert await answer.content.readline() == b"two\n"
        await api.patch(f"{PODS}/web/status", {"status": {"phase": "Succeeded"}})
        async with asyncio.timeout(10):
            assert await answer.content.read() == b""
