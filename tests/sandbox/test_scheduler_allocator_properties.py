"""Tests with random claims that no device is allocated twice, and that the allocator rejects a claim only if a search
through all possibilities fails, too."""

from itertools import combinations

from dra_allocating import Shop
from dra_objects import NUMA, claim, request, single, slice_of
from hypothesis import given
from hypothesis import strategies as st

SOCKET = "dra.cpu/socketID"


@st.composite
def machines(draw):
    """Generates CPUs, each with a NUMA node and perhaps a socket."""
    devices = [single(number, draw(st.integers(0, 2))) for number in range(draw(st.integers(1, 6)))]
    for device in devices:
        if draw(st.booleans()):
            device["attributes"][SOCKET] = {"int": device["attributes"][NUMA]["int"] // 2}
    return devices


@st.composite
def asks(draw):
    """Generates the requests and constraints of a claim."""
    cel = st.sampled_from(["", 'device.attributes["resource.kubernetes.io"].numaNode < 2'])
    names = [f"r{number}" for number in range(draw(st.integers(1, 3)))]
    requests = [request(name, count=draw(st.integers(1, 3)), cel=draw(cel)) for name in names]
    constraints = []
    for _ in range(draw(st.integers(0, 2))):
        kind = draw(st.sampled_from(["matchAttribute", "distinctAttribute"]))
        some = draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
        constraints.append({kind: draw(st.sampled_from([NUMA, SOCKET])), "requests": some})
    return requests, constraints


def obeys(chosen, constraints):
    """Returns whether the devices chosen for each request satisfy all constraints."""
    for constraint in constraints:
        kind, name = next(iter(constraint.items()))
        bound = [device for asked in constraint["requests"] for device in chosen[asked]]
        values = [device["attributes"].get(name, {}).get("int") for device in bound]
        if None in values or len(set(values)) != (1 if kind == "matchAttribute" else len(values)):
            return False
    return True


def feasible(free, requests, constraints, chosen):
    """Returns whether any choice of devices fits, by trying every subset for every request."""
    if len(chosen) == len(requests):
        return obeys(chosen, constraints)
    asked = requests[len(chosen)]
    usable = [device for device in free if "selectors" not in asked["exactly"] or device["attributes"][NUMA]["int"] < 2]
    return any(
        feasible(
            [device for device in free if device not in some], requests, constraints, {**chosen, asked["name"]: some}
        )
        for some in combinations(usable, asked["exactly"]["count"])
    )


@given(machines(), st.lists(st.tuples(asks(), st.booleans()), min_size=1, max_size=4))
def test_no_device_is_allocated_twice_and_no_fitting_claim_is_rejected(devices, history) -> None:
    shop, by_name = Shop(slice_of("n1", devices)), {device["name"]: device for device in devices}
    for number, ((requests, constraints), released) in enumerate(history):
        held = {result["device"] for item in shop.claims.values() for result in results(item["status"]["allocation"])}
        free = [device for device in devices if device["name"] not in held]

        found = shop.allocate(claim(f"c{number}", *requests, constraints=constraints))

        assert (found is not None) == feasible(free, requests, constraints, {})
        if found is None:
            continue
        names = [result["device"] for result in results(found[0])]
        assert held.isdisjoint(names)
        assert len(set(names)) == len(names)
        chosen = {
            asked["name"]: [by_name[item["device"]] for item in results(found[0]) if item["request"] == asked["name"]]
            for asked in requests
        }
        assert all(len(chosen[asked["name"]]) == asked["exactly"]["count"] for asked in requests)
        assert obeys(chosen, constraints)
        if released:
            shop.release(f"c{number}")


def results(allocation):
    return allocation["devices"]["results"]
