import pytest
from nodes import machine

from dracpu_agent.allocation.distributed import Level
from dracpu_agent.devices.device import RequestPolicy, Taint
from dracpu_agent.devices.grouping import divided_over
from dracpu_agent.devices.offer import Offer
from dracpu_agent.devices.publish import publish, resolve
from dracpu_agent.topology.topology import Cpu, Topology
from dracpu_api.cpuset import EMPTY, CpuSet
from dracpu_api.device_names import belongs_to
from dracpu_api.settings import Allocation, GroupBy, Mode, Settings


def offer(mode=Mode.GROUPED, group_by=GroupBy.NUMA_NODE, reserved="0-1", held=None, full_cores=False, taints=()):
    settings = Settings(mode, group_by, CpuSet.parse(reserved), Allocation(full_cores=full_cores))
    cpus = {device: CpuSet.parse(text) for device, text in (held or {}).items()}
    return Offer(settings, CpuSet.parse(reserved), cpus, taints)


def capacity(device):
    assert device.capacity is not None
    return device.capacity


def values(devices):
    return {device.name: capacity(device).value for device in devices}


@pytest.mark.parametrize(
    ("group_by", "expected"),
    [
        (GroupBy.NUMA_NODE, {"cpudevnuma000": 2, "cpudevnuma001": 4}),
        (GroupBy.SOCKET, {"cpudevsocket000": 2, "cpudevsocket001": 4}),
        (GroupBy.MACHINE, {"cpudevmachine": 6}),
        (GroupBy.L3_CACHE, {"cpudevl3cache000": 2, "cpudevl3cache001": 4}),
    ],
)
def test_a_group_offers_its_cpus_less_the_reserved_ones(group_by, expected):
    assert values(publish(machine(), offer(group_by=group_by))) == expected


def test_grouped_devices_have_the_documented_attributes():
    attributes = {device.name: dict(device.attributes) for device in publish(machine(), offer())}
    assert attributes["cpudevnuma001"] == {
        "resource.kubernetes.io/numaNode": 1,
        "dra.cpu/numaNodeID": 1,
        "dra.net/numaNode": 1,
        "dra.cpu/socketID": 1,
        "dra.cpu/numCPUs": 4,
        "dra.cpu/smtEnabled": True,
    }
    (whole_machine,) = publish(machine(), offer(group_by=GroupBy.MACHINE))
    assert dict(whole_machine.attributes) == {"dra.cpu/numCPUs": 6, "dra.cpu/smtEnabled": True}


