"""Collects objects, events and logs after a failure, while the cluster still runs."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from lab.errors import LabError

from harness.kubectl import Kubectl
from harness.node import Node
from harness.release import NAMESPACE, RELEASE

LINES: Final = 60


def diagnose(kubectl: Kubectl, nodes: Sequence[Node], test_namespace: str = "") -> str:
    """Returns a text with a section for each question. A question that fails is noted, and hides no other answer."""
    kinds = "nodes,pods,resourceclaims,resourceslices,cpudriverconfigs,cpunodes"
    questions: dict[str, Callable[[], str]] = {
        "the release": partial(kubectl.lab.helm, "status", RELEASE, "--namespace", NAMESPACE, "--show-resources"),
        "objects": partial(kubectl.run, "get", kinds, "--all-namespaces", "-o", "wide"),
        "configs and CpuNodes": partial(kubectl.run, "get", "cpudriverconfigs,cpunodes", "-o", "yaml"),
        "slices": partial(kubectl.run, "get", "resourceslices", "-o", "yaml"),
    }
    for namespace in filter(None, (test_namespace, NAMESPACE)):
        questions[f"pods of {namespace}"] = partial(kubectl.run, "describe", "pods", "--namespace", namespace)
    if test_namespace:
        words = ("get", "resourceclaims", "-o", "yaml", "--namespace", test_namespace)
        questions["claims"] = partial(kubectl.run, *words)
    questions["events"] = lambda: _tail(kubectl.run("get", "events", "--all-namespaces", "--sort-by=.lastTimestamp"))
    for node in nodes:
        # sorted by time, so that the log of a container that has ended precedes that of its successor
        pod_logs = f"tail -n {2 * LINES} $(ls -tr /var/log/pods/{NAMESPACE}_*/*/*.log)"
        questions[f"logs of the release's pods on {node.name}"] = partial(node.sh, pod_logs)
        for daemon in ("kubelet", "containerd"):
            questions[f"{daemon}'s log on {node.name}"] = partial(node.sh, f"tail -n {LINES} /var/log/{daemon}.log")
        if node.has_systemd:
            journal = f"journalctl --no-pager --lines {LINES}"
            questions[f"systemd's journal on {node.name}"] = partial(node.sh, journal)
    return "\n".join(f"---- {title}\n{_answer(ask)}" for title, ask in questions.items())


def _answer(ask: Callable[[], str]) -> str:
    try:
        return ask()
    except LabError as error:
        return f"(no answer: {error})"


def _tail(text: str) -> str:
    return "\n".join(text.splitlines()[-LINES:])
