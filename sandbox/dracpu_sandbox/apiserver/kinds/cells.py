"""What `kubectl get` shows of built-in objects where one field does not tell it."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, Final

from dracpu_sandbox.apiserver.kinds import ages
from dracpu_sandbox.apiserver.kinds.model import JsonObject

NONE: Final = "<none>"
UNKNOWN: Final = "<unknown>"
_ROLE: Final = "node-role.kubernetes.io/"


def at(*names: str, otherwise: object = "") -> Callable[[JsonObject], object]:
    """A cell that shows the field at a path of names."""

    def cell(item: JsonObject) -> object:
        value = dig(item, *names)
        return otherwise if value in (None, "") else value

    return cell


def dig(item: Any, *names: str) -> Any:
    """The value at a path of field names; None when there is none."""
    for name in names:
        if not isinstance(item, dict):
            return None
        item = item.get(name)
    return item


def size(*names: str) -> Callable[[JsonObject], object]:
    """A cell that counts the entries at a path."""
    return lambda item: str(len(dig(item, *names) or ()))


# pods


def pod_ready(pod: JsonObject) -> str:
    """READY: containers that are ready of those there are."""
    started = [one for one in _init_containers(pod) if one.get("restartPolicy") == "Always"]
    wanted = len(dig(pod, "spec", "containers") or ()) + len(started)
    sidecars = {one["name"] for one in started}
    statuses = [one for one in _statuses(pod, "initContainerStatuses") if one["name"] in sidecars]
    ready = sum(bool(one.get("ready")) for one in [*_statuses(pod, "containerStatuses"), *statuses])
    return f"{ready}/{wanted}"


def pod_status(pod: JsonObject) -> str:
    """STATUS: the phase, or what keeps the pod from it."""
    shown = str(dig(pod, "status", "reason") or dig(pod, "status", "phase") or "")
    gated = [
        one for one in _conditions(pod) if one["type"] == "PodScheduled" and one.get("reason") == "SchedulingGated"
    ]
    if gated:
        shown = "SchedulingGated"
    initializing = _initializing(pod)
    shown = initializing or _containers_reason(pod, shown)
    if dig(pod, "metadata", "deletionTimestamp"):
        finished = dig(pod, "status", "phase") in {"Succeeded", "Failed"}
        return shown if finished else "Terminating"
    return shown


def _initializing(pod: JsonObject) -> str:
    """What its first unfinished init container does; "" when all are done."""
    containers = _init_containers(pod)
    sidecars = {one["name"] for one in containers if one.get("restartPolicy") == "Always"}
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
        return f"Init:{number}/{len(containers)}"
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
        is_ready = any(one["type"] == "Ready" and one.get("status") == "True" for one in _conditions(pod))
        return "Running" if is_ready else "NotReady"
    return shown


def _ending(ended: JsonObject) -> str:
    if ended.get("reason"):
        return str(ended["reason"])
    return f"Signal:{ended['signal']}" if ended.get("signal") else f"ExitCode:{ended.get('exitCode', 0)}"


def pod_restarts(pod: JsonObject) -> str:
    """RESTARTS: how often, and when the last was."""
    statuses = _statuses(pod, "containerStatuses")
    count = sum(one.get("restartCount", 0) for one in statuses)
    ends = [dig(one, "lastState", "terminated", "finishedAt") for one in statuses]
    last = max((end for end in ends if end), default=None)
    return f"{count} ({ages.since(last, datetime.now(UTC))} ago)" if count and last else str(count)


def pod_ip(pod: JsonObject) -> str:
    """IP, of the first family."""
    return str(next((one["ip"] for one in dig(pod, "status", "podIPs") or ()), NONE))


def pod_gates(pod: JsonObject) -> str:
    """READINESS GATES: those that are fulfilled of those there are."""
    gates = {one["conditionType"] for one in dig(pod, "spec", "readinessGates") or ()}
    if not gates:
        return NONE
    met = sum(one["type"] in gates and one.get("status") == "True" for one in _conditions(pod))
    return f"{met}/{len(gates)}"


def _init_containers(pod: JsonObject) -> list[JsonObject]:
    return dig(pod, "spec", "initContainers") or []


def _statuses(pod: JsonObject, name: str) -> list[JsonObject]:
    return dig(pod, "status", name) or []


def _conditions(item: JsonObject) -> list[JsonObject]:
    return dig(item, "status", "conditions") or []


# nodes


def node_status(node: JsonObject) -> str:
    """STATUS: Ready or not, and whether pods may come."""
    ready = next((one.get("status") for one in _conditions(node) if one["type"] == "Ready"), None)
    shown = "Unknown" if ready is None else ("Ready" if ready == "True" else "NotReady")
    return f"{shown},SchedulingDisabled" if dig(node, "spec", "unschedulable") else shown


def node_roles(node: JsonObject) -> str:
    """ROLES, from the labels."""
    labels: dict[str, str] = dig(node, "metadata", "labels") or {}
    roles = {label.removeprefix(_ROLE) for label in labels if label.startswith(_ROLE)}
    if labels.get("kubernetes.io/role"):
        roles.add(labels["kubernetes.io/role"])
    return ",".join(sorted(role for role in roles if role)) or NONE


def node_address(kind: str) -> Callable[[JsonObject], object]:
    """INTERNAL-IP and EXTERNAL-IP."""

    def cell(node: JsonObject) -> object:
        addresses = dig(node, "status", "addresses") or ()
        return next((one["address"] for one in addresses if one["type"] == kind), NONE)

    return cell


def node_info(name: str) -> Callable[[JsonObject], object]:
    """What the kubelet says of its machine."""
    return at("status", "nodeInfo", name, otherwise=UNKNOWN)


def node_kernel(node: JsonObject) -> str:
    """KERNEL-VERSION, and for which processors it is."""
    info = dig(node, "status", "nodeInfo") or {}
    architecture = f" ({info['architecture']})" if info.get("architecture") else ""
    return f"{info.get('kernelVersion') or UNKNOWN}{architecture}"


# claims, events, bindings, services


def claim_state(claim: JsonObject) -> str:
    """STATE: pending, allocated, reserved, deleted."""
    status = claim.get("status") or {}
    states = [
        *(["deleted"] if dig(claim, "metadata", "deletionTimestamp") else []),
        *(["allocated"] if status.get("allocation") else []),
        *(["reserved"] if status.get("reservedFor") else []),
    ]
    return ",".join(states) if "allocated" in states or "deleted" in states else "pending"


def event_object(event: JsonObject) -> str:
    """OBJECT: what the event is about."""
    about = event.get("involvedObject") or {}
    kind = str(about.get("kind", "")).lower()
    return f"{kind}/{about.get('name', '')}" if kind else str(about.get("name", ""))


def event_source(event: JsonObject) -> str:
    """SOURCE: who tells it, and where."""
    source = event.get("source") or {}
    parts = (
        source.get("component") or event.get("reportingComponent"),
        source.get("host") or event.get("reportingInstance"),
    )
    return ", ".join(part for part in parts if part)


def event_last(event: JsonObject) -> object:
    """When it was seen the last time."""
    return dig(event, "series", "lastObservedTime") or event.get("lastTimestamp") or _event_first(event)


def event_first(event: JsonObject) -> object:
    """When it was seen first."""
    return _event_first(event)


def event_count(event: JsonObject) -> str:
    """How often it was seen."""
    return str(dig(event, "series", "count") or event.get("count") or 1)


def _event_first(event: JsonObject) -> object:
    return event.get("firstTimestamp") or event.get("eventTime") or dig(event, "metadata", "creationTimestamp")


def binding_role(binding: JsonObject) -> str:
    """ROLE, as kind and name."""
    return f"{dig(binding, 'roleRef', 'kind')}/{dig(binding, 'roleRef', 'name')}"


def binding_subjects(kind: str) -> Callable[[JsonObject], object]:
    """USERS, GROUPS and SERVICEACCOUNTS."""

    def cell(binding: JsonObject) -> object:
        chosen: Iterable[JsonObject] = (one for one in binding.get("subjects") or () if one.get("kind") == kind)
        return ", ".join(f"{one['namespace']}/{one['name']}" if "namespace" in one else one["name"] for one in chosen)

    return cell


def service_ports(service: JsonObject) -> str:
    """PORT(S)."""
    ports = dig(service, "spec", "ports") or ()
    return ",".join(f"{one['port']}/{one.get('protocol', 'TCP')}" for one in ports) or NONE


def policy_param(policy: JsonObject) -> str:
    """PARAMKIND of an admission policy."""
    param = dig(policy, "spec", "paramKind")
    return f"{param['apiVersion']}/{param['kind']}" if param else "<unset>"


def binding_param(binding: JsonObject) -> str:
    """PARAMREF of a policy's binding."""
    param = dig(binding, "spec", "paramRef")
    return f"{param.get('namespace', '*')}/{param.get('name', '*')}" if param else "<unset>"
