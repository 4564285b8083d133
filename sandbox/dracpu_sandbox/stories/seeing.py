"""What a person would find out about a pod that does not run."""

from typing import Final

from dracpu_sandbox.client import KubeClient
from dracpu_sandbox.resources import EVENTS, JsonObject

_WORTHLESS: Final = ("ContainerCreating", "PodInitializing")  # reasons of waiting that do not say why


async def pod_seen(client: KubeClient, pod: JsonObject | None, name: str) -> str:
    """Why it waits: in the scheduler's words, in those about its container, or in its last Event's."""
    if pod is None:
        return f"there is no pod {name}"
    said = _scheduling(pod) or _waiting(pod) or await _last_event(client, pod)
    return said or f"its phase is {(pod.get('status') or {}).get('phase') or 'unknown'}"


def _scheduling(pod: JsonObject) -> str:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return next(
        (one.get("message") or "" for one in conditions if one["type"] == "PodScheduled" and one["status"] == "False"),
        "",
    )


def _waiting(pod: JsonObject) -> str:
    for one in (pod.get("status") or {}).get("containerStatuses") or ():
        waiting = (one.get("state") or {}).get("waiting")
        if waiting and waiting.get("reason") not in _WORTHLESS:
            return f"{waiting.get('reason')}: {waiting.get('message', '')}"
    return ""


async def _last_event(client: KubeClient, pod: JsonObject) -> str:
    listed = await client.list(EVENTS, pod["metadata"]["namespace"])
    about = [
        one
        for one in listed
        if (one.get("regarding") or {}).get("uid") == pod["metadata"]["uid"] and one.get("type") == "Warning"
    ]
    if not about:
        return ""
    last = max(about, key=lambda one: int(one["metadata"]["resourceVersion"]))
    return f"{last.get('reason')}: {last.get('note', '')}"
