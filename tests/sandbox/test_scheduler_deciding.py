"""One decision at a time, from a picture of the cluster."""

from dra_objects import claim, device_class, grouped, node, pod, request, single, slice_of

from dracpu_sandbox.resources import JsonObject
from dracpu_sandbox.scheduler.claims import standing
from dracpu_sandbox.scheduler.deciding import Placement, Refusal, TooEarly, decide, is_pending, order
from dracpu_sandbox.scheduler.devices import read_slice
from dracpu_sandbox.scheduler.pools import Inventory
from dracpu_sandbox.scheduler.requests import read_class
from dracpu_sandbox.scheduler.world import World, key_of


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


def test_without_nodes_it_says_so() -> None:
    assert decide(pod("p"), world()) == Refusal("no nodes available to schedule pods")


def test_a_pod_follows_its_claim() -> None:
    held = on("n3", claim("c", request(cpus=4)), "other")
    assert decide(pod("p", "c"), world(*CLUSTER, held)) == Placement("n3")


def test_claims_on_different_nodes_cannot_be_used_together() -> None:
    one, other = on("n1", claim("a", request(cpus=4)), "x"), on("n2", claim("b", request(cpus=4)), "y")
    found = decide(pod("p", "a", "b"), world(*CLUSTER, one, other))
    assert found == Refusal("0/3 nodes are available: 3 resourceclaim not available on the node.")


def test_an_allocation_that_serves_only_the_refused_pod_may_be_released() -> None:
    held = on("n1", claim("a", request(cpus=4)), "p")
    shared = on("n1", claim("b", request(cpus=4)), "p", "q")
    picky = pod("p", "a", "b", nodeSelector={"zone": "z"})
    assert refused(picky, *CLUSTER, held, shared).release == (("default", "a"),)


def test_a_claim_that_is_still_made_is_waited_for_in_silence() -> None:
    assert decide(pod("p", templates=["t"]), world(*CLUSTER)) == TooEarly()


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
    full = on("n1", claim("c", request()), *(f"u{number}" for number in range(256)))
    assert 'resourceclaim "c" is in use by 256 pods' in refusals(full, of=using)
    told = pod("p", templates=["t"]) | {"status": {"resourceClaimStatuses": [{"name": "t", "resourceClaimName": "c"}]}}
    assert 'resourceclaim "c" was not created for the pod' in refusals(claim("c", request()), of=told)
    unknown = claim("c", request(deviceClassName="gold"))
    assert "request main: device class gold does not exist" in refusals(unknown, of=using)
    unreadable = claim("c", request(cpus="many"))
    assert '"many" is not a quantity' in refusals(unreadable, of=using)


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
    offered = (slice_of(name, [grouped(f"g{size}", size, size=size) for size in (7, 8, 9)]) for name in nodes)
    asked = claim("c", *(request(f"r{number}", cpus=number % 4 + 2) for number in range(8)))
    found = refused(pod("p", "c"), device_class(), *map(node, nodes), *offered, asked)
    assert found.reason == "SchedulerError"
    assert "gave up after too many steps" in found.message


def test_a_claim_stands_as_before_when_a_driver_reports_about_its_devices() -> None:
    held = on("n1", claim("c", request()), "a", "b")
    reported = {**held, "status": {**held["status"], "devices": [{"driver": "dra.cpu", "data": {"cpuset": "2-3"}}]}}
    assert standing(reported) == standing(held)
    for other in (
        claim("c", request()),
        on("n1", claim("c", request()), "a"),
        {**held, "metadata": {**held["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}},
        {**held, "metadata": {**held["metadata"], "uid": "another"}},
    ):
        assert standing(other) != standing(held)


def test_pods_wait_for_a_scheduler_unless_they_are_placed_gated_leaving_or_somebody_elses() -> None:
    assert is_pending(pod("p"))
    assert not is_pending(pod("p", nodeName="n1"))
    assert not is_pending(pod("p", schedulingGates=[{"name": "g"}]))
    assert not is_pending(pod("p", schedulerName="other"))
    assert not is_pending(pod("p") | {"status": {"phase": "Failed"}})
    leaving = pod("p")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert not is_pending(leaving)


def test_pods_are_placed_by_priority_then_by_age() -> None:
    old, young, urgent = pod("old"), pod("young"), pod("urgent", priority=5)
    for one, moment in (
        (old, "2026-01-01T00:00:00Z"),
        (young, "2026-01-02T00:00:00Z"),
        (urgent, "2026-01-03T00:00:00Z"),
    ):
        one["metadata"]["creationTimestamp"] = moment
    assert [one["metadata"]["name"] for one in sorted([young, old, urgent], key=order)] == ["urgent", "old", "young"]
