"""Builds the status that the kubelet writes to a pod, without I/O."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from dracpu_sandbox.node.pods import ContainerSpec, Phase, Pod, Run, Runs
from dracpu_sandbox.resources import JsonObject, conditions_of

RESIZING: Final = "PodResizeInProgress"
PINNED: Final = "sandbox.dra.cpu/Pinned"
_CREATING: Final = "ContainerCreating"


@dataclass(frozen=True, slots=True)
class Seen:
    """The state of a pod when the kubelet writes its status."""

    phase: Phase
    runs: Runs
    cpus: Mapping[str, str]  # of running containers, by name
    health: Mapping[str, Sequence[JsonObject]]  # by container: allocatedResourcesStatus
    has_sandbox: bool
    node_ip: str
    pod_ip: str
    now: str
    resources: Mapping[str, JsonObject] = field(default_factory=dict)  # of running containers, by name
    resize_problem: str = ""  # why the resources cannot become those of the spec


def status_of(pod: Pod, seen: Seen) -> JsonObject:
    """Returns a strategic merge patch of the status. It keeps conditions of other writers and transition times."""
    init = [container for container in pod.containers if container.is_init]
    main = [container for container in pod.containers if not container.is_init]
    over = seen.phase in ("Succeeded", "Failed")
    initialized = all(_initialized(container, seen.runs.get(container.name, Run())) for container in init)
    ready = not over and not pod.deleted and _all_run(main, seen)
    unready = "PodCompleted" if seen.phase == "Succeeded" else "PodFailed" if over else "ContainersNotReady"
    pinned = ", ".join(f"{name}: {cpus}" for name, cpus in seen.cpus.items())
    conditions = [
        _condition("PodReadyToStartContainers", seen.has_sandbox),
        _condition("Initialized", initialized, "PodCompleted" if seen.phase == "Succeeded" else ""),
        _condition("ContainersReady", ready, "" if ready else unready),
        _condition("Ready", ready, "" if ready else unready),
        _condition(PINNED, bool(pinned), "Running" if pinned else "NothingRuns", pinned),
    ]
    former = conditions_of(pod.object)
    if seen.resize_problem:
        conditions.append(_condition(RESIZING, True, "Error", seen.resize_problem))
    status: JsonObject = {
        "phase": seen.phase,
        "conditions": [_turned(condition, former.get(condition["type"]), seen.now) for condition in conditions],
        "hostIP": seen.node_ip,
        "hostIPs": [{"ip": seen.node_ip}],
        "startTime": pod.status.get("startTime") or seen.now,
        "containerStatuses": [_container_status(container, seen) for container in main],
    }
    if RESIZING in former and not seen.resize_problem:
        status["conditions"].append({"type": RESIZING, "$patch": "delete"})
    if init:
        status["initContainerStatuses"] = [_container_status(container, seen) for container in init]
    if seen.has_sandbox:
        status |= {"podIP": seen.pod_ip, "podIPs": [{"ip": seen.pod_ip}]}
    return status


def refused_status(pod: Pod, refusal: tuple[str, str], now: str) -> JsonObject:
    """Returns the status of a pod that the kubelet does not take."""
    reason, message = refusal
    started = pod.status.get("startTime") or now
    return {"phase": "Failed", "reason": reason, "message": message, "startTime": started, "conditions": []}


def _initialized(container: ContainerSpec, run: Run) -> bool:
    return run.state == "running" if container.is_sidecar else run.state == "ended" and run.exit_code == 0


def _all_run(containers: Sequence[ContainerSpec], seen: Seen) -> bool:
    return all(seen.runs.get(container.name, Run()).state == "running" for container in containers)


def _condition(kind: str, true: bool, reason: str = "", message: str = "") -> JsonObject:
    made = {"type": kind, "status": "True" if true else "False", "reason": reason, "message": message}
    return {name: text for name, text in made.items() if text}


def _turned(condition: JsonObject, former: JsonObject | None, now: str) -> JsonObject:
    """Adds the transition time, and removes outdated fields, which a strategic merge patch would keep otherwise."""
    if former is None:
        return {**condition, "lastTransitionTime": now}
    same = former["status"] == condition["status"]
    outdated: JsonObject = {name: None for name in ("reason", "message") if name in former and name not in condition}
    return {**condition, **outdated, "lastTransitionTime": former.get("lastTransitionTime") if same else now}


def _container_status(container: ContainerSpec, seen: Seen) -> JsonObject:
    run = seen.runs.get(container.name, Run())
    waits = run.held is not None and seen.phase not in ("Succeeded", "Failed")
    last = run if waits and run.state == "ended" else run.last
    status: JsonObject = {
        "name": container.name,
        "image": container.image,
        "imageID": "",
        "restartCount": run.restarts,
        "ready": run.state == "running" if not container.is_init or container.is_sidecar else run.reason == "Completed",
        "started": run.state == "running",
        "state": _state(run, waits=waits),
        "lastState": {"terminated": _terminated(last)} if last is not None else {},
    }
    if run.id:
        status["containerID"] = f"containerd://{run.id}"
    if resources := seen.resources.get(container.name):
        status["resources"] = resources
        status["allocatedResources"] = resources.get("requests") or {}
    if seen.health.get(container.name):
        status["allocatedResourcesStatus"] = list(seen.health[container.name])
    return status


def _state(run: Run, *, waits: bool) -> JsonObject:
    if run.state == "running":
        return {"running": {"startedAt": run.since}}
    if run.state == "ended" and not waits:
        return {"terminated": _terminated(run)}
    reason, message = run.held or (_CREATING, "")
    return {"waiting": {"reason": reason, **({"message": message} if message else {})}}


def _terminated(run: Run) -> JsonObject:
    return {
        "exitCode": run.exit_code,
        "reason": run.reason,
        "startedAt": run.since,
        "finishedAt": run.ended,
        "containerID": f"containerd://{run.id}",
    }
