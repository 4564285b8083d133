"""The driver of memory: its devices, the claims that it grants or refuses, and what it keeps of them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from nodes import NODE, SAFE_RUNTIME, claim_object, machine, ref, revived, share, spec, uid
from recorded_answers import lines

from dracpu_agent.claims import checkpoint
from dracpu_agent.claims.cpu_claim import CpuClaim
from dracpu_agent.claims.memory_claim import MemoryClaim, sizes_of
from dracpu_agent.claims.record import RecordError, decode_claim, encode_claim, freeze
from dracpu_agent.cluster.slices.render import render_device
from dracpu_agent.drivers.memory import MemoryDriver
from dracpu_agent.errors import ClaimError, PlacementError
from dracpu_agent.memory.inventory import Inventory, NumaMemory, Pages
from dracpu_agent.memory.kinds import MEMORY, Kind, Place
from dracpu_agent.memory.own_pages import Change
from dracpu_agent.node import NodeState
from dracpu_agent.placement.container import Container
from dracpu_api.cpuset import CpuSet
from dracpu_api.settings import MemorySettings, ReservedMemory

DRIVER = "dra.memory"
MI, GI = 1024**2, 1024**3
SMALL, LARGE = Kind(2 * MI), Kind(GI)
NOTHING_RESERVED = tuple(ReservedMemory(numa, (("memory", 0),)) for numa in (0, 1))
ENABLED = spec(memory=MemorySettings(enabled=True, reserved=NOTHING_RESERVED))


def inventory(small: int = 16, large: int = 1, memory: int = GI) -> Inventory:
    """Two NUMA nodes with this much ordinary memory each; the first has the pages."""
    pages = (Pages(2 * MI, small, small), Pages(GI, large, large))
    huge = sum(size.count * size.size for size in pages)
    first = NumaMemory(0, CpuSet((0,)), memory + huge, 4, pages)
    return Inventory((first, NumaMemory(1, CpuSet((1,)), memory, 4, ())))


def memory_driver(found: Inventory | None = None) -> MemoryDriver:
    driver = MemoryDriver(NODE, found or inventory(), machine())
    driver.system = 0
    driver.configure(ENABLED)
    return driver


def node(driver: MemoryDriver) -> NodeState:
    state = NodeState(NODE, machine(), [driver])
    state.configure(ENABLED)
    state.containers.connected(SAFE_RUNTIME)
    state.containers.synchronize([])
    return state


def some(device: str, size: int | str, request: str = "main") -> dict[str, Any]:
    """Builds an allocation result."""
    return share(device, 1, request) | {"driver": DRIVER, "consumedCapacity": {"size": str(size)}}


def granted(state: NodeState, number: int, *results: Mapping[str, Any], pods: Sequence[str] = ()) -> MemoryClaim:
    """Grants a claim, as Prepare does."""
    holding = state.holdings[DRIVER]
    claim = holding.grant(holding.driver.read(ref(number), claim_object(number, results, pods=pods))).claim
    assert isinstance(claim, MemoryClaim)
    return claim


def offered(driver: MemoryDriver) -> dict[str, int]:
    return {device.name: device.capacity.value for device in driver.devices(()) if device.capacity}


# ---- devices


def test_each_kind_of_memory_on_each_numa_node_is_a_device() -> None:
    assert offered(memory_driver()) == {
        "memory-numa000": GI,
        "hugepages-2mi-numa000": 32 * MI,
        "hugepages-1gi-numa000": GI,
        "memory-numa001": GI,
    }


def test_nothing_is_offered_without_settings() -> None:
    driver = MemoryDriver(NODE, inventory(), machine())
    assert driver.devices(()) == ()
    state = NodeState(NODE, machine(), [driver])
    with pytest.raises(ClaimError, match="no CpuDriverConfig selects it"):
        granted(state, 1, some("memory-numa000", MI))


@pytest.mark.parametrize("device", ["memory-numa000", "hugepages-2mi-numa000", "hugepages-1gi-numa000"])
def test_devices_have_the_form_that_a_real_scheduler_has_allocated(device: str) -> None:
    recorded = {found["name"]: found for case in lines("scheduler") for found in case.get("others", {}).get(DRIVER, ())}
    sizes = {name: found["capacity"]["size"]["value"] for name, found in recorded.items()}
    assert (sizes["hugepages-2mi-numa000"], sizes["hugepages-1gi-numa000"]) == ("1Gi", "1Gi")
    memory = int(sizes["memory-numa000"].removesuffix("Mi")) * MI
    driver = memory_driver(inventory(small=512, large=1, memory=memory))
    (rendered,) = [render_device(found) for found in driver.devices(()) if found.name == device]
    assert rendered == recorded[device]


def test_pages_that_are_made_just_now_are_promised_to_nobody_and_neither_is_their_memory() -> None:
    driver = memory_driver()
    driver.own_pages = driver.own_pages.intending(Change(Place(0, SMALL), 16, 272))
    assert offered(driver)["memory-numa000"] == GI - 512 * MI
    state = node(driver)
    for device, size in (("memory-numa000", GI - 511 * MI), ("hugepages-2mi-numa000", 34 * MI)):
        with pytest.raises(ClaimError, match="are not promised to others"):
            granted(state, 1, some(device, size))
    driver.inventory = inventory(small=272, memory=GI - 512 * MI)
    assert granted(state, 1, some("hugepages-2mi-numa000", 34 * MI)).size == 34 * MI


def test_a_restarted_agent_does_not_take_settings_that_it_has_not_read_for_none() -> None:
    state = node(memory_driver())
    kept = state.checkpoint()
    resumed, unread = (MemoryDriver(NODE, inventory(), machine()) for _ in range(2))
    revived(kept, others=[resumed])
    without = revived(replace(kept, spec=None), others=[unread])
    assert (resumed.settings_known, unread.settings_known) == (True, False)
    without.deconfigure()
    assert unread.settings_known


# ---- claims


@pytest.mark.parametrize("amount", ["32Mi", "33554432", "0.03125Gi", "33554432000m", "3.3554432e7", "32768Ki"])
def test_amounts_in_every_form_are_exact_bytes(amount: str) -> None:
    assert granted(node(memory_driver()), 1, some("hugepages-2mi-numa000", amount)).size == 32 * MI


@pytest.mark.parametrize(
    ("device", "amount", "why"),
    [
        ("hugepages-2mi-numa000", 3 * MI, "not a whole number of pages"),
        ("memory-numa000", "1.5", "request a whole number of bytes"),
        ("memory-numa000", "0", "request a whole number of bytes"),
        ("memory-numa000", "-1Mi", "request a whole number of bytes"),
        ("memory-numa0", MI, "has no device memory-numa0"),
        ("memory-numa000", 2 * GI, "asks for 2Gi, and 1Gi are not promised"),
        ("memory-numa002", MI, "does not offer memory on NUMA node 2"),
    ],
)
def test_amounts_that_are_not_there_are_refused(device: str, amount: int | str, why: str) -> None:
    with pytest.raises(ClaimError, match=why):
        granted(node(memory_driver()), 1, some(device, amount))


def test_a_claim_without_an_amount_names_the_feature_gate() -> None:
    result = share("memory-numa000", 1) | {"driver": DRIVER}
    del result["consumedCapacity"]
    with pytest.raises(ClaimError, match="DRAConsumableCapacity"):
        granted(node(memory_driver()), 1, result)


def test_a_claim_can_have_several_kinds_nodes_and_requests_of_one_kind() -> None:
    state = node(memory_driver())
    claim = granted(
        state,
        1,
        some("memory-numa000", 512 * MI, "a"),
        some("memory-numa001", 256 * MI, "a"),
        some("hugepages-2mi-numa000", 4 * MI, "b-pages"),
        some("memory-numa000", 128 * MI, "c"),
    )
    assert (
        claim.content
        == "640Mi of memory on NUMA node 0, 4Mi of hugepages_2Mi on NUMA node 0, 256Mi of memory on NUMA node 1"
    )
    variables = {name: dict(device.variables) for device in claim.cdi_devices() for name in [device.name]}
    assert variables == {
        f"dra.k8s.io/memory=claim-{uid(1)}-a": {
            f"DRAMEMORY_{uid(1)}_a_memory": "numanode:0,size:512Mi;numanode:1,size:256Mi",
            f"DRAMEMORY_{uid(1)}_a_NUMANodes": "0,1",
        },
        f"dra.k8s.io/memory=claim-{uid(1)}-b-pages": {
            f"DRAMEMORY_{uid(1)}_b_pages_hugepages_2Mi": "numanode:0,size:4Mi",
            f"DRAMEMORY_{uid(1)}_b_pages_NUMANodes": "0",
        },
        f"dra.k8s.io/memory=claim-{uid(1)}-c": {
            f"DRAMEMORY_{uid(1)}_c_memory": "numanode:0,size:128Mi",
            f"DRAMEMORY_{uid(1)}_c_NUMANodes": "0",
        },
    }


def test_all_requests_of_a_claim_together_must_be_there() -> None:
    with pytest.raises(ClaimError, match="request b: of memory on NUMA node 0 it asks for 512Mi, and 256Mi are not"):
        granted(node(memory_driver()), 1, some("memory-numa000", 768 * MI, "a"), some("memory-numa000", 512 * MI, "b"))


# ---- records


def test_a_record_is_read_back_with_fields_of_a_newer_agent() -> None:
    claim = granted(node(memory_driver()), 1, some("memory-numa000", 512 * MI))
    record = encode_claim(claim)
    record["grants"][0]["colour"] = "red"
    again = decode_claim(MemoryClaim, record)
    assert again.grants[0].place == Place(0, MEMORY)
    assert encode_claim(again) == record


@pytest.mark.parametrize("change", [{"bytes": 0}, {"numaNode": -1}, {"memoryKind": "hugepages_3XB"}, {"bytes": "1Mi"}])
def test_a_record_that_cannot_be_decoded_keeps_the_grants_that_can(change: dict[str, Any]) -> None:
    claim = granted(
        node(memory_driver()), 1, some("memory-numa000", 512 * MI, "a"), some("hugepages-2mi-numa000", 4 * MI, "b")
    )
    record = encode_claim(claim)
    record["grants"][0] |= change
    with pytest.raises(RecordError):
        decode_claim(MemoryClaim, record)
    frozen = freeze(MemoryClaim, uid(1), record, "why")
    assert [(grant.place, grant.size) for grant in frozen.grants] == [(Place(0, SMALL), 4 * MI)]
    assert encode_claim(frozen) == record


def test_a_frozen_claim_holds_the_most_that_its_record_or_its_cdi_file_names() -> None:
    claim = granted(
        node(memory_driver()), 1, some("memory-numa000", 512 * MI, "a"), some("hugepages-2mi-numa000", 4 * MI, "b")
    )
    record = encode_claim(claim)
    record["grants"][0]["bytes"] = "512Mi"
    expected = {Place(0, MEMORY): 512 * MI, Place(0, SMALL): 4 * MI}
    for devices, others in ((tuple(claim.cdi_devices()), ()), ((), claim.grants)):
        frozen = freeze(MemoryClaim, uid(1), record, "why", devices, others)
        assert sizes_of(frozen.grants) == expected


def test_an_agent_without_this_driver_keeps_its_claims_as_they_are() -> None:
    state = node(memory_driver())
    granted(state, 1, some("memory-numa000", 512 * MI))
    saved = checkpoint.encode(state.checkpoint())
    (claim,) = checkpoint.decode(saved).claims
    assert isinstance(claim, CpuClaim)
    assert claim.frozen is not None
    assert "kind memory, which this agent does not know" in claim.frozen.reason
    older = NodeState(NODE, machine())
    older.adopt(claim)
    (again,) = checkpoint.decode(checkpoint.encode(older.checkpoint()), (CpuClaim, MemoryClaim)).claims
    assert isinstance(again, MemoryClaim)
    assert again.content == "512Mi of memory on NUMA node 0"


# ---- what is there changes


def test_a_promise_that_cannot_be_kept_leaves_the_capacity_at_what_is_consumed() -> None:
    driver = memory_driver()
    state = node(driver)
    granted(state, 1, some("hugepages-2mi-numa000", 16 * MI))
    driver.inventory = inventory(small=4)
    assert offered(driver)["hugepages-2mi-numa000"] == 16 * MI
    assert driver.problems() == {
        "hugepages-2mi-numa000": "8Mi less of hugepages_2Mi on NUMA node 0 than claims were promised: pages were taken "
        "away, or the settings reserve more"
    }
    driver.inventory = inventory(small=16)
    assert offered(driver)["hugepages-2mi-numa000"] == 32 * MI
    assert driver.problems() == {}


class MemoryHistory(RuleBasedStateMachine):
    """Claims come, end, linger and are prepared again while pages come and go and the agent restarts."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = memory_driver()
        self.state = node(self.driver)
        self.kept: set[str] = set()  # claims for which a Prepare was answered
        self.containers: dict[str, Container] = {}
        self.made = 0

    @property
    def holding(self) -> Any:
        return self.state.holdings[DRIVER]

    @rule(
        number=st.integers(1, 6),
        device=st.sampled_from(["memory-numa000", "memory-numa001", "hugepages-2mi-numa000", "hugepages-1gi-numa000"]),
        parts=st.lists(st.integers(1, 8), min_size=1, max_size=3),
    )
    def prepare(self, number: int, device: str, parts: list[int]) -> None:
        unit = {"memory-numa000": 128 * MI, "memory-numa001": 128 * MI, "hugepages-2mi-numa000": 2 * MI}.get(device, GI)
        results = [some(device, part * unit, f"r{index}") for index, part in enumerate(parts)]
        there, before = self.driver.room(), dict(self.driver.promised())
        fresh = uid(number) not in self.holding
        try:
            granted(self.state, number, *results)
        except ClaimError:
            assert dict(self.driver.promised()) == before
            return
        if fresh:
            assert all(
                size <= there.get(place, 0)
                for place, size in self.driver.promised().items()
                if before.get(place) != size
            )
        self.kept.add(uid(number))

    @rule(number=st.integers(1, 6))
    def unprepare(self, number: int) -> None:
        self.holding.release(uid(number))
        self.kept.discard(uid(number))

    @precondition(lambda self: self.kept)
    @rule(data=st.data())
    def start_container(self, data: st.DataObject) -> None:
        claim_uid = data.draw(st.sampled_from(sorted(self.kept)))
        claim = self.holding[claim_uid]
        self.made += 1
        devices = tuple(device.name for device in claim.cdi_devices())
        name = f"c{self.made}"
        made = Container(name, name, "default", f"pod-{claim_uid}", f"pod-{claim_uid}", devices)
        try:
            self.state.containers.create(made)
        except PlacementError:
            return
        self.state.containers.created(made.id)
        self.containers[made.id] = made

    @precondition(lambda self: self.containers)
    @rule(data=st.data())
    def end_container(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.containers)))
        self.state.containers.ended(name)
        del self.containers[name]

    @rule(small=st.integers(0, 20), large=st.integers(0, 2))
    def change_pages(self, small: int, large: int) -> None:
        self.driver.inventory = inventory(small, large)
        self.state.refresh()

    @rule()
    def restart(self) -> None:
        found, before = self.driver.inventory, dict(self.driver.promised())
        saved = checkpoint.decode(checkpoint.encode(self.state.checkpoint()), self.state.claim_kinds())
        self.driver = memory_driver(found)
        self.state = revived(saved, machine(), [self.driver])
        self.state.containers.connected(SAFE_RUNTIME)
        self.state.containers.synchronize(list(self.containers.values()))
        assert dict(self.driver.promised()) == before

    @invariant()
    def every_prepared_claim_is_held(self) -> None:
        assert self.kept <= set(self.holding)

    @invariant()
    def the_scheduler_can_promise_no_more_than_is_there(self) -> None:
        there, promised = self.driver.room(), self.driver.promised()
        counted: dict[str, int] = {}
        for claim in self.holding.values():
            for grant in claim.grants if not claim.lingering else ():
                counted[grant.device] = counted.get(grant.device, 0) + grant.size
        for device, value in offered(self.driver).items():
            (place,) = [place for place in {*there, *promised} if place.device == device]
            left = value - counted.get(device, 0)
            assert left <= max(0, there.get(place, 0) - promised.get(place, 0))


TestMemoryHistory = MemoryHistory.TestCase
TestMemoryHistory.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
