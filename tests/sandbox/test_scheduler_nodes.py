"""Tests which nodes a pod may use, by selectors, tolerations and resources."""

from fractions import Fraction

import pytest
from dra_objects import node, pod

from dracpu_sandbox.amounts import requested
from dracpu_sandbox.scheduler.nodes import add_pod, refusal, selector_matches


def asking(cpu="", memory="", **spec):
    found = pod("p", **spec)
    amounts = {name: text for name, text in (("cpu", cpu), ("memory", memory)) if text}
    found["spec"]["containers"][0]["resources"] = {"requests": amounts}
    return found


TAINT = {"key": "k", "value": "v", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    "toleration, fits",
    [
        ({"key": "k", "value": "v"}, True),
        ({"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}, True),
        ({"key": "k", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "k", "value": "w"}, False),
        ({"key": "l", "operator": "Exists"}, False),
        ({"key": "k", "operator": "Exists", "effect": "NoExecute"}, False),
    ],
)
def test_taints_are_tolerated_by_key_value_and_effect(toleration, fits) -> None:
    tainted = node("n1", taints=[TAINT])
    assert refusal(pod("p"), tainted, {}) == "node(s) had untolerated taint(s)"
    assert (refusal(pod("p", tolerations=[toleration]), tainted, {}) == "") is fits


def test_a_preferred_taint_does_not_exclude_pods() -> None:
    assert refusal(pod("p"), node("n1", taints=[{"key": "k", "effect": "PreferNoSchedule"}]), {}) == ""


def test_a_cordoned_node_rejects_pods() -> None:
    assert refusal(pod("p"), node("n1", unschedulable=True), {}) == "node(s) were unschedulable"


@pytest.mark.parametrize(
    "key, operator, values, matches",
    [
        ("zone", "In", ["a", "b"], True),
        ("zone", "In", ["b"], False),
        ("zone", "NotIn", ["b"], True),
        ("absent", "NotIn", ["b"], True),
        ("zone", "Exists", [], True),
        ("absent", "Exists", [], False),
        ("absent", "DoesNotExist", [], True),
        ("zone", "Near", ["a"], False),
    ],
)
def test_every_operator_of_a_selector(key, operator, values, matches) -> None:
    selector = {"nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}]}
    assert selector_matches(selector, node("n1", labels={"zone": "a"})) is matches


def test_terms_are_alternatives_and_an_empty_term_matches_no_node() -> None:
    of_n1 = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    assert selector_matches({"nodeSelectorTerms": [{}, of_n1]}, node("n1"))
    assert not selector_matches({"nodeSelectorTerms": [{}, of_n1]}, node("n2"))
    both = {**of_n1, "matchExpressions": [{"key": "zone", "operator": "Exists"}]}
    assert not selector_matches({"nodeSelectorTerms": [both]}, node("n1"))


def test_node_selector_and_required_affinity_must_both_match() -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    picky = pod("p", nodeSelector={"disk": "fast"}, affinity={"nodeAffinity": required})
    assert refusal(picky, node("n1", labels={"zone": "a", "disk": "fast"}), {}) == ""
    for labels in ({"zone": "a"}, {"disk": "fast"}):
        assert "affinity/selector" in refusal(picky, node("n1", labels=labels), {})


def test_requested_resources_must_be_free() -> None:
    small = node("n1", cpus=4)
    used = add_pod({}, asking(cpu="1500m"))
    assert refusal(asking(cpu="2500m"), small, used) == ""
    assert refusal(asking(cpu="2501m"), small, used) == "Insufficient cpu"
    assert refusal(asking(memory="65Gi"), small, {}) == "Insufficient memory"
    assert refusal(asking(), small, {"pods": Fraction(110)}) == "Too many pods"


def test_a_resource_that_the_node_does_not_have_is_insufficient() -> None:
    limited = pod("p")
    limited["spec"]["containers"][0]["resources"] = {"limits": {"example.com/gpu": "1"}}
    assert refusal(limited, node("n1"), {}) == "Insufficient example.com/gpu"


def cpus(amount):
    return {"name": f"c{amount}", "resources": {"requests": {"cpu": str(amount)}}}


@pytest.mark.parametrize(
    "spec, amount",
    [
        ({"containers": [cpus(1), cpus(2)]}, 3),
        ({"containers": [cpus(1)], "initContainers": [cpus(5), cpus(4)]}, 5),
        ({"containers": [cpus(1)], "initContainers": [{**cpus(2), "restartPolicy": "Always"}, cpus(4)]}, 6),
        ({"containers": [cpus(3)], "initContainers": [{**cpus(2), "restartPolicy": "Always"}]}, 5),
        ({"containers": [{"name": "c", "resources": {"limits": {"cpu": "2"}}}]}, 2),
    ],
)
def test_a_pod_requests_the_sum_of_its_concurrent_containers(spec, amount) -> None:
    assert requested({"spec": spec})["cpu"] == amount
