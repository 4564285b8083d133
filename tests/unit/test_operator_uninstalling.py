"""Which claims hold CPUs when the driver is about to be uninstalled."""

from typing import Any

from dracpu_operator.decide.uninstalling import all_holders, holders_of_claim, holders_of_node


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
        "default/c on node n1: used by pod a, pod b"
    ]
    assert texts(*holders_of_claim(claim("c", {}))) == ["default/c on node n1: used by no pod"]


def test_a_claim_over_two_nodes_is_named_for_each() -> None:
    assert [holder.node for holder in holders_of_claim(claim("c", {"pool": "n2"}, {}))] == ["n1", "n2"]


def test_claims_of_other_drivers_of_admins_and_without_allocation_hold_nothing() -> None:
    assert holders_of_claim(claim("other", {"driver": "dra.net"})) == []
    assert holders_of_claim(claim("watcher", {"adminAccess": True})) == []
    assert holders_of_claim({"metadata": {"name": "c", "namespace": "default", "uid": "u"}}) == []


def test_a_claim_that_only_a_cpu_node_names_is_held_without_allocation() -> None:
    named = holders_of_node(cpu_node("n1", "explained", "lingering")) + holders_of_node({"metadata": {"name": "n2"}})
    found = all_holders(holders_of_claim(claim("explained", {}, pods=("p",))), named)
    assert texts(*found) == [
        "default/explained on node n1: used by pod p",
        "default/lingering on node n1: CPUs 2-3 are still held, though the claim is not allocated any more",
    ]
