"""The cells of `kubectl get` that are computed from several fields of a built-in object."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from dracpu_sandbox.apiserver.kinds import ages
from dracpu_sandbox.apiserver.kinds.kind import JsonObject

NONE: Final = "<none>"
UNKNOWN: Final = "<unknown>"
_ROLE: Final = "node-role.kubernetes.io/"


def field_at(*names: str, otherwise: object = "") -> Callable[[JsonObject], object]:
    """Returns a cell that shows the field at a path of names."""

    def cell(item: JsonObject) -> object:
        value = dig(item, *names)
        return otherwise if value in (None, "") else value

    return cell


def dig(item: Any, *names: str) -> Any:
    """Returns the value at a path of field names; None when it does not exist."""
    for name in names:
        if not isinstance(item, dict):
            return None
        item = item.get(name)
    return item


def config_map_size(config_map: JsonObject) -> str:
    """Renders DATA: the number of entries."""
    return str(len(config_map.get("data") or ()) + len(config_map.get("binaryData") or ()))


def daemon_set_selector(daemon_set: JsonObject) -> str:
    """Renders NODE SELECTOR."""
    labels = dig(daemon_set, "spec", "template", "spec", "nodeSelector") or {}
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items())) or NONE


def daemon_set_containers(field: str) -> Callable[[JsonObject], str]:
    """Returns a cell that shows a field of the containers."""

    def cell(daemon_set: JsonObject) -> str:
        containers = dig(daemon_set, "spec", "template", "spec", "containers") or ()
        return ",".join(str(container.get(field, "")) for container in containers)

    return cell


# pods


def pod_ready(pod: JsonObject) -> str:
    """Renders READY: the numbers of ready containers and of all containers."""
    sidecars = _sidecars(pod)
    count = len(dig(pod, "spec", "containers") or ()) + len(sidecars)
    statuses = [status for status in _statuses(pod, "initContainerStatuses") if status["name"] in sidecars]
    ready = sum(bool(status.get("ready")) for status in [*_statuses(pod, "containerStatuses"), *statuses])
    return f"{ready}/{count}"


def pod_status(pod: JsonObject) -> str:
    """Renders STATUS: the phase, or the reason why the pod does not run."""
    shown = str(dig(pod, "status", "reason") or dig(pod, "status", "phase") or "")
    if any(condition.get("reason") == "SchedulingGated" for condition in _conditions(pod)):
        shown = "SchedulingGated"
    shown = _initializing(pod) or _containers_reason(pod, shown)
    if dig(pod, "metadata", "deletionTimestamp"):
        finished = dig(pod, "status", "phase") in {"Succeeded", "Failed"}
        return shown if finished else "Terminating"
    return shown


def _initializing(pod: JsonObject) -> str:
    """Renders the state of the first init container that has not finished; "" when all have finished."""
    sidecars = _sidecars(pod)
    for number, status in enumerate(_statuses(pod, "initContainerStatuses")):
        ended, waits = dig(status, "state", "terminated"), dig(status, "state", "waiting")
        if ended is not None and ended.get("exitCode") == 0:
            continue
        if status["name"] in sidecars and status.get("started"):
            continue
        if ended is not None:
            return f"Init:{_ending(ended)}"
        if waits is not None and waits.get("reason") not in {None, "", "PodInitializing"}:
            return f"Init:{waits['reason']}"
        return f"Init:{number}/{len(_init_containers(pod))}"
    return ""


def _containers_reason(pod: JsonObject, otherwise: str) -> str:
    shown, running = otherwise, False
    for status in reversed(_statuses(pod, "containerStatuses")):
        ended, waits = dig(status, "state", "terminated"), dig(status, "state", "waiting")
        if waits is not None and waits.get("reason"):
            shown = waits["reason"]
        elif ended is not None:
            shown = _ending(ended)
        elif status.get("ready") and dig(status, "state", "running") is not None:
            running = True
    if shown == "Completed" and running:
        is_ready = any(condition["type"] == "Ready" and _is_true(condition) for condition in _conditions(pod))
        return "Running" if is_ready else "NotReady"
    return shown


def _ending(ended: JsonObject) -> str:
    if ended.get("reason"):
        return str(ended["reason"])
    return f"Signal:{ended['signal']}" if ended.get("signal") else f"ExitCode:{ended.get('exitCode', 0)}"


def pod_restarts(pod: JsonObject) -> str:
    """Renders RESTARTS: the number of restarts, and the time since the last restart."""
    statuses = _statuses(pod, "containerStatuses")
    count = sum(status.get("restartCount", 0) for status in statuses)
    ends = [dig(status, "lastState", "terminated", "finishedAt") for status in statuses]
    last = max((end for end in ends if end), default=None)
    return f"{count} ({ages.age(last, datetime.now(UTC))} ago)" if count and last else str(count)


def pod_ip(pod: JsonObject) -> str:
    """Renders IP: the address of the first family."""
    return str(next((address["ip"] for address in dig(pod, "status", "podIPs") or ()), NONE))


def _init_containers(pod: JsonObject) -> list[JsonObject]:
    return dig(pod, "spec", "initContainers") or []


def _sidecars(pod: JsonObject) -> set[str]:
    """Returns the names of the init containers that keep running."""
    return {container["name"] for container in _init_containers(pod) if container.get("restartPolicy") == "Always"}


def _statuses(pod: JsonObject, name: str) -> list[JsonObject]:
    return dig(pod, "status", name) or []


def _conditions(item: JsonObject) -> list[JsonObject]:
    return dig(item, "status", "conditions") or []


def _is_true(condition: JsonObject) -> bool:
    return condition.get("status") == "True"


# nodes


def node_status(node: JsonObject) -> str:
    """Renders STATUS: whether the node is ready, and whether it accepts pods."""
    ready = next((condition for condition in _conditions(node) if condition["type"] == "Ready"), None)
    shown = "Unknown" if ready is None else ("Ready" if _is_true(ready) else "NotReady")
    return f"{shown},SchedulingDisabled" if dig(node, "spec", "unschedulable") else shown


def node_roles(node: JsonObject) -> str:
    """Renders ROLES, from the labels."""
    labels: dict[str, str] = dig(node, "metadata", "labels") or {}
    roles = {label.removeprefix(_ROLE) for label in labels if label.startswith(_ROLE)}
    if labels.get("kubernetes.io/role"):
        roles.add(labels["kubernetes.io/role"])
    return ",".join(sorted(role for role in roles if role)) or NONE


def node_address(kind: str) -> Callable[[JsonObject], object]:
    """Returns the cell for INTERNAL-IP or EXTERNAL-IP."""

    def cell(node: JsonObject) -> object:
        addresses = dig(node, "status", "addresses") or ()
        return next((address["address"] for address in addresses if address["type"] == kind), NONE)

    return cell


def node_info(name: str) -> Callable[[JsonObject], object]:
    """Returns the cell for a field of nodeInfo, in which the kubelet describes its machine."""
    return field_at("status", "nodeInfo", name, otherwise=UNKNOWN)


def node_kernel(node: JsonObject) -> str:
    """Renders KERNEL-VERSION, with the architecture."""
    info = dig(node, "status", "nodeInfo") or {}
    architecture = f" ({info['architecture']})" if info.get("architecture") else ""
    return f"{info.get('kernelVersion') or UNKNOWN}{architecture}"


# claims, events


def claim_state(claim: JsonObject) -> str:
    """Renders STATE: pending, allocated, reserved, deleted."""
    status = claim.get("status") or {}
    states = [
        *(["deleted"] if dig(claim, "metadata", "deletionTimestamp") else []),
        *(["allocated"] if status.get("allocation") else []),
        *(["reserved"] if status.get("reservedFor") else []),
    ]
    return ",".join(states) if "allocated" in states or "deleted" in states else "pending"


def event_object(event: JsonObject) -> str:
    """Renders OBJECT: the object that the event is about."""
    about = event.get("involvedObject") or {}
    kind = str(about.get("kind", "")).lower()
    return f"{kind}/{about.get('name', '')}" if kind else str(about.get("name", ""))


def event_source(event: JsonObject) -> str:
    """Renders SOURCE: the component that reported the event, and its host."""
    source = event.get("source") or {}
    parts = (
        source.get("component") or event.get("reportingComponent"),
        source.get("host") or event.get("reportingInstance"),
    )
    return ", ".join(part for part in parts if part)


def event_last(event: JsonObject) -> object:
    """Returns the time for LAST SEEN, that of the last occurrence."""
    return dig(event, "series", "lastObservedTime") or event.get("lastTimestamp") or event_first(event)


def event_first(event: JsonObject) -> object:
    """Returns the time for FIRST SEEN, that of the first occurrence."""
    return event.get("firstTimestamp") or event.get("eventTime") or dig(event, "metadata", "creationTimestamp")


def event_count(event: JsonObject) -> str:
    """Renders COUNT: the number of occurrences."""
    return str(dig(event, "series", "count") or event.get("count") or 1)
