"""Tests pools of slices: incomplete or invalid pools are not available, and overlapping devices share counters."""

import pytest
from dra_allocating import Shop
from dra_objects import claim, grouped, request, single, slice_of

from dracpu_sandbox.scheduler.allocator import AllocationError
from dracpu_sandbox.scheduler.devices import read_slice
from dracpu_sandbox.scheduler.pools import Inventory

EVERYTHING = request(allocationMode="All")


def offered(*slices, at="n1"):
    """Returns the devices that a node offers."""
    inventory = Inventory([read_slice(item) for item in slices])
    return [device.name for device in inventory.offer(at).devices]


def part(name, number, *, generation=1, slices=1):
    return slice_of("n1", [single(number)], name=name, generation=generation, slices=slices)


def test_only_devices_of_the_highest_generation_are_offered() -> None:
    assert offered(part("a", 0), part("b", 1, generation=2)) == ["cpudev001"]


def test_an_incomplete_generation_offers_no_devices_and_hides_the_old_ones() -> None:
    assert offered(part("a", 0), part("b", 1, generation=2, slices=2)) == []
    complete = [part("a", 0), part("b", 1, generation=2, slices=2), part("c", 2, generation=2, slices=2)]
    assert offered(*complete) == ["cpudev001", "cpudev002"]


def test_an_invalid_pool_offers_no_devices_and_does_not_affect_other_pools() -> None:
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
def test_mode_all_is_an_error_while_a_pool_of_the_node_is_not_available(broken, message) -> None:
    shop = Shop(slice_of("n1", [single(1)]), broken)
    with pytest.raises(AllocationError, match=f"asks for all devices, but resource pool {message}"):
        shop.devices(claim("a", EVERYTHING))


def test_a_node_offers_its_own_devices() -> None:
    slices = [slice_of("n1", [single(1)]), slice_of("n2", [single(2)])]
    assert offered(*slices, at="n2") == ["cpudev002"]


def test_a_slice_for_several_nodes_is_rejected_with_a_reason() -> None:
    everywhere = slice_of("", [single(0)])
    with pytest.raises(ValueError, match="only slices with spec.nodeName"):
        read_slice(everywhere)


def hierarchy(*, shareable=False):
    """Returns a socket of 8 CPUs, two NUMA nodes and four cores; each consumes the counters of its parents."""

    def device(name, cpus, *counters):
        consumes = [{"counterSet": "s", "counters": {counter: {"value": str(cpus)} for counter in counters}}]
        body = grouped(name, cpus) if shareable and name.startswith("numa") else {"name": name}
        return {**body, "consumesCounters": consumes}

    devices = [device("socket", 8, "socket", "numa0", "numa1")]
    devices[0]["consumesCounters"][0]["counters"] |= {"numa0": {"value": "4"}, "numa1": {"value": "4"}}
    devices += [device(f"numa{numa}", 4, "socket", f"numa{numa}") for numa in range(2)]
    devices += [device(f"core{core}", 2, "socket", f"numa{core // 2}") for core in range(4)]
    counters = {"socket": {"value": "8"}, "numa0": {"value": "4"}, "numa1": {"value": "4"}}
    return [
        slice_of("n1", [], name="a", slices=2, sharedCounters=[{"name": "s", "counters": counters}]),
        slice_of("n1", devices, name="b", slices=2),
    ]


def only(*names):
    """Returns the hierarchy with only these devices, and with all counters."""
    first, second = hierarchy()
    second["spec"]["devices"] = [item for item in second["spec"]["devices"] if item["name"] in names]
    return first, second


def test_overlapping_devices_are_not_allocated_together() -> None:
    shop = Shop(*hierarchy())
    assert shop.devices(claim("a", request())) == ["socket"]  # the first device in listed order
    assert shop.devices(claim("b", request())) is None
    shop.release("a")
    shop.change(*only("numa0", "core0", "core1", "core2", "core3"))
    assert shop.devices(claim("c", request())) == ["numa0"]
    assert shop.devices(claim("d", request(count=2))) == ["core2", "core3"]
    assert shop.devices(claim("e", request())) is None


def test_devices_of_one_claim_do_not_overlap() -> None:
    assert Shop(*hierarchy()).devices(claim("a", request(count=2))) == ["numa0", "numa1"]
    assert Shop(*hierarchy()).devices(claim("a", request(count=3))) == ["numa0", "core2", "core3"]
    assert Shop(*hierarchy()).devices(claim("a", request(count=5))) is None


def test_the_shares_of_a_device_consume_its_counters_once_until_the_last_is_released() -> None:
    devices = hierarchy(shareable=True)
    devices[1]["spec"]["devices"] = [item for item in devices[1]["spec"]["devices"] if item["name"] != "socket"]
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


def test_a_missing_counter_makes_the_pool_invalid() -> None:
    devices = hierarchy()[1]
    devices["spec"]["pool"]["resourceSliceCount"] = 1
    assert offered(devices) == []
