"""Which nodes a pod may run on, but for devices: selectors, taints, room."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Final

from dracpu_sandbox.cel.quantity import Quantity
from dracpu_sandbox.resources import JsonObject

Room = Mapping[str, Fraction]  # amounts by resource name

UNSCHEDULABLE_TAINT: Final = "node.kubernetes.io/unschedulable"
_MOST_PODS: Final = Fraction(110)  # the kubelet's default
_ACCOUNTED: Final = ("cpu", "memory", "ephemeral-storage")


def refusal(pod: JsonObject, node: JsonObject, used: Room) -> str:
    """Why the pod cannot run there, in the words of kube-scheduler; "" when it can."""
    spec = node.get("spec") or {}
    taints = list(spec.get("taints") or ())
    if spec.get("unschedulable"):
        cordon = {"key": UNSCHEDULABLE_TAINT, "effect": "NoSchedule"}
        if not tolerated(cordon, pod["spec"].get("tolerations") or ()):
            return "node(s) were unschedulable"
        taints = [one for one in taints if one["key"] != UNSCHEDULABLE_TAINT]
    keeping_away = (one for one in taints if one["effect"] in {"NoSchedule", "NoExecute"})
    if not all(tolerated(one, pod["spec"].get("tolerations") or ()) for one in keeping_away):
        return "node(s) had untolerated taint(s)"
    if not _selected(pod["spec"], node):
        return "node(s) didn't match Pod's node affinity/selector"
    return _lacking(pod, node, used)


def tolerated(taint: Mapping[str, str], tolerations: Iterable[Mapping[str, str]]) -> bool:
    """Whether one of the tolerations is for this taint; the same rule for nodes and for devices."""
    return any(_tolerates(one, taint) for one in tolerations)


def _tolerates(toleration: Mapping[str, str], taint: Mapping[str, str]) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return True
    return bool(toleration.get("key")) and toleration.get("value", "") == taint.get("value", "")


def _selected(spec: JsonObject, node: JsonObject) -> bool:
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return required is None or selector_matches(required, node)


def selector_matches(selector: JsonObject, node: JsonObject) -> bool:
    """Whether a NodeSelector is for this node: one of its terms with all requirements. An empty term is for none."""
    labels, fields = node["metadata"].get("labels") or {}, {"metadata.name": node["metadata"]["name"]}
    for term in selector.get("nodeSelectorTerms") or ():
        requirements = [(labels, one) for one in term.get("matchExpressions") or ()]
        requirements += [(fields, one) for one in term.get("matchFields") or ()]
        if requirements and all(_meets(values.get(one.get("key", "")), one) for values, one in requirements):
            return True
    return False


_OPERATORS: Final[Mapping[str, Callable[[str | None, Sequence[str]], bool]]] = {
    "In": lambda value, values: value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, values: value is not None,
    "DoesNotExist": lambda value, values: value is None,
    "Gt": lambda value, values: value is not None and value.isdecimal() and int(value) > int(values[0]),
    "Lt": lambda value, values: value is not None and value.isdecimal() and int(value) < int(values[0]),
}


def _meets(value: str | None, requirement: JsonObject) -> bool:
    """No node meets what cannot be read: an unknown operator, or "Gt" with no number."""
    meets = _OPERATORS.get(requirement.get("operator", ""))
    try:
        return meets is not None and meets(value, requirement.get("values") or ())
    except (IndexError, ValueError):
        return False


def requested(pod: JsonObject) -> dict[str, Fraction]:
    """What a pod asks of its node: containers together, or an init container alone when it asks for more."""
    spec = pod["spec"]
    total, peak = _sum(_asked(one) for one in spec.get("containers") or ()), dict[str, Fraction]()
    sidecars = dict[str, Fraction]()
    for one in spec.get("initContainers") or ():
        if one.get("restartPolicy") == "Always":  # runs on beside all that come after it
            sidecars = _sum((sidecars, _asked(one)))
            peak = _largest(peak, sidecars)
        else:
            peak = _largest(peak, _sum((sidecars, _asked(one))))
    needed = _largest(_sum((total, sidecars)), peak)
    needed.update(_asked(spec))  # resources of the pod as a whole
    return _sum((needed, _amounts(spec.get("overhead") or {})))


def _asked(body: JsonObject) -> dict[str, Fraction]:
    resources = body.get("resources") or {}
    return _amounts({**(resources.get("limits") or {}), **(resources.get("requests") or {})})


def _amounts(quantities: Mapping[str, str]) -> dict[str, Fraction]:
    return {name: Quantity.parse(text).number for name, text in quantities.items()}


def _sum(parts: Iterable[Room]) -> dict[str, Fraction]:
    total: dict[str, Fraction] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, Fraction(0)) + amount
    return total


def _largest(left: Room, right: Room) -> dict[str, Fraction]:
    zero = Fraction(0)
    return {name: max(left.get(name, zero), right.get(name, zero)) for name in {*left, *right}}


def add_pod(used: Room, pod: JsonObject) -> dict[str, Fraction]:
    """What is used of a node when this pod runs there too."""
    return _sum((used, requested(pod), {"pods": Fraction(1)}))


def allocatable(node: JsonObject) -> dict[str, Fraction]:
    """What a node has for pods."""
    status = node.get("status") or {}
    return _amounts(status.get("allocatable") or status.get("capacity") or {})


def _lacking(pod: JsonObject, node: JsonObject, used: Room) -> str:
    has, zero = allocatable(node), Fraction(0)
    if used.get("pods", zero) + 1 > has.get("pods", _MOST_PODS):
        return "Too many pods"
    for name, amount in requested(pod).items():
        unlimited = name in _ACCOUNTED and name not in has  # a node that says nothing has enough
        if amount > 0 and not unlimited and used.get(name, zero) + amount > has.get(name, zero):
            return f"Insufficient {name}"
    return ""
