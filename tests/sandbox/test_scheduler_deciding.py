"""Tests single decisions of the scheduler on a snapshot of the cluster."""

from dra_objects import claim, device_class, grouped, node, pod, request, single, slice_of

from dracpu_sandbox.resources import JsonObject, key_of
from dracpu_sandbox.scheduler.deciding import Placement, Refusal, decide, is_pending
from dracpu_sandbox.scheduler.devices import read_slice
from dracpu_sandbox.scheduler.pools import Inventory
from dracpu_sandbox.scheduler.requests import read_class
from dracpu_sandbox.scheduler.world import World


def world(*bodies):
    """Returns the cluster with these objects."""
    kinds: dict[str, list[JsonObject]] = {}
    for body in bodies:
        kinds.setdefault(body["kind"], []).append(body)
    return World(
        nodes={item["metadata"]["name"]: item for item in kinds.get("Node", ())},
        claims={key_of(item): item for item in kinds.get("ResourceClaim", ())},
        classes={item["metadata"]["name"]: read_class(item) for item in kinds.get("DeviceClass", ())},
        inventory=Inventory(read_slice(item) for item in kinds.get("ResourceSlice", ())),
        pods=kinds.get("Pod", []),
    )


CLUSTER = [
    device_class(),
    *(node(name) for name in ("n1", "n2", "n3")),
    *(slice_of(name, [grouped("g", cpus)]) for name, cpus in (("n1", 4), ("n2", 8), ("n3", 8))),
]


def allocated(name, item, *users):
    """Returns the claim with an allocation of the node's device."""
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}]
    result = {"request": "main", "driver": "dra.cpu", "pool": name, "device": "g", "shareID": "s"}
    result["consumedCapacity"] = {"dra.cpu/cpu": "4"}
    allocation = {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": terms}}
    reserved = [{"resource": "pods", "name": user, "uid": f"uid-of-{user}"} for user in users]
    return {**item, "status": {"allocation": allocation, "reservedFor": reserved}}


def placed(of, *bodies):
    """Returns the node for the pod."""
    found = decide(of, world(*bodies))
    assert isinstance(found, Placement)
    return found.node


def refused(of, *bodies):
    """Returns the refusal for the pod."""
    found = decide(of, world(*bodies))
    assert isinstance(found, Refusal)
    return found


def test_a_pod_gets_the_fitting_node_with_the_fewest_pods() -> None:
    asked = claim("c", request(cpus=8))
    assert placed(pod("p", "c"), *CLUSTER, asked) == "n2"
    there = pod("q", nodeName="n2")
    assert placed(pod("p", "c"), *CLUSTER, asked, there) == "n3"
    ended = there | {"status": {"phase": "Succeeded"}}
    assert placed(pod("p", "c"), *CLUSTER, asked, ended) == "n2"


def test_a_refusal_counts_the_nodes_for_each_reason() -> None:
    cordoned = node("n4", unschedulable=True)
    found = decide(pod("p", "c"), world(*CLUSTER, cordoned, claim("c", request(cpus=9))))
    assert found == Refusal("0/4 nodes are available: 1 node(s) were unschedulable, 3 cannot allocate all claims.")


def test_a_pod_gets_the_node_of_its_allocated_claim() -> None:
    held = allocated("n3", claim("c", request(cpus=4)), "other")
    assert decide(pod("p", "c"), world(*CLUSTER, held)) == Placement("n3")


def test_a_pod_waits_without_a_message_until_its_claim_is_made() -> None:
    assert decide(pod("p", templates=["t"]), world(*CLUSTER)) is None


def test_a_pod_does_not_wait_for_a_claim_that_is_not_needed() -> None:
    found = pod("p", templates=["t"]) | {"status": {"resourceClaimStatuses": [{"name": "t"}]}}
    assert decide(found, world(*CLUSTER)) == Placement("n1")


def refusals(*claims, of):
    return refused(of, *CLUSTER, *claims).message


def test_the_message_names_unusable_claims() -> None:
    using = pod("p", "c")
    assert 'resourceclaim "c" not found' in refusals(of=using)
    leaving = claim("c", request())
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert 'resourceclaim "c" is being deleted' in refusals(leaving, of=using)
    named = pod("p", templates=["t"]) | {"status": {"resourceClaimStatuses": [{"name": "t", "resourceClaimName": "c"}]}}
    assert 'resourceclaim "c" was not created for the pod' in refusals(claim("c", request()), of=named)
    unknown = claim("c", request(deviceClassName="gold"))
    assert "request main: device class gold does not exist" in refusals(unknown, of=using)
    unreadable = claim("c", request(cpus="many"))
    assert '"many" is not a quantity' in refusals(unreadable, of=using)
    assert "does not support adminAccess" in refusals(claim("c", request(adminAccess=True)), of=using)


def test_an_error_ends_the_search_even_if_another_node_fits() -> None:
    broken = slice_of("n1", [single(0)], driver="other", name="other", slices=2)
    found = refused(pod("p", "c"), *CLUSTER, broken, claim("c", request(cpus=1, allocationMode="All")))
    assert found.reason == "SchedulerError"
    assert 'running "DynamicResources" filter plugin: node n1: ' in found.message


def test_an_expression_may_fail_on_devices_that_are_not_needed() -> None:
    numbered = single(0)
    nameless = {"name": "other", "attributes": {}}
    cel = 'device.attributes["dra.cpu"].cpuID == 0'
    offered = slice_of("n1", [numbered, nameless])
    assert placed(pod("p", "c"), device_class(), node("n1"), offered, claim("c", request(cel=cel))) == "n1"
    for asked in (request(cel=cel, count=2), request(cel=cel, allocationMode="All")):
        found = refused(pod("p", "c"), device_class(), node("n1"), offered, claim("c", asked))
        assert (found.reason, "Key not found" in found.message) == ("SchedulerError", True)


def test_the_limit_of_steps_covers_all_nodes() -> None:
    nodes = [f"n{number}" for number in range(50)]
    offered = (slice_of(name, [single(number) for number in range(6)]) for name in nodes)
    asked = claim("c", *(request(f"r{number}") for number in range(7)))
    found = refused(pod("p", "c"), device_class(), *map(node, nodes), *offered, asked)
    assert found.reason == "SchedulerError"
    assert "gave up after 5000 steps" in found.message


def test_pods_are_pending_unless_bound_gated_deleted_finished_or_of_another_scheduler() -> None:
    assert is_pending(pod("p"))
    assert not is_pending(pod("p", nodeName="n1"))
    assert not is_pending(pod("p", schedulingGates=[{"name": "g"}]))
    assert not is_pending(pod("p", schedulerName="other"))
    assert not is_pending(pod("p") | {"status": {"phase": "Failed"}})
    leaving = pod("p")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert not is_pending(leaving)
