"""The driver of memory: which containers may use a claim, and what each may use."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_claims_node import DRIVER, GI, MI, POD, OneNode, limits, pages, some
from nodes import claim_object, ref, spec, uid

from dracpu_agent.claims.request import ClaimRefusedError
from dracpu_agent.errors import ClaimError, NotReadyError, PlacementError, SettingsRefusedError
from dracpu_agent.memory.inventory import Inventory
from dracpu_agent.placement.container import Container
from dracpu_agent.placement.proof import UnknownConsumerError
from dracpu_api.names import TAINT_SETTLING
from dracpu_api.settings import MemorySettings, ReservedMemory

# ---- what containers may use


def test_a_container_is_bound_and_limited_by_its_claim() -> None:
    node = OneNode()
    devices = node.prepare(1, some("memory-numa001", 512 * MI, "a"), some("hugepages-2mi-numa001", 8 * MI, "b"))
    made = node.create("main", *devices)
    assert limits(made) == {"memory.max": str(512 * MI), "cpuset.mems": "1"} | pages(8 * MI)


def test_a_container_with_pages_on_another_node_than_its_memory_is_limited_and_not_bound() -> None:
    node = OneNode()
    devices = node.prepare(1, some("memory-numa000", 512 * MI, "a"), some("hugepages-2mi-numa001", 8 * MI, "b"))
    made = node.create("main", *devices)
    assert limits(made) == {"memory.max": str(512 * MI)} | pages(8 * MI)
    assert made.at_creation.preferred_nodes == (0, 1)


def test_a_container_without_claims_is_left_as_it_is() -> None:
    node = OneNode()
    node.prepare(1, some("hugepages-2mi-numa000", 8 * MI))
    assert limits(node.create("other", pod="pod-2")) == {}


def test_a_container_beside_one_with_pages_gets_what_the_spec_of_the_pod_asks_for() -> None:
    node = OneNode()
    node.prepare(1, some("hugepages-2mi-numa000", 8 * MI))
    assert limits(node.create("beside")) == pages(0)
    node.driver.pods.learn(POD, {2 * MI: 4 * MI, GI: 0})
    assert limits(node.create("another")) == pages(4 * MI)
    assert node.driver.pods.limits(POD) == {2 * MI: 12 * MI, GI: 0}


def test_a_claim_of_memory_alone_limits_no_pages() -> None:
    node = OneNode()
    (device,) = node.prepare(1, some("memory-numa000", 512 * MI))
    assert set(limits(node.create("main", device))) == {"memory.max", "cpuset.mems"}


def test_a_resize_of_the_spec_below_the_claim_limits_the_container_and_one_above_does_not() -> None:
    node = OneNode()
    (device,) = node.prepare(1, some("memory-numa000", 512 * MI))
    assert limits(node.create("main", device, memory_limit=GI))["memory.max"] == str(512 * MI)
    for limit, expected in ((256 * MI, 256 * MI), (None, 256 * MI), (GI, 512 * MI)):
        assert limits(node.resize("main-1", limit))["memory.max"] == str(expected)


# ---- who may share


def test_memory_serves_one_running_container_at_a_time() -> None:
    node = OneNode()
    (device,) = node.prepare(1, some("memory-numa000", 512 * MI))
    node.create("first", device)
    with pytest.raises(PlacementError, match="a request of memory that container first uses"):
        node.create("second", device)
    node.state.containers.ended("first-1")
    assert limits(node.create("second", device))["memory.max"] == str(512 * MI)


def test_a_container_that_is_created_again_gets_its_claim_again() -> None:
    node = OneNode()
    (device,) = node.prepare(1, some("memory-numa000", 512 * MI))
    node.create("main", device)
    assert limits(node.create("main", device))["memory.max"] == str(512 * MI)


def test_containers_with_requests_of_their_own_share_a_claim() -> None:
    node = OneNode()
    first, second = node.prepare(1, some("memory-numa000", 512 * MI, "a"), some("memory-numa000", 256 * MI, "b"))
    assert limits(node.create("first", first))["memory.max"] == str(512 * MI)
    assert limits(node.create("second", second))["memory.max"] == str(256 * MI)


def test_pages_are_shared_where_the_pod_has_no_other_request_of_their_size() -> None:
    node = OneNode()
    (device,) = node.prepare(1, some("hugepages-2mi-numa000", 8 * MI))
    assert limits(node.create("first", device)) == limits(node.create("second", device)) == pages(8 * MI)


def test_pages_are_not_shared_beside_another_request_of_their_size() -> None:
    node = OneNode()
    first, _ = node.prepare(1, some("hugepages-2mi-numa000", 8 * MI, "a"), some("hugepages-2mi-numa001", 4 * MI, "b"))
    node.create("first", first)
    with pytest.raises(PlacementError, match="the pod has other requests of this size"):
        node.create("second", first)


def test_a_claim_serves_one_pod() -> None:
    node = OneNode()
    with pytest.raises(ClaimError, match="memory serves one pod, and this claim is reserved for 2"):
        node.prepare(1, some("memory-numa000", MI * 512), pods=(POD, "pod-2"))
    (device,) = node.prepare(2, some("hugepages-2mi-numa000", 8 * MI))
    with pytest.raises(UnknownConsumerError, match="pod-2 is not the pod that the claim"):
        node.create("main", device, pod="pod-2")


def test_a_claim_that_a_second_pod_is_given_stays_with_the_first_one() -> None:
    node = OneNode()
    (device,) = node.prepare(1, some("hugepages-2mi-numa000", 8 * MI))
    holding = node.state.holdings[DRIVER]
    with pytest.raises(ClaimRefusedError, match="serves one pod, and it is reserved for 2"):
        holding.set_consumers(uid(1), frozenset((POD, "pod-2")))
    again = holding.driver.read(ref(1), claim_object(1, [some("hugepages-2mi-numa000", 8 * MI)], pods=(POD, "pod-2")))
    holding.grant(again)  # the kubelet prepares it again after its own restart
    with pytest.raises(UnknownConsumerError):
        node.create("main", device, pod="pod-2")
    assert node.driver.pods.claimed("pod-2") == {}
    assert limits(node.create("main", device)) == pages(8 * MI)


def test_a_claim_serves_the_next_pod_when_the_containers_of_the_former_one_have_ended() -> None:
    node = OneNode()
    (device,) = node.prepare(1, some("hugepages-2mi-numa000", 8 * MI))
    node.create("main", device)
    node.state.holdings[DRIVER].set_consumers(uid(1), frozenset(("pod-2",)))  # pod-1 was force-deleted
    node.driver.pods.learn("pod-2", {2 * MI: 0, GI: 0})
    with pytest.raises(PlacementError, match="that pod pod-1 uses: memory serves one pod"):
        node.create("main", device, pod="pod-2")
    node.state.containers.ended("main-1")
    assert limits(node.create("main", device, pod="pod-2")) == pages(8 * MI)


def test_a_container_that_runs_uses_its_claim_whatever_is_known_of_its_pod() -> None:
    node = OneNode()
    (device,) = node.prepare(1, some("memory-numa000", 512 * MI))
    node.state.containers.synchronize([Container("old", "main", "default", "pod-2", "pod-2", (device,))])
    assert node.state.containers.pods_of(node.state.holdings[DRIVER].key(uid(1))) == {"pod-2"}


def test_a_container_is_not_created_where_the_memory_of_its_claim_has_gone() -> None:
    node = OneNode()
    (device,) = node.prepare(1, some("memory-numa001", 512 * MI))
    node.driver.inventory = Inventory(node.driver.inventory.nodes[:1])
    with pytest.raises(PlacementError, match="on NUMA nodes that have none any more: 1"):
        node.create("main", device)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 1), st.sampled_from(["1", "2"])), min_size=1, max_size=4),
    st.integers(0, 4),
)
def test_containers_may_use_together_what_their_pod_may_use(parts: list[tuple[int, int, str]], own: int) -> None:
    node = OneNode()
    results = [some(f"hugepages-2mi-numa00{numa}", count * 2 * MI, f"r{request}") for count, numa, request in parts]
    devices = node.prepare(1, *results)
    node.driver.pods.learn(POD, {2 * MI: own * 2 * MI, GI: 0})
    claimed = [limits(node.create(f"c{index}", device))["hugetlb.2MB.max"] for index, device in enumerate(devices)]
    of_pod = node.driver.pods.limits(POD)[2 * MI]
    assert of_pod == own * 2 * MI + sum(count * 2 * MI for count, _, _ in parts)
    assert sum(int(limit) - own * 2 * MI for limit in claimed) + own * 2 * MI == of_pod


# ---- settings


def test_memory_that_is_offered_no_more_settles_and_drains_and_its_claims_stay() -> None:
    node = OneNode()
    node.prepare(1, some("memory-numa000", 512 * MI))
    node.state.configure(spec(settle_seconds=10))
    assert node.state.settling
    devices = node.driver.devices(())
    assert devices
    assert all(taint.key == TAINT_SETTLING for device in devices for taint in device.taints)
    node.state.settled()
    assert node.driver.devices(()) == ()
    assert [claim.uid for claim in node.state.draining()] == [uid(1)]
    node.state.holdings[DRIVER].release(uid(1))
    assert node.state.draining() == ()


def test_a_claim_that_was_allocated_before_memory_was_offered_no_more_is_prepared() -> None:
    node = OneNode()
    node.state.configure(spec())
    assert node.prepare(1, some("memory-numa000", 512 * MI))


def test_ordinary_memory_is_offered_when_it_is_known_what_the_kubelet_keeps() -> None:
    node = OneNode()
    node.driver.system = None
    assert {device.name for device in node.driver.devices(())} == {"hugepages-2mi-numa000", "hugepages-2mi-numa001"}
    node.state.configure(spec(memory=MemorySettings(True, reserved=(ReservedMemory(0, (("memory", GI),)),))))
    assert "memory-numa000" in {device.name for device in node.driver.devices(())}
    node.driver.system = 512 * MI
    assert "memory-numa001" in {device.name for device in node.driver.devices(())}


def test_a_claim_of_memory_is_retried_while_it_is_not_known_what_the_kubelet_keeps() -> None:
    node = OneNode()
    node.driver.system = None
    with pytest.raises(NotReadyError, match="the kubelet retries"):
        node.prepare(1, some("memory-numa000", 512 * MI))
    with pytest.raises(ClaimRefusedError, match="delete the pod"):
        node.prepare(1, some("memory-numa007", 512 * MI))
    node.driver.system = 0
    assert node.prepare(1, some("memory-numa000", 512 * MI))


@pytest.mark.parametrize(
    ("reserved", "why"),
    [
        (ReservedMemory(7, (("memory", GI),)), "NUMA node 7, which has no memory here: those with memory are 0, 1"),
        (ReservedMemory(0, (("hugepages_2Mi", 3 * MI),)), "3Mi is not a whole number of pages of hugepages_2Mi"),
    ],
)
def test_reservations_that_are_not_possible_here_are_refused(reserved: ReservedMemory, why: str) -> None:
    node = OneNode()
    with pytest.raises(SettingsRefusedError, match=why):
        node.state.configure(spec(memory=MemorySettings(True, reserved=(reserved,)), revision="r2"))
    assert node.driver.devices(()), "the former settings stay in force"


def test_settings_select_the_sizes_that_are_offered() -> None:
    node = OneNode()
    node.state.configure(spec(memory=MemorySettings(True, hugepages=())))
    assert {device.name for device in node.driver.devices(())} == {"memory-numa000", "memory-numa001"}
