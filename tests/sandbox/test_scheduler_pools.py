"""A pool counts whole or not at all; counters are consumed by devices that are parts of each other."""

import pytest
from dra_allocating import Shop
from dra_objects import claim, grouped, request, single, slice_of

from dracpu_sandbox.scheduler.allocator import AllocationError
from dracpu_sandbox.scheduler.devices import read_slice
from dracpu_sandbox.scheduler.pools import Inventory

EVERYTHING = request(allocationMode="All")


def offered(*slices, at="n1"):
    """The devices that a node offers."""
    inventory = Inventory([read_slice(item) for item in slices])
    return [device.name for device in inventory.offer(at).devices]


def part(name, number, *, generation=1, slices=1):
    return slice_of("n1", [single(number)], name=name, generation=generation, slices=slices)


def test_only_the_highest_generation_counts() -> None:
    assert offered(part("a", 0), part("b", 1, generation=2)) == ["cpudev001"]


def test_an_incomplete_new_generation_offers_nothing_not_even_the_old_devices() -> None:
    assert offered(part("a", 0), part("b", 1, generation=2, slices=2)) == []
    complete = [part("a", 0), part("b", 1, generation=2, slices=2), part("c", 2, generation=2, slices=2)]
    assert offered(*complete) == ["cpudev001", "cpudev002"]


def test_a_broken_pool_offers_nothing_and_does_not_harm_the_others() -> None:
    twice = slice_of("n1", [single(0), single(0)])
    other = slice_of("n1", [single(7)], pool="other", name="other")
    assert offered(twice, other) == ["cpudev007"]
    assert Shop(twice, other).devices(claim("a", request())) == ["cpudev007"]


@pytest.mark.parametrize(
    "broken, message",
    [
        (slice_of("n1", [single(0)], driver="dra.memory", slices=2), "dra.memory/n1 is currently being updated"),
        (slice_of("n1", [single(0), single(0)], driver="dra.memory"), "dra.memory/n1 is invalid"),
    ],
)
def test_all_cannot_be_known_while_any_pool_of_the_node_is_broken(broken, message) -> None:
    shop = Shop(slice_of("n1", [single(1)]), broken)
    with pytest.raises(AllocationError, match=f"asks for all devices, but resource pool {message}"):
        shop.devices(claim("a", EVERYTHING))


def test_a_node_offers_its_own_devices() -> None:
    slices = [slice_of("n1", [single(1)]), slice_of("n2", [single(2)])]
    assert offered(*slices, at="n2") == ["cpudev002"]


def test_a_slice_for_several_nodes_is_refused_with_a_reason() -> None:
    everywhere = slice_of("", [single(0)])
    with pytest.raises(ValueError, match="only slices with spec.nodeName"):
        read_slice(everywhere)


def hierarchy(*, shareable=False):
    """A socket of 8 CPUs, its two NUMA nodes, four cores of two: each consumes from all that it is part of."""

    def device(name, cpus, *counters):
        consumes = [{"counterSet": "s", "counters": {one: {"value": str(cpus)} for one in counters}}]
        body = grouped(name, cpus) if shareable and name.startswith("numa") else {"name": name}
        return {**body, "consumesCounters": consumes}

    devices = [device("socket", 8, "socket", "numa0", "numa1")]
    devices[0]["consumesCounters"][0]["counters"] |= {"numa0": {"value": "4"}, "numa1": {"value": "4"}}
    devices += [device(f"numa{one}", 4, "socket", f"numa{one}") for one in range(2)]
    devices += [device(f"core{one}", 2, "socket", f"numa{one // 2}") for one in range(4)]
    counters = {"socket": {"value": "8"}, "numa0": {"value": "4"}, "numa1": {"value": "4"}}
    return [
        slice_of("n1", [], name="a", slices=2, sharedCounters=[{"name": "s", "counters": counters}]),
        slice_of("n1", devices, name="b", slices=2),
    ]


def only(*names):
    """The hierarchy with these devices alone, all counters as they are."""
    first, second = hierarchy()
    second["spec"]["devices"] = [one for one in second["spec"]["devices"] if one["name"] in names]
    return first, second


def test_devices_that_overlap_are_not_given_at_once() -> None:
    shop = Shop(*hierarchy())
    assert shop.devices(claim("a", request())) == ["socket"]  # the first one listed
    assert shop.devices(claim("b", request())) is None
    shop.release("a")
    shop.change(*only("numa0", "core0", "core1", "core2", "core3"))
    assert shop.devices(claim("c", request())) == ["numa0"]
    assert shop.devices(claim("d", request(count=2))) == ["core2", "core3"]
    assert shop.devices(claim("e", request())) is None


def test_devices_of_one_claim_do_not_overlap_either() -> None:
    assert Shop(*hierarchy()).devices(claim("a", request(count=2))) == ["numa0", "numa1"]
    assert Shop(*hierarchy()).devices(claim("a", request(count=3))) == ["numa0", "core2", "core3"]
    assert Shop(*hierarchy()).devices(claim("a", request(count=5))) is None


def test_all_shares_of_a_device_are_charged_once_and_released_with_the_last() -> None:
    devices = hierarchy(shareable=True)
    devices[1]["spec"]["devices"] = [one for one in devices[1]["spec"]["devices"] if one["name"] != "socket"]
    shop = Shop(*devices)
    assert shop.devices(claim("a", request(cpus=1))) == ["numa0"]
    assert shop.devices(claim("b", request(cpus=3))) == ["numa0"]
    assert shop.devices(claim("c", request(cpus=3))) == ["numa1"]
    plain = request(cel="!device.allowMultipleAllocations")
    assert shop.devices(claim("d", plain)) is None
    shop.release("a")
    assert shop.devices(claim("d", plain)) is None
    shop.release("b")
    assert shop.devices(claim("d", plain)) == ["core0"]
    assert shop.devices(claim("e", request(cpus=2))) is None


def test_a_counter_that_is_not_there_breaks_the_pool() -> None:
    devices = hierarchy()[1]
    devices["spec"]["pool"]["resourceSliceCount"] = 1
    assert offered(devices) == []
