"""Which claims hold CPUs or memory when the drivers are about to be uninstalled."""

from typing import Any

import pytest

from dracpu_operator.decide.uninstalling import all_holders, holders_of_claim, holders_of_node, summary

MEMORY = {"driver": "dra.memory", "device": "memory-numa000", "consumedCapacity": {"size": "512Mi"}}
PAGES = {"driver": "dra.memory", "device": "hugepages-2mi-numa000", "consumedCapacity": {"size": "32Mi"}}
CPUS = {"device": "cpudevnuma000", "consumedCapacity": {"dra.cpu/cpu": "4"}}


def claim(name: str, *results: dict[str, Any], pods: tuple[str, ...] = ()) -> dict[str, Any]:
    devices = {"results": [{"driver": "dra.cpu", "pool": "n1", "device": "cpudev001", **result} for result in results]}
    status = {
        "allocation": {"devices": devices},
        "reservedFor": [{"resource": "pods", "name": pod, "uid": f"uid-{pod}"} for pod in pods],
    }
    return {"metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"}, "status": status}


def cpu_node(name: str, *claims: str) -> dict[str, Any]:
    named = [{"namespace": "default", "name": claim, "uid": f"uid-{claim}", "cpus": "2-3"} for claim in claims]
    return {"metadata": {"name": name}, "status": {"claims": named}}


def texts(*holders: Any) -> list[str]:
    return [str(holder) for holder in holders]


def test_an_allocated_claim_is_named_with_its_node_and_pods() -> None:
    assert texts(*holders_of_claim(claim("c", {}, {"device": "cpudev002"}, pods=("a", "b")))) == [
        "default/c on node n1 holds CPUs: used by pod a, pod b"
    ]
    assert texts(*holders_of_claim(claim("c", {}))) == ["default/c on node n1 holds CPUs: used by no pod"]


@pytest.mark.parametrize(
    ("results", "held"),
    [
        ((MEMORY,), "memory"),
        ((PAGES, MEMORY), "memory"),
        ((CPUS,), "CPUs"),
        ((MEMORY, CPUS), "CPUs and memory"),
        (({**CPUS, "consumedCapacity": {"dra.cpu/cpu": "4", "dra.cpu/hugepages_2Mi": "32Mi"}},), "CPUs and memory"),
        (({**CPUS, "consumedCapacity": {"dra.cpu/cpu": "4", "dra.cpu/memory": "0"}},), "CPUs"),
    ],
)
def test_a_claim_is_named_with_what_it_holds_of_both_drivers(results: tuple[dict[str, Any], ...], held: str) -> None:
    assert texts(*holders_of_claim(claim("c", *results, pods=("p",)))) == [
        f"default/c on node n1 holds {held}: used by pod p"
    ]


def test_a_claim_on_two_nodes_is_named_with_what_it_holds_on_each() -> None:
    assert texts(*holders_of_claim(claim("c", {**MEMORY, "pool": "n2"}, CPUS))) == [
        "default/c on node n1 holds CPUs: used by no pod",
        "default/c on node n2 holds memory: used by no pod",
    ]


def test_a_claim_over_two_nodes_is_named_for_each() -> None:
    assert [holder.node for holder in holders_of_claim(claim("c", {"pool": "n2"}, {}))] == ["n1", "n2"]


def test_claims_of_other_drivers_of_admins_and_without_allocation_hold_nothing() -> None:
    assert holders_of_claim(claim("other", {"driver": "dra.net"})) == []
    assert holders_of_claim(claim("watcher", {"adminAccess": True}, {**MEMORY, "adminAccess": True})) == []
    assert holders_of_claim({"metadata": {"name": "c", "namespace": "default", "uid": "u"}}) == []


def test_a_claim_that_only_a_cpu_node_names_is_held_without_allocation() -> None:
    named = holders_of_node(cpu_node("n1", "explained", "lingering")) + holders_of_node({"metadata": {"name": "n2"}})
    found = all_holders(holders_of_claim(claim("explained", {}, pods=("p",))), named)
    assert texts(*found) == [
        "default/explained on node n1 holds CPUs: used by pod p",
        "default/lingering on node n1 still holds CPUs 2-3, though it is not allocated any more",
    ]


@pytest.mark.parametrize(
    ("entry", "held"),
    [
        ({"cpus": "", "memory": "512Mi"}, "memory"),
        ({"memory": "512Mi"}, "memory"),
        ({"cpus": "2-3", "memory": "512Mi"}, "CPUs 2-3 and memory"),
        ({"cpus": "2-3", "memory": ""}, "CPUs 2-3"),
    ],
)
def test_a_claim_that_only_a_cpu_node_names_may_hold_memory(entry: dict[str, str], held: str) -> None:
    named = {"namespace": "default", "name": "old", "uid": "u", **entry}
    found = holders_of_node({"metadata": {"name": "n1"}, "status": {"claims": [named]}})
    assert texts(*found) == [f"default/old on node n1 still holds {held}, though it is not allocated any more"]


@pytest.mark.parametrize(
    ("claims", "sentence"),
    [
        ((claim("a", CPUS),), "1 claim holds CPUs"),
        ((claim("a", PAGES),), "1 claim holds memory"),
        ((claim("a", CPUS), claim("b", CPUS)), "2 claims hold CPUs"),
        ((claim("a", PAGES), claim("b", CPUS)), "2 claims hold CPUs or memory"),
        ((claim("a", PAGES, CPUS),), "1 claim holds CPUs or memory"),
    ],
)
def test_the_summary_names_what_the_claims_hold(claims: tuple[dict[str, Any], ...], sentence: str) -> None:
    assert summary([holder for found in claims for holder in holders_of_claim(found)]) == sentence
