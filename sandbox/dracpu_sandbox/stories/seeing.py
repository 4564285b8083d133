"""Reads the facts that a user would look up with kubectl: why a pod does not run, and which devices a node offers."""

from typing import Final

from dracpu_api.names import CAPACITY_CPU, DRIVER
from dracpu_sandbox.client import KubeClient
from dracpu_sandbox.resources import EVENTS, SLICES, JsonObject, conditions_of

_NO_REASON: Final = ("ContainerCreating", "PodInitializing")  # these reasons do not explain why a container waits


async def devices_of(client: KubeClient, node: str) -> dict[str, int]:
    """Returns the devices of CPUs that a node offers to new claims, each with its number of CPUs."""
    slices = [item["spec"] for item in await client.list(SLICES, fields=f"spec.nodeName={node}")]
    devices = [device for spec in slices if spec["driver"] == DRIVER for device in spec.get("devices") or ()]
    found = [device for device in devices if not device.get("taints")]
    return {device["name"]: _cpus(device) for device in sorted(found, key=lambda device: str(device["name"]))}


def _cpus(device: JsonObject) -> int:
    return int(device["capacity"][CAPACITY_CPU]["value"]) if device.get("capacity") else 1


async def pod_seen(client: KubeClient, pod: JsonObject | None, name: str) -> str:
    """Returns why a pod waits: from its condition, its container's status, or its last Event."""
    if pod is None:
        return f"pod {name} does not exist"
    reason = _scheduling(pod) or _waiting(pod) or await _last_event(client, pod)
    return reason or f"its phase is {(pod.get('status') or {}).get('phase') or 'unknown'}"


def _scheduling(pod: JsonObject) -> str:
    scheduled = conditions_of(pod).get("PodScheduled", {})
    return scheduled.get("message") or "" if scheduled.get("status") == "False" else ""


def _waiting(pod: JsonObject) -> str:
    for container in (pod.get("status") or {}).get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting")
        if waiting and waiting.get("reason") not in _NO_REASON:
            return f"{waiting.get('reason')}: {waiting.get('message', '')}"
    return ""


async def _last_event(client: KubeClient, pod: JsonObject) -> str:
    listed = await client.list(EVENTS, pod["metadata"]["namespace"])
    about = [
        event
        for event in listed
        if (event.get("regarding") or {}).get("uid") == pod["metadata"]["uid"] and event.get("type") == "Warning"
    ]
    if not about:
        return ""
    last = max(about, key=lambda event: int(event["metadata"]["resourceVersion"]))
    return f"{last.get('reason')}: {last.get('note', '')}"
