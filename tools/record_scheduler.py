"""Asks kube-scheduler which devices claims get, for comparison with the allocations of the sandbox's scheduler."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from dra_objects import claim
from record_errors import RecordError
from recorded_answers import allocated, classes, lines, offered

JsonObject = dict[str, Any]
Call = Callable[..., Awaitable[JsonObject]]  # method, path, body: the document that answers

_DRA: Final = "/apis/resource.k8s.io/v1"
_CLAIMS: Final = f"{_DRA}/namespaces/default/resourceclaims"
_PODS: Final = "/api/v1/namespaces/default/pods"
_ROOM: Final = {"cpu": "64", "memory": "64Gi", "pods": "110"}
_DECIDED_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 0.1


async def answered(call: Call) -> list[JsonObject]:
    """The questions in scheduler.jsonl with the answers of this scheduler."""
    return [
        {**entry, "answer": await _ask(call, f"n{number}", entry)} for number, entry in enumerate(lines("scheduler"))
    ]


async def _ask(call: Call, node: str, question: JsonObject) -> JsonObject:
    """Gives the claims of a question to the scheduler, each with a pod; returns what the last one gets.

    Each question has a node of its own, so that devices of earlier ones do not count.
    """
    made = await call("POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})
    await call("PUT", f"/api/v1/nodes/{node}/status", {**made, "status": {"capacity": _ROOM, "allocatable": _ROOM}})
    slices = offered(question, node)
    for document in classes(question):
        await call("POST", f"{_DRA}/deviceclasses", document)
    for document in slices:
        await call("POST", f"{_DRA}/resourceslices", document)
    try:
        answer: JsonObject = {}
        for number, devices in enumerate(question["claims"]):
            answer = await _decision(call, f"{node}-{number}", devices)
        return answer
    finally:
        for document in slices:
            await call("DELETE", f"{_DRA}/resourceslices/{document['metadata']['name']}")
        for document in classes(question):
            await call("DELETE", f"{_DRA}/deviceclasses/{document['metadata']['name']}")
        await call("DELETE", f"/api/v1/nodes/{node}")


async def _decision(call: Call, name: str, devices: JsonObject) -> JsonObject:
    body = {**claim(name), "spec": {"devices": devices}}
    await call("POST", _CLAIMS, body)
    spec = {"containers": [{"name": "c", "image": "x"}], "resourceClaims": [{"name": "c", "resourceClaimName": name}]}
    await call("POST", _PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
    try:
        async with asyncio.timeout(_DECIDED_SECONDS):
            while True:
                pod = await call("GET", f"{_PODS}/{name}")
                for condition in pod["status"].get("conditions") or ():
                    if condition["type"] == "PodScheduled":
                        if condition["status"] != "True":
                            await call("DELETE", f"{_PODS}/{name}")
                            return {"waits": condition["reason"]}
                        return allocated((await call("GET", f"{_CLAIMS}/{name}"))["status"]["allocation"])
                await asyncio.sleep(_LOOK_SECONDS)
    except TimeoutError as error:
        raise RecordError(f"kube-scheduler has not decided about {name} within {_DECIDED_SECONDS:.0f} s") from error
