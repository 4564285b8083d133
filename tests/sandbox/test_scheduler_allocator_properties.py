"""Whatever is asked for in whatever order: no device is given twice, none beyond its capacity, and nothing is refused
that a search through all possibilities finds."""

from itertools import combinations

from dra_allocating import Shop
from dra_objects import CPU, NUMA, claim, grouped, request, single, slice_of
from hypothesis import given, settings
from hypothesis import strategies as st

SOCKET = "dra.cpu/socketID"


@st.composite
def machines(draw):
    """Some individual CPUs and some groups, each with a NUMA node and perhaps a socket."""
    devices = []
    for number in range(draw(st.integers(1, 6))):
        numa = draw(st.integers(0, 2))
        if draw(st.booleans()):
            devices.append(single(number, numa))
        else:
            devices.append(grouped(f"group{number}", draw(st.integers(1, 4)), **{NUMA: numa}))
        if draw(st.booleans()):
            devices[-1]["attributes"][SOCKET] = {"int": numa // 2}
    return devices


@st.composite
def asks(draw):
    """Requests and constraints of a claim."""
    requests = []
    for number in range(draw(st.integers(1, 3))):
        count = draw(st.integers(1, 3))
        cpus = draw(st.none() | st.integers(1, 3))
        cel = draw(st.sampled_from(["", 'device.attributes["resource.kubernetes.io"].numaNode < 2']))
        requests.append(request(f"r{number}", cpus, count=count, cel=cel))
    names = [one["name"] for one in requests]
    constraints = []
    for _ in range(draw(st.integers(0, 2))):
        kind = draw(st.sampled_from(["matchAttribute", "distinctAttribute"]))
        constraint = {kind: draw(st.sampled_from([NUMA, SOCKET]))}
        if some := draw(st.lists(st.sampled_from(names), unique=True)):
            constraint["requests"] = some
        constraints.append(constraint)
    return requests, constraints


def attribute(device, name):
    return device["attributes"].get(name, {}).get("int")


def amount(device, one):
    """What a request takes of a device; None when it does not fit at all."""
    asked = one["exactly"].get("capacity")
    if CPU not in device.get("capacity", {}):
        return None if asked else 0
    value = int(device["capacity"][CPU]["value"])
    wanted = int(asked["requests"][CPU]) if asked else value
    return wanted if wanted <= value else None


def obeys(chosen, constraints):
    """Whether devices by request obey all constraints."""
    for constraint in constraints:
        names = constraint.get("requests") or chosen
        devices = [device for name in names for device in chosen[name]]
        kind, name = next((kind, name) for kind, name in constraint.items() if kind != "requests")
        values = [attribute(device, name) for device in devices]
        if None in values:
            return False
        if len(set(values)) != (1 if kind == "matchAttribute" else len(values)):
            return False
    return True


def feasible(devices, taken, used, requests, constraints, chosen=None):
    """Whether any choice at all works: every subset for every request."""
    chosen = chosen or {}
    if len(chosen) == len(requests):
        return obeys(chosen, constraints)
    one = requests[len(chosen)]
    usable = [device for device in devices if fits(device, one, taken, used)]
    return any(
        feasible(
            devices,
            taken | {device["name"] for device in some if "capacity" not in device},
            {**used, **{one_device["name"]: used[one_device["name"]] + amount(one_device, one) for one_device in some}},
            requests,
            constraints,
            {**chosen, one["name"]: some},
        )
        for some in combinations(usable, one["exactly"]["count"])
    )


def fits(device, one, taken, used):
    if "selectors" in one["exactly"] and attribute(device, NUMA) >= 2:
        return False
    cpus = amount(device, one)
    if cpus is None or device["name"] in taken:
        return False
    return "capacity" not in device or used[device["name"]] + cpus <= int(device["capacity"][CPU]["value"])


def held(shop):
    """The exclusive devices that are given away, in a list, and what is consumed of the others."""
    exclusive: list[str] = []
    consumed: dict[str, int] = {}
    for one in shop.claims.values():
        for result in one["status"]["allocation"]["devices"]["results"]:
            if "shareID" in result:
                before = consumed.get(result["device"], 0)
                consumed[result["device"]] = before + int(result["consumedCapacity"][CPU])
            else:
                exclusive.append(result["device"])
    return exclusive, consumed


@settings(max_examples=150, deadline=None)
@given(machines(), st.lists(st.tuples(asks(), st.booleans()), min_size=1, max_size=6))
def test_nothing_is_given_twice_and_nothing_refused_that_fits(devices, history) -> None:
    shop = Shop(slice_of("n1", devices))
    sizes = {one["name"]: int(one["capacity"][CPU]["value"]) for one in devices if "capacity" in one}
    for number, ((requests, constraints), released) in enumerate(history):
        exclusive, consumed = held(shop)
        used = {one["name"]: consumed.get(one["name"], 0) for one in devices}
        expected = feasible(devices, frozenset(exclusive), used, requests, constraints)

        found = shop.allocate(claim(f"c{number}", *requests, constraints=constraints))

        assert (found is not None) == expected
        exclusive, consumed = held(shop)
        assert len(set(exclusive)) == len(exclusive)
        assert all(amount <= sizes[name] for name, amount in consumed.items())
        if found is not None:
            results = found[0]["devices"]["results"]
            assert_as_asked(devices, requests, constraints, results)
            if released:
                shop.release(f"c{number}")


def assert_as_asked(devices, requests, constraints, results) -> None:
    by_name = {one["name"]: one for one in devices}
    chosen = {
        one["name"]: [by_name[result["device"]] for result in results if result["request"] == one["name"]]
        for one in requests
    }
    for one in requests:
        names = [device["name"] for device in chosen[one["name"]]]
        assert len(set(names)) == len(names) == one["exactly"]["count"]
    assert obeys(chosen, constraints)
