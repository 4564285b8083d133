"""One decision at a time, from a picture of the cluster."""

from dra_objects import claim, device_class, grouped, node, pod, request, single, slice_of

from dracpu_sandbox.resources import JsonObject, key_of
from dracpu_sandbox.scheduler.deciding import Placement, Refusal, decide, is_pending
from dracpu_sandbox.scheduler.devices import read_slice
from dracpu_sandbox.scheduler.pools import Inventory
from dracpu_sandbox.scheduler.requests import read_class
from dracpu_sandbox.scheduler.world import World


def world(*bodies):
    """The cluster that these objects make."""
    kinds: dict[str, list[JsonObject]] = {}
    for body in bodies:
        kinds.setdefault(body["kind"], []).append(body)
    return World(
        nodes={one["metadata"]["name"]: one for one in kinds.get("Node", ())},
        claims={key_of(one): one for one in kinds.get("ResourceClaim", ())},
        classes={one["metadata"]["name"]: read_class(one) for one in kinds.get("DeviceClass", ())},
        inventory=Inventory(read_slice(one) for one in kinds.get("ResourceSlice", ())),
        pods=kinds.get("Pod", []),
    )


CLUSTER = [
    device_class(),
    *(node(name) for name in ("n1", "n2", "n3")),
    *(slice_of(name, [grouped("g", cpus)]) for name, cpus in (("n1", 4), ("n2", 8), ("n3", 8))),
]


def on(name, one, *users):
    """The claim with all of a node's device."""
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}]
    result = {"request": "main", "driver": "dra.cpu", "pool": name, "device": "g", "shareID": "s"}
    result["consumedCapacity"] = {"dra.cpu/cpu": "4"}
    allocation = {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": terms}}
    reserved = [{"resource": "pods", "name": user, "uid": f"uid-of-{user}"} for user in users]
    return {**one, "status": {"allocation": allocation, "reservedFor": reserved}}


def placed(of, *bodies):
    """The node that the pod gets."""
    found = decide(of, world(*bodies))
    assert isinstance(found, Placement)
    return found.node


def refused(of, *bodies):
    """Why it gets none."""
    found = decide(of, world(*bodies))
    assert isinstance(found, Refusal)
    return found


def test_the_first_node_that_fits_among_those_with_the_fewest_pods_is_taken() -> None:
    asked = claim("c", request(cpus=8))
    assert placed(pod("p", "c"), *CLUSTER, asked) == "n2"
    there = pod("q", nodeName="n2")
    assert placed(pod("p", "c"), *CLUSTER, asked, there) == "n3"
    ended = there | {"status": {"phase": "Succeeded"}}
    assert placed(pod("p", "c"), *CLUSTER, asked, ended) == "n2"


def test_a_refusal_counts_its_reasons() -> None:
    cordoned = node("n4", unschedulable=True)
    found = decide(pod("p", "c"), world(*CLUSTER, cordoned, claim("c", request(cpus=9))))
    assert found == Refusal("0/4 nodes are available: 1 node(s) were unschedulable, 3 cannot allocate all claims.")


def test_a_pod_follows_its_claim() -> None:
    held = on("n3", claim("c", request(cpus=4)), "other")
    assert decide(pod("p", "c"), world(*CLUSTER, held)) == Placement("n3")


def test_a_claim_that_is_still_made_is_waited_for_in_silence() -> None:
    assert decide(pod("p", templates=["t"]), world(*CLUSTER)) is None


def test_a_claim_that_is_not_needed_is_not_waited_for() -> None:
    found = pod("p", templates=["t"]) | {"status": {"resourceClaimStatuses": [{"name": "t"}]}}
    assert decide(found, world(*CLUSTER)) == Placement("n1")


def refusals(*claims, of):
    return refused(of, *CLUSTER, *claims).message


def test_claims_that_cannot_be_used_are_named() -> None:
    using = pod("p", "c")
    assert 'resourceclaim "c" not found' in refusals(of=using)
    leaving = claim("c", request())
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert 'resourceclaim "c" is being deleted' in refusals(leaving, of=using)
    told = pod("p", templates=["t"]) | {"status": {"resourceClaimStatuses": [{"name": "t", "resourceClaimName": "c"}]}}
    assert 'resourceclaim "c" was not created for the pod' in refusals(claim("c", request()), of=told)
    unknown = claim("c", request(deviceClassName="gold"))
    assert "request main: device class gold does not exist" in refusals(unknown, of=using)
    unreadable = claim("c", request(cpus="many"))
    assert '"many" is not a quantity' in refusals(unreadable, of=using)
    assert "does not support adminAccess" in refusals(claim("c", request(adminAccess=True)), of=using)


def test_an_error_ends_the_search_though_another_node_would_do() -> None:
    broken = slice_of("n1", [single(0)], driver="other", name="other", slices=2)
    found = refused(pod("p", "c"), *CLUSTER, broken, claim("c", request(cpus=1, allocationMode="All")))
    assert found.reason == "SchedulerError"
    assert 'running "DynamicResources" filter plugin: node n1: ' in found.message


def test_an_expression_may_fail_on_devices_that_nobody_needs() -> None:
    numbered = single(0)
    nameless = {"name": "other", "attributes": {}}
    cel = 'device.attributes["dra.cpu"].cpuID == 0'
    offered = slice_of("n1", [numbered, nameless])
    assert placed(pod("p", "c"), device_class(), node("n1"), offered, claim("c", request(cel=cel))) == "n1"
    for asked in (request(cel=cel, count=2), request(cel=cel, allocationMode="All")):
        found = refused(pod("p", "c"), device_class(), node("n1"), offered, claim("c", asked))
        assert (found.reason, "Key not found" in found.message) == ("SchedulerError", True)


def test_nodes_that_are_hard_to_refuse_are_not_all_tried() -> None:
    nodes = [f"n{number}" for number in range(50)]
    offered = (slice_of(name, [single(number) for number in range(6)]) for name in nodes)
    asked = claim("c", *(request(f"r{number}") for number in range(7)))
    found = refused(pod("p", "c"), device_class(), *map(node, nodes), *offered, asked)
    assert found.reason == "SchedulerError"
    assert "gave up after 5000 steps" in found.message


def test_pods_wait_for_a_scheduler_unless_they_are_placed_gated_leaving_or_somebody_elses() -> None:
    assert is_pending(pod("p"))
    assert not is_pending(pod("p", nodeName="n1"))
    assert not is_pending(pod("p", schedulingGates=[{"name": "g"}]))
    assert not is_pending(pod("p", schedulerName="other"))
    assert not is_pending(pod("p") | {"status": {"phase": "Failed"}})
    leaving = pod("p")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert not is_pending(leaving)