def chiplets(numa_of_cache):
    """Two sockets of two L3 caches, each of two cores without SMT: 0-1 is the first cache."""
    return Topology(tuple(Cpu(n, n, n, n // 4, numa_of_cache(n // 2, n), n // 2) for n in range(8)))


def test_the_device_of_an_l3_cache_names_its_cache_socket_and_numa_node():
    devices = publish(chiplets(lambda cache, _cpu: cache // 2), offer(group_by=GroupBy.L3_CACHE, reserved=""))
    assert values(devices) == {f"cpudevl3cache00{cache}": 2 for cache in range(4)}
    assert dict(devices[3].attributes) == {
        "dra.cpu/cacheL3ID": 3,
        "dra.cpu/socketID": 1,
        "resource.kubernetes.io/numaNode": 1,
        "dra.cpu/numaNodeID": 1,
        "dra.net/numaNode": 1,
        "dra.cpu/numCPUs": 2,
        "dra.cpu/smtEnabled": False,
    }


def test_the_device_of_an_l3_cache_that_serves_two_numa_nodes_names_none():
    first, *_ = publish(chiplets(lambda _cache, cpu: cpu % 2), offer(group_by=GroupBy.L3_CACHE, reserved=""))
    assert dict(first.attributes) == {
        "dra.cpu/cacheL3ID": 0,
        "dra.cpu/socketID": 0,
        "dra.cpu/numCPUs": 2,
        "dra.cpu/smtEnabled": False,
    }


def test_individual_devices_are_listed_core_by_core_and_named_by_cpu():
    split = Topology(tuple(Cpu(number, number % 2, number % 2, 0, 0, -1) for number in range(4)))
    devices = publish(split, offer(mode=Mode.INDIVIDUAL, reserved=""))
    assert [device.name for device in devices] == ["cpudev000", "cpudev002", "cpudev001", "cpudev003"]
    assert dict(devices[1].attributes) == {
        "resource.kubernetes.io/numaNode": 0,
        "dra.cpu/numaNodeID": 0,
        "dra.net/numaNode": 0,
        "dra.cpu/socketID": 0,
        "dra.cpu/cpuID": 2,
        "dra.cpu/coreID": 0,
        "dra.cpu/coreType": "standard",
        "dra.cpu/smtEnabled": True,
    }
    assert all(device.capacity is None for device in devices)


def test_a_group_counts_its_own_shares_and_lacks_cpus_held_through_other_devices():
    own = publish(machine(), offer(held={"cpudevnuma001": "4-5"}))
    assert values(own)["cpudevnuma001"] == 4
    foreign = publish(machine(), offer(held={"cpudev004": "4", "cpudevmachine": "5"}))
    assert values(foreign)["cpudevnuma001"] == 2


def test_individual_devices_held_through_a_group_are_absent_and_those_held_by_themselves_stay():
    devices = publish(machine(), offer(mode=Mode.INDIVIDUAL, held={"cpudevnuma001": "4-5", "cpudev006": "6"}))
    assert [device.name for device in devices] == ["cpudev002", "cpudev003", "cpudev006", "cpudev007"]


def test_a_group_with_nothing_to_offer_is_absent():
    assert values(publish(machine(), offer(reserved="0-3"))) == {"cpudevnuma001": 4}
    assert values(publish(machine(), offer(held={"cpudevmachine": "4-7"}))) == {"cpudevnuma000": 2}


def test_every_capacity_has_a_policy_that_the_api_server_accepts():
    big = {device.name: capacity(device).policy for device in publish(machine(), offer())}
    assert big["cpudevnuma001"] == RequestPolicy(default=1, minimum=1, step=1)
    (single,) = publish(machine(sockets=1, cores=2, threads=1), offer(reserved="0"))
    assert capacity(single).value == 1
    assert capacity(single).policy == RequestPolicy(default=1, valid_values=(1,))


def test_full_cores_are_offered_in_steps_of_a_core_and_broken_cores_not_at_all():
    devices = publish(machine(), offer(reserved="0,4", full_cores=True))
    assert values(devices) == {"cpudevnuma000": 2, "cpudevnuma001": 2}
    assert capacity(devices[0]).policy == RequestPolicy(default=2, valid_values=(2,))
    (both,) = publish(machine(), offer(group_by=GroupBy.MACHINE, full_cores=True))
    assert capacity(both).policy == RequestPolicy(default=2, minimum=2, step=2)


def test_full_cores_do_not_offer_the_other_thread_of_a_core_that_a_former_share_holds():
    devices = publish(machine(), offer(full_cores=True, held={"cpudevnuma001": "4"}))
    # the scheduler counts one CPU as consumed, which leaves the two of the other core
    assert values(devices)["cpudevnuma001"] == 3


def test_every_device_has_the_taints():
    taint = Taint("dra.cpu/not-ready")
    for mode in Mode:
        assert {device.taints for device in publish(machine(), offer(mode=mode, taints=(taint,)))} == {(taint,)}


@pytest.mark.parametrize(
    ("device", "cpus"),
    [("cpudev003", "3"), ("cpudevnuma001", "4-7"), ("cpudevsocket000", "0-3"), ("cpudevmachine", "0-7")],
)
def test_a_device_of_any_representation_resolves_to_its_cpus(device, cpus):
    assert resolve(machine(), device) == CpuSet.parse(cpus)


@pytest.mark.parametrize("device", ["cpudev008", "cpudev3", "cpudev0003", "cpudevnuma002", "cpudevnuma1", "", "x"])
def test_a_name_that_this_machine_does_not_publish_resolves_to_nothing(device):
    assert resolve(machine(), device) is None


def test_a_published_device_belongs_to_the_settings_that_publish_it_and_to_no_others():
    for mode in Mode:
        for group_by in GroupBy:
            settings = Settings(mode, group_by)
            for other_mode in Mode:
                for other_group in GroupBy:
                    published = publish(machine(), offer(mode=other_mode, group_by=other_group, reserved="0"))
                    same = settings.representation == Settings(other_mode, other_group).representation
                    assert {belongs_to(device.name, settings) for device in published} == {same}


def test_devices_of_a_group_cover_every_cpu_once():
    for group_by in GroupBy:
        devices = publish(machine(), offer(group_by=group_by, reserved="0"))
        seen = EMPTY
        for device in devices:
            assert device.cpus.isdisjoint(seen)
            seen |= device.cpus
        assert seen == CpuSet(range(1, 8))


@pytest.mark.parametrize(
    ("device", "over"),
    [
        ("cpudevnuma000", Level.UNCORES),
        ("cpudevsocket001", Level.NUMA_NODES),
        ("cpudevmachine", Level.NUMA_NODES),
        ("cpudevl3cache003", Level.UNCORES),
    ],
)
def test_distributed_divides_a_request_over_the_next_smaller_groups(device, over):
    assert divided_over(device) is over
