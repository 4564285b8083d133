"""Decides whether the kubelet takes a pod: what pods request must fit into what the node has for them. No I/O."""

from collections.abc import Iterable
from fractions import Fraction

from dracpu_sandbox.amounts import Amounts, requested, total
from dracpu_sandbox.resources import JsonObject


def refusal(pod: JsonObject, others: Iterable[JsonObject], allocatable: Amounts) -> tuple[str, str] | None:
    """Returns why a pod is refused: reason and message, in the kubelet's words; None if it is not."""
    used = total(*map(requested, others))
    for name, wanted in requested(pod).items():
        taken, there = used.get(name, Fraction(0)), allocatable.get(name, Fraction(0))
        if wanted > 0 and taken + wanted > there:
            figures = f"requested: {_figure(name, wanted)}, used: {_figure(name, taken)}"
            message = f"Node didn't have enough resource: {name}, {figures}, capacity: {_figure(name, there)}"
            return f"OutOf{name}", f"Pod was rejected: {message}"
    return None


def _figure(name: str, amount: Fraction) -> int:
    return int(amount * 1000 if name == "cpu" else amount)  # kubelet: counts thousandths of CPUs
