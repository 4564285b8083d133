"""Checks whether a pod may run on a node, apart from its devices: selectors, taints, resources."""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Final

from dracpu_sandbox.amounts import ZERO, Amounts, amounts, requested, total
from dracpu_sandbox.resources import JsonObject

_ONE_POD: Final[Amounts] = {"pods": Fraction(1)}


def refusal(pod: JsonObject, node: JsonObject, used: Amounts) -> str:
    """Returns why the pod cannot run on the node, with the text of kube-scheduler; "" if it can."""
    spec = node.get("spec") or {}
    if spec.get("unschedulable"):
        return "node(s) were unschedulable"
    if keeps_away(spec.get("taints") or (), pod["spec"].get("tolerations") or ()):
        return "node(s) had untolerated taint(s)"
    if not _selected(pod["spec"], node):
        return "node(s) didn't match Pod's node affinity/selector"
    return _lacking(pod, node, used)


def keeps_away(taints: Iterable[JsonObject], tolerations: Sequence[JsonObject]) -> bool:
    """Whether a taint is not tolerated; nodes and devices have the same rule."""
    return any(
        taint["effect"] in {"NoSchedule", "NoExecute"}
        and not any(_tolerates(toleration, taint) for toleration in tolerations)
        for taint in taints
    )


def _tolerates(toleration: JsonObject, taint: JsonObject) -> bool:
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
    """Whether a term of a NodeSelector matches the node with all its requirements. An empty term matches no node."""
    labels, fields = node["metadata"].get("labels") or {}, {"metadata.name": node["metadata"]["name"]}
    for term in selector.get("nodeSelectorTerms") or ():
        requirements = [(labels, requirement) for requirement in term.get("matchExpressions") or ()]
        requirements += [(fields, requirement) for requirement in term.get("matchFields") or ()]
        if requirements and all(
            _meets(values.get(requirement["key"]), requirement["operator"], requirement.get("values") or ())
            for values, requirement in requirements
        ):
            return True
    return False


def _meets(value: str | None, operator: str, values: Sequence[str]) -> bool:
    """Whether a value meets a requirement. The operators Gt and Lt are not supported: no node meets them."""
    match operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
    return operator == "DoesNotExist" and value is None


def add_pod(used: Amounts, pod: JsonObject) -> dict[str, Fraction]:
    """Returns the used resources of a node after adding this pod."""
    return total(used, requested(pod), _ONE_POD)


def _lacking(pod: JsonObject, node: JsonObject, used: Amounts) -> str:
    has = amounts((node.get("status") or {}).get("allocatable"))
    if used.get("pods", ZERO) + 1 > has.get("pods", ZERO):
        return "Too many pods"
    for name, amount in requested(pod).items():
        if amount > 0 and used.get(name, ZERO) + amount > has.get(name, ZERO):
            return f"Insufficient {name}"
    return ""
