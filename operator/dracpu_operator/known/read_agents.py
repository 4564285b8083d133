"""Turns the agents' pods and their DaemonSet into records. Pure.

The messages are the words of the kubelet and of the scheduler. A pod that crashes, or whose image is missing, goes
through several states in turn. They get one reason, because each new reason would be written into the CpuNode.
"""

from collections.abc import Sequence
from datetime import timedelta
from sys import intern
from typing import Final

from dracpu_api.conditions import AgentReason
from dracpu_api.resources import Json, resource_version
from dracpu_operator.decide.records import Agent, AgentPod, DaemonSet
from dracpu_operator.decide.times import TIME_FORMAT, time_of

# also in every pod of the chart's DaemonSet; the name of the release is not known here
AGENT_LABELS: Final = "app.kubernetes.io/name=dra-cpu-operator,app.kubernetes.io/component=agent"

_MESSAGE_LENGTH: Final = 512  # 15,000 pods may have one
_QUOTED: Final = 300  # of what a container has printed last
_RESTARTS: Final = 2  # from this number on, a container that ends again and again is in a crash loop
_LONGEST_GRACE: Final = 10_000_000  # seconds, of the end of a pod
_LONG_AGO: Final = "1970-01-01T00:00:00Z"
_CRASH_LOOP: Final = "CrashLoopBackOff"
_NO_IMAGE: Final = "ImagePullBackOff"
_SAME_REASON: Final = {"ErrImagePull": _NO_IMAGE}
_NODE_LOST: Final = "NodeLost"
_LOST: Final = "the kubelet of this node no longer reports: the node is off, or cut off from the API server"
_READY: Final = "the agent's pod is ready"
_CREATING: Final = "the kubelet is starting the pod; kubectl describe pod lists its Events"


def read_agent(raw: Json) -> AgentPod:
    """Reads a pod of the agents."""
    metadata, status = raw["metadata"], raw.get("status") or {}
    phase, deleted = status.get("phase"), metadata.get("deletionTimestamp")
    # each text is kept once: most pods become ready in the same seconds
    node, uid, version = intern(_node(raw.get("spec") or {})), metadata["uid"], resource_version(raw)
    created = metadata.get("creationTimestamp") or _LONG_AGO
    condition = _condition(status, "Ready")
    ready = condition.get("status") == "True" and not deleted
    containers = _containers(status)
    is_lost = not ready and _is_lost(status, condition, containers)
    since = condition.get("lastTransitionTime") or created
    if deleted and condition.get("status") == "True":
        since = _deletion_requested(metadata)
    if ready:
        reason, message = str(AgentReason.READY), _READY
    else:
        reason, message = _why(metadata, status, since, is_lost=is_lost)
    running = not is_lost and any("running" in (container.get("state") or {}) for container in containers)
    return AgentPod(
        name=metadata["name"],
        uid=uid,
        version=version,
        node=node,
        created=intern(created),
        ending=bool(deleted) or phase in {"Failed", "Succeeded"},
        agent=Agent(node, uid, version, ready, running, intern(reason), message[:_MESSAGE_LENGTH], intern(since)),
    )


def read_daemon_set(raw: Json) -> DaemonSet:
    """Reads a DaemonSet of the agents."""
    metadata, status = raw["metadata"], raw.get("status") or {}
    has_counted = status.get("observedGeneration", 0) >= metadata.get("generation", 0)
    desired = status.get("desiredNumberScheduled", 0) if has_counted else None
    return DaemonSet(metadata["name"], metadata["uid"], resource_version(raw), desired)


def _node(spec: Json) -> str:
    """The node of a pod. The controller of DaemonSets names it in the affinity, the scheduler in `nodeName`."""
    if spec.get("nodeName"):
        return str(spec["nodeName"])
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            if field.get("key") == "metadata.name" and field.get("operator") == "In" and field.get("values"):
                return str(field["values"][0])
    return ""


def _why(metadata: Json, status: Json, since: str, *, is_lost: bool) -> tuple[str, str]:
    """The reason why a pod is not ready, and words about it."""
    if is_lost:
        return _NODE_LOST, str(status.get("message") or _LOST)
    if metadata.get("deletionTimestamp"):
        return "Terminating", "the agent's pod is being deleted"
    if status.get("phase") in {"Failed", "Succeeded"} and status.get("reason"):  # such as Evicted, OutOfcpu
        return str(status["reason"]), str(status.get("message") or f"the pod has the phase {status['phase']}")
    scheduled = _condition(status, "PodScheduled")
    if scheduled.get("status") == "False":
        return str(scheduled.get("reason") or "Unschedulable"), str(scheduled.get("message") or "no node fits")
    for container in _containers(status):
        if not container.get("ready"):
            return _container(container, since)
    condition = _condition(status, "Ready")
    return str(condition.get("reason") or status.get("phase") or "Pending"), str(condition.get("message") or _CREATING)


def _container(container: Json, since: str) -> tuple[str, str]:
    name, state = container.get("name"), container.get("state") or {}
    waiting, ended = state.get("waiting"), state.get("terminated")
    last = ended or (container.get("lastState") or {}).get("terminated") or {}
    restarts = container.get("restartCount") or 0
    words = str((waiting or {}).get("message") or "")
    if last and (last.get("finishedAt") or "") >= since:
        end = f"container {name} has ended {_how(last)}"
        again = restarts >= _RESTARTS or (waiting or {}).get("reason") == _CRASH_LOOP
        if again:
            end = f"container {name} has been restarted {restarts} times and has ended the last time {_how(last)}"
        if again or ended:
            reason = _CRASH_LOOP if again else str(last.get("reason") or "Error")
            return reason, "; ".join(filter(None, (words, end)))
    if waiting:
        reason = str(waiting.get("reason") or "Waiting")
        return _SAME_REASON.get(reason, reason), words or _CREATING
    if ended:
        return str(ended.get("reason") or "Error"), f"container {name} has ended {_how(ended)}"
    return "NotReady", f"container {name} runs, but its readiness probe fails: kubectl logs prints why"


def _how(ended: Json) -> str:
    how = f"with exit code {ended.get('exitCode')} ({ended.get('reason') or 'Error'})"
    printed = str(ended.get("message") or "").strip()
    return f"{how}: {printed[-_QUOTED:]}" if printed else how  # the cause is at the end


def _is_lost(status: Json, ready: Json, containers: Sequence[Json]) -> bool:
    """Whether the controller of nodes has set the pod to not ready because the kubelet does not report any more: it
    leaves what the kubelet has reported about the containers."""
    if status.get("reason") == _NODE_LOST:
        return True
    if ready.get("status") != "False" or ready.get("reason") == "ReadinessGatesNotReady":
        return False
    return bool(containers) and all(found.get("ready") for found in containers)


def _containers(status: Json) -> list[Json]:
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def _condition(status: Json, kind: str) -> Json:
    return next((found for found in status.get("conditions") or () if found.get("type") == kind), {})


def _deletion_requested(metadata: Json) -> str:
    """When the pod began to end: its deletionTimestamp is at the end of its grace period."""
    ends = time_of(metadata["deletionTimestamp"])
    grace = timedelta(seconds=min(metadata.get("deletionGracePeriodSeconds") or 0, _LONGEST_GRACE))
    return "" if ends is None else (ends - grace).strftime(TIME_FORMAT)
