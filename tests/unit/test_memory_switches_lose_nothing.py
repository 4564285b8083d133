"""Whatever memory the scheduler has given to a claim can be prepared, and is promised once, however often the devices
that offer it change meanwhile.

A model scheduler allocates what it finds in the slices, as the real one does: it counts what claims consume of a device
by the device's name and capacity. The operator's own function decides which claims are listed while the devices change.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from memory_beside_cpus import (
    GI,
    MI,
    beside,
    capacities,
    cpus_with,
    driver_of,
    inventory,
    memory_driver,
    memory_settings,
    of_memory,
    prepared,
    restarted,
    some,
    started,
)
from nodes import SAFE_RUNTIME, machine, spec, uid

from dracpu_agent.devices.device import Device
from dracpu_agent.drivers.memory_promises import memory_of
from dracpu_agent.errors import ClaimError, PlacementError
from dracpu_agent.memory.kinds import Kind, Place
from dracpu_agent.node import NodeState
from dracpu_agent.placement.container import Container
from dracpu_api.names import DRIVER, DRIVER_MEMORY, TAINT_SETTLING
from dracpu_api.settings import CpuNodeSpec, GroupBy, Mode, OutstandingClaim, OutstandingDevice, Publish
from dracpu_operator.decide.outstanding import outstanding

SMALL = Kind(2 * MI)
REPRESENTATIONS = st.sampled_from(
    [
        (publish, mode, group_by)
        for publish in (Publish.DEVICES, Publish.WITH_CPUS, None)
        for mode, group_by in ((Mode.GROUPED, GroupBy.NUMA_NODE), (Mode.GROUPED, GroupBy.SOCKET))
        if (publish, group_by) != (Publish.WITH_CPUS, GroupBy.SOCKET)  # the same as Devices
    ]
)
KINDS = {"memory": 64 * MI, "hugepages_2Mi": 2 * MI, "hugepages_1Gi": GI}
UNITS = {"dra.cpu/cpu": 1, **{f"dra.cpu/{kind}": unit for kind, unit in KINDS.items()}}
UNITS_WANTED = st.fixed_dictionaries(
    {
        "dra.cpu/cpu": st.just(1),
        "dra.cpu/memory": st.integers(0, 10),
        "dra.cpu/hugepages_2Mi": st.integers(0, 8),
        "dra.cpu/hugepages_1Gi": st.sampled_from([0, 0, 0, 1]),
    }
)
CLAIMS = st.lists(st.tuples(st.integers(0, 7), UNITS_WANTED), min_size=1, max_size=4)
Result = Mapping[str, Any]  # of an allocation


class Switching(RuleBasedStateMachine):
    """A node, with a scheduler, a kubelet, an operator and containers."""

    @initialize(representation=REPRESENTATIONS)
    def begin(self, representation: tuple[Publish | None, Mode, GroupBy]) -> None:
        self.pages = 16
        self.shrunk = False  # pages were taken away that were promised: from then on, claims may wait
        self.state = NodeState(
            "vm1", machine(sockets=2, cores=8, threads=1), [memory_driver(inventory(small=self.pages))]
        )
        self.state.configure(self.wanted(representation, 0))
        started(self.state)
        self.allocated: dict[int, list[Result]] = {}
        self.prepared: set[int] = set()
        self.containers: dict[str, Container] = {}
        self.number = 0
        self.before: Sequence[tuple[str, Device]] | None = None  # what a scheduler sees that is late

    def wanted(self, representation: tuple[Publish | None, Mode, GroupBy], seconds: int) -> CpuNodeSpec:
        publish, mode, group_by = representation
        memory = None if publish is None else memory_settings(publish)
        return spec(mode, group_by, memory=memory, settle_seconds=seconds)

    # ---- the scheduler

    def published(self, state: NodeState | None = None) -> list[tuple[str, Device]]:
        state = state or self.state
        return [(DRIVER, device) for device in state.devices()] + [
            (DRIVER_MEMORY, device) for device in driver_of(state).devices(state.taints)
        ]

    def consumed(self, device: str, capacity: str) -> int:
        results = (result for results in self.allocated.values() for result in results)
        return sum(int(result["consumedCapacity"].get(capacity, 0)) for result in results if result["device"] == device)

    def schedule(self, devices: Sequence[tuple[str, Device]], choice: int, units: Mapping[str, int]) -> None:
        if not devices:
            return
        driver, device = devices[choice % len(devices)]
        place = device.name.rpartition("-")[0].replace("-", "_").replace("mi", "Mi").replace("gi", "Gi")
        sizes = {"size": KINDS.get(place, 0) * (1 + units["dra.cpu/memory"])}
        wanted = sizes if driver == DRIVER_MEMORY else {name: UNITS[name] * number for name, number in units.items()}
        wanted = {name: size for name, size in wanted.items() if name in capacities(device)}
        if all(self.consumed(device.name, name) + wanted.get(name, 0) <= v for name, v in capacities(device).items()):
            self.number += 1
            amounts = {name: str(size) for name, size in wanted.items()}
            result = some(device.name, 0) if driver == DRIVER_MEMORY else cpus_with(device.name)
            self.allocated[self.number] = [{**result, "consumedCapacity": amounts}]

    @rule(wanted=CLAIMS)
    def claims_are_allocated(self, wanted: list[tuple[int, Mapping[str, int]]]) -> None:
        for choice, units in wanted:
            self.schedule([found for found in self.published() if not found[1].taints], choice, units)

    @precondition(lambda self: self.before)
    @rule(wanted=CLAIMS)
    def claims_are_allocated_by_a_scheduler_that_has_not_seen_the_taint(
        self, wanted: list[tuple[int, Mapping[str, int]]]
    ) -> None:
        for choice, units in wanted:
            self.schedule(self.before or (), choice, units)

    # ---- the kubelet

    @precondition(lambda self: len(self.allocated) > len(self.prepared))
    @rule(choice=st.integers(0, 100), count=st.integers(1, 3))
    def prepare(self, choice: int, count: int) -> None:
        numbers = sorted(set(self.allocated) - self.prepared)
        first = choice % len(numbers)
        for number in numbers[first : first + count]:
            self.prepare_one(number)

    def prepare_one(self, number: int) -> None:
        driver = driver_of(self.state)
        before, there = dict(driver.promised()), driver.room()
        known = uid(number) in {claim.ref.uid for claim in self.state.all_claims()}  # it lingers
        try:
            prepared(self.state, number, *self.allocated[number], pods=[f"pod-{number}"])
        except ClaimError:
            assert dict(driver.promised()) == before
            self.list_again(self.state)  # what is kept for claims that are gone: the kubelet tries again
            try:
                prepared(self.state, number, *self.allocated[number], pods=[f"pod-{number}"])
            except ClaimError:
                assert self.shrunk or self.containers, "what the scheduler gave can be prepared"
                return
        if not known:
            now = driver.promised()
            assert all(size <= there.get(place, 0) for place, size in now.items() if before.get(place, 0) != size)
        self.prepared.add(number)

    @precondition(lambda self: self.prepared)
    @rule(choice=st.integers(0, 100), comes_again=st.booleans())
    def unprepare(self, choice: int, comes_again: bool) -> None:
        numbers = sorted(self.prepared)
        number = numbers[choice % len(numbers)]
        self.prepared.discard(number)
        self.state.holdings[self.allocated[number][0]["driver"]].release(uid(number))
        if not comes_again:  # else: another pod of the same claim, which stays allocated
            del self.allocated[number]

    @precondition(lambda self: self.prepared)
    @rule(choice=st.integers(0, 100))
    def start_container(self, choice: int) -> None:
        numbers = sorted(self.prepared)
        number = numbers[choice % len(numbers)]
        claim = self.state.holdings[self.allocated[number][0]["driver"]][uid(number)]
        name, pod = f"c{number}", f"pod-{number}"
        made = Container(name, name, "default", pod, pod, tuple(device.name for device in claim.cdi_devices()))
        if name in self.containers:
            return
        try:
            self.state.containers.create(made)
        except PlacementError:
            return
        self.state.containers.created(name)
        self.containers[name] = made

    @precondition(lambda self: self.containers)
    @rule(choice=st.integers(0, 100))
    def end_container(self, choice: int) -> None:
        names = sorted(self.containers)
        name = names[choice % len(names)]
        self.state.containers.ended(name)
        del self.containers[name]

    # ---- the operator and the machine

    def listed(self, wanted: CpuNodeSpec) -> CpuNodeSpec:
        claims = [
            OutstandingClaim(uid(number), "default", f"claim-{number}", tuple(map(_listed, results)))
            for number, results in self.allocated.items()
        ]
        return replace(wanted, outstanding=outstanding(claims, wanted.settings, wanted.outstanding))

    def list_again(self, state: NodeState) -> None:
        assert state.spec is not None
        state.configure(self.listed(state.spec))

    @rule(representation=REPRESENTATIONS, seconds=st.sampled_from([0, 10]))
    def the_devices_change(self, representation: tuple[Publish | None, Mode, GroupBy], seconds: int) -> None:
        seen = self.published() if self.before is None else self.before
        self.state.configure(self.listed(self.wanted(representation, seconds)))
        self.before = seen if self.state.settling else None

    @rule()
    def claims_are_listed_again(self) -> None:
        self.list_again(self.state)

    @precondition(lambda self: self.state.settling)
    @rule()
    def the_node_settles(self) -> None:
        self.claims_are_listed_again()  # within settleSeconds
        self.state.settled()
        self.before = None

    @rule(small=st.integers(0, 20))
    def pages_come_and_go(self, small: int) -> None:
        self.pages = small
        driver = driver_of(self.state)
        driver.inventory = inventory(small=small)
        self.state.refresh()
        self.shrunk = self.shrunk or self.taken_of(Place(0, SMALL)) > small * 2 * MI

    @rule()
    def the_agent_restarts(self) -> None:
        before, published = dict(driver_of(self.state).promised()), self.published()
        self.state = restarted(self.state)
        self.state.containers.connected(SAFE_RUNTIME)
        self.state.containers.synchronize(list(self.containers.values()))
        assert dict(driver_of(self.state).promised()) == before
        assert self.published() == published

    # ---- what must hold

    def taken_of(self, place: Place) -> int:
        """The memory that claims hold or were given."""
        given = sum(_sizes(result).get(place, 0) for results in self.allocated.values() for result in results)
        gone = [
            memory_of(claim).get(place, 0)
            for claim in self.state.all_claims()
            if claim.ref.uid not in {uid(number) for number in self.allocated}
        ]
        return given + sum(gone)

    @invariant()
    def every_prepared_claim_is_held(self) -> None:
        for number in self.prepared:
            (result,) = self.allocated[number]
            claim = self.state.holdings[result["driver"]][uid(number)]
            assert memory_of(claim) == _sizes(result)

    @invariant()
    def memory_is_published_once(self) -> None:
        assert not (of_memory(self.state) and any(beside(self.state).values()))

    @invariant()
    def the_scheduler_can_promise_no_more_than_is_there(self) -> None:
        driver = driver_of(self.state)
        there = driver.room()
        for _, device in self.published():
            for name, value in capacities(device).items():
                place = _place(device.name, name)
                if place is None or any(taint.key == TAINT_SETTLING for taint in device.taints):
                    continue
                left = value - self.consumed(device.name, name)
                assert left <= max(0, there.get(place, 0) - driver.promised().get(place, 0))
                if not self.shrunk:
                    assert left <= max(0, there.get(place, 0) - self.taken_of(place))

    @invariant()
    def every_claim_that_is_allocated_could_be_prepared_now(self) -> None:
        if self.shrunk or self.containers:  # containers of a former allocation may hold something, too
            return
        numbers = sorted(set(self.allocated) - self.prepared)
        for order in (numbers, numbers[::-1]):
            trial = restarted(self.state)
            started(trial)
            self.list_again(trial)
            for number in order:
                prepared(trial, number, *self.allocated[number])


def _listed(result: Result) -> OutstandingDevice:
    amounts = tuple(sorted((place.kind.name, size) for place, size in _sizes(result).items()))
    cpus = int(result["consumedCapacity"].get("dra.cpu/cpu", 0))
    return OutstandingDevice(result["device"], cpus, result["driver"], amounts)


def _sizes(result: Result) -> dict[Place, int]:
    found = {_place(result["device"], name): int(size) for name, size in result["consumedCapacity"].items()}
    return {place: size for place, size in found.items() if place is not None and size}


def _place(device: str, capacity: str) -> Place | None:
    numa = int(device[-3:])
    if capacity == "size":
        return next(place for name in KINDS if (place := Place(numa, _kind(name))).device == device)
    name = capacity.removeprefix("dra.cpu/")
    return None if name == "cpu" else Place(numa, _kind(name))


def _kind(name: str) -> Kind:
    kind = Kind.named(name)
    assert kind is not None
    return kind


TestMemorySwitching = Switching.TestCase
TestMemorySwitching.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
