"""Hugepages are made of memory that nobody has, and only those are given back that the agent has made itself."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from page_plans import (
    BESIDE,
    GI,
    HERE,
    LARGE,
    MI,
    NOTHING_RESERVED,
    OTHER,
    SMALL,
    changes,
    found,
    inventory,
    made,
    promises,
)

from dracpu_agent.memory.available import available_in
from dracpu_agent.memory.kinds import MEMORY, Kind, Place
from dracpu_agent.memory.own_pages import OwnPages, own_pages
from dracpu_agent.memory.provision import (
    NOT_FREE,
    PROMISED,
    SURPLUS,
    TOO_LARGE,
    UNSUPPORTED,
    Found,
    Plan,
    Promises,
    kept_free,
    lacking,
    plan,
    too_many,
    wanted_pages,
)
from dracpu_agent.memory.room import OfferSettings, room
from dracpu_agent.topology.topology import TopologyError
from dracpu_api.settings import MemorySettings, ProvisionedPages

# ---- making pages


def test_missing_pages_are_made() -> None:
    answer = plan(found(inventory(small=64)), {HERE: 512, OTHER: 10}, OwnPages(), promises())
    assert changes(answer) == {HERE: (64, 512), OTHER: (0, 10)}
    assert not answer.reasons


@pytest.mark.parametrize("there", [512, 600])
def test_nothing_is_changed_where_there_are_enough(there: int) -> None:
    machine = inventory(small=there)
    assert plan(found(machine), {HERE: 512}, OwnPages(), promises()) == Plan((), {})


def test_some_memory_stays_free() -> None:
    answer = plan(found(inventory(), kept_free(4 * GI) + 21 * MI), {HERE: 512}, OwnPages(), promises())
    assert changes(answer) == {HERE: (0, 10)}
    assert answer.reasons == {HERE: NOT_FREE}


def test_small_numa_nodes_keep_what_the_kubelet_keeps_free_of_a_machine() -> None:
    assert (kept_free(GI), kept_free(100 * GI)) == (100 * MI, 5 * GI)


def test_a_high_threshold_for_evicting_pods_is_kept_free() -> None:
    """It is a part of what the kubelet keeps for the system, and of that each NUMA node has its share."""
    kept = promises(system=2 * GI)
    answer = plan(found(inventory(), GI + 21 * MI), {HERE: 512}, OwnPages(), kept)
    assert (changes(answer), answer.reasons) == ({HERE: (0, 10)}, {HERE: NOT_FREE})


def test_memory_that_claims_have_and_do_not_use_yet_stays_free() -> None:
    available = kept_free(4 * GI) + GI
    given_out = {Place(0, MEMORY): GI - 20 * MI}
    answer = plan(found(inventory(), available), {HERE: 512}, OwnPages(), promises(given_out))
    assert (changes(answer), answer.reasons) == ({HERE: (0, 10)}, {HERE: NOT_FREE})
    using = replace(promises(given_out), used={Place(0, MEMORY): 100 * MI})
    assert changes(plan(found(inventory(), available), {HERE: 512}, OwnPages(), using)) == {HERE: (0, 60)}


def test_files_are_dropped_to_make_pages() -> None:
    answer = plan(found(inventory(), kept_free(4 * GI), files=21 * MI), {HERE: 512}, OwnPages(), promises())
    assert changes(answer) == {HERE: (0, 10)}


def test_files_that_containers_with_claims_use_are_not_dropped() -> None:
    """They count as used, and their memory is the claim's when they are dropped."""
    given_out = {Place(0, MEMORY): GI}
    using = replace(promises(given_out), used=given_out)
    answer = plan(found(inventory(), kept_free(4 * GI) + 21 * MI, files=GI), {HERE: 512}, OwnPages(), using)
    assert changes(answer) == {HERE: (0, 10)}


def test_promised_memory_is_not_made_into_pages() -> None:
    given_out = {Place(0, MEMORY): 4 * GI - 20 * MI}
    using = replace(promises(given_out), used=given_out)
    answer = plan(found(inventory()), {HERE: 512}, OwnPages(), using)
    assert (changes(answer), answer.reasons) == ({HERE: (0, 10)}, {HERE: PROMISED})


def test_reserved_memory_is_not_made_into_pages() -> None:
    offer_settings = OfferSettings(reserved={Place(0, MEMORY): 4 * GI - 30 * MI})
    answer = plan(found(inventory()), {HERE: 512}, OwnPages(), promises(offer_settings=offer_settings))
    assert (changes(answer), answer.reasons) == ({HERE: (0, 15)}, {HERE: PROMISED})


def test_memory_that_is_not_offered_is_not_made_into_pages() -> None:
    """It may be a GPU's, or it is not known yet how much of it the kubelet keeps."""
    nothing = Promises(lambda _: {})
    assert plan(found(inventory()), {HERE: 512}, OwnPages(), nothing) == Plan((), {HERE: PROMISED})


def test_pages_on_a_numa_node_do_not_break_promises_on_another() -> None:
    """What the kubelet keeps for the system is spread by size: with pages on one NUMA node, the others bear more."""
    kept = promises({Place(1, MEMORY): 3 * GI - 64 * MI}, offer_settings=OfferSettings(), system=2 * GI)
    answer = plan(found(inventory()), {HERE: 1000}, OwnPages(), kept)
    ((_, pages),) = changes(answer).values()
    assert 0 < pages < 1000
    assert answer.reasons == {HERE: PROMISED}
    (one_more,) = (replace(change, then=pages + 1) for change in answer.changes)
    assert [kept.survive(inventory(), inventory(small=there)) for there in (pages, one_more.then)] == [True, False]


def test_a_broken_promise_elsewhere_does_not_keep_pages_from_being_made() -> None:
    broken = promises({Place(1, MEMORY): 5 * GI})
    assert changes(plan(found(inventory()), {HERE: 10}, OwnPages(), broken)) == {HERE: (0, 10)}


def test_the_sizes_of_a_numa_node_share_what_is_free_and_large_pages_come_first() -> None:
    answer = plan(found(inventory(), kept_free(4 * GI) + 70 * MI), {HERE: 9, BESIDE: 2}, OwnPages(), promises())
    assert (changes(answer), answer.reasons) == ({BESIDE: (0, 2), HERE: (0, 3)}, {HERE: NOT_FREE})


def test_the_sizes_of_a_numa_node_share_what_is_not_promised() -> None:
    given_out = {Place(0, MEMORY): 4 * GI - 70 * MI}
    using = replace(promises(given_out), used=given_out)
    answer = plan(found(inventory()), {HERE: 9, BESIDE: 2}, OwnPages(), using)
    assert (changes(answer), answer.reasons) == ({BESIDE: (0, 2), HERE: (0, 3)}, {HERE: PROMISED})


@pytest.mark.parametrize(
    ("place", "reason"),
    [(Place(0, LARGE), TOO_LARGE), (Place(0, Kind(MI)), UNSUPPORTED), (Place(5, SMALL), UNSUPPORTED)],
)
def test_pages_that_cannot_be_made(place: Place, reason: str) -> None:
    assert plan(found(inventory()), {place: 1}, OwnPages(), promises()) == Plan((), {place: reason})


def test_nothing_is_written_while_other_numa_nodes_have_surplus_pages() -> None:
    """Some kernels would count these in."""
    machine = inventory(small=8, surplus=3, other=8)
    own = made(OTHER, 8, machine)
    assert plan(found(machine), {OTHER: 10}, own, promises()) == Plan((), {OTHER: SURPLUS})
    assert plan(found(machine), {}, own, promises()).changes == ()
    assert changes(plan(found(machine), {HERE: 10}, own, promises())) == {HERE: (8, 10)}


# ---- giving pages back


@pytest.mark.parametrize(("wanted", "left"), [({}, 64), ({HERE: 100}, 100), ({HERE: 64}, 64), ({HERE: 1}, 64)], ids=str)
def test_only_pages_that_the_agent_has_made_are_given_back(wanted: Mapping[Place, int], left: int) -> None:
    machine = inventory(small=512)
    own = made(HERE, 448, machine)
    assert changes(plan(found(machine), wanted, own, promises())) == {HERE: (512, left)}
    assert too_many(machine, wanted, own) == {HERE: 512 - left}


def test_pages_in_use_are_not_given_back() -> None:
    machine = inventory(small=512, free=12)
    assert changes(plan(found(machine), {}, made(HERE, 448, machine), promises())) == {HERE: (512, 500)}


def test_pages_that_programs_have_mapped_are_not_given_back() -> None:
    machine = inventory(small=512, free=12)
    answer = plan(found(machine, mapped=10), {}, made(HERE, 448, machine), promises())
    assert changes(answer) == {HERE: (512, 510)}


def test_promised_pages_are_not_given_back() -> None:
    machine = inventory(small=512)
    own = made(HERE, 512, machine)
    assert changes(plan(found(machine), {}, own, promises({HERE: 200 * MI}))) == {HERE: (512, 100)}


def test_a_promise_may_be_used_by_pages_that_are_not_free() -> None:
    machine = inventory(small=512, free=412)
    own = made(HERE, 512, machine)
    kept = promises({HERE: 200 * MI})
    assert changes(plan(found(machine), {}, own, kept)) == {HERE: (512, 200)}, "others may use the hundred"
    using = replace(kept, used={HERE: 200 * MI})
    assert changes(plan(found(machine), {}, own, using)) == {HERE: (512, 100)}


def test_pages_that_the_settings_reserve_for_others_are_not_given_back() -> None:
    machine = inventory(small=512)
    kept = promises(offer_settings=OfferSettings(reserved={HERE: 24 * MI}))
    assert changes(plan(found(machine), {}, made(HERE, 512, machine), kept)) == {HERE: (512, 12)}


class Machine(RuleBasedStateMachine):
    """An agent, others that make and take pages, claims, and a kernel that gives fewer pages than it is asked for."""

    @initialize(small=st.integers(0, 600))
    def start(self, small: int) -> None:
        self.small, self.used, self.boot = small, 0, 1
        self.others = small  # what others have made and not taken away themselves
        self.promised: dict[Place, int] = {}
        self.own = OwnPages()
        self.stored: object = {}

    def see(self) -> Found:
        return replace(found(inventory(self.small, self.small - self.used)), boot=str(self.boot))

    @rule(wanted=st.integers(0, 1200), gives=st.integers(0, 1200), killed=st.sampled_from(["", "before", "after"]))
    def work(self, wanted: int, gives: int, killed: str) -> None:
        """The agent changes pages once; it may be killed just before or just after the write."""
        seen = self.see()
        self.own = self.own.observed(seen.inventory, seen.boot)
        kept = promises(self.promised)
        before = room(seen.inventory, NOTHING_RESERVED)
        answer = plan(seen, {HERE: wanted}, self.own, kept)
        for change in answer.changes:
            intended = self.own.intending(change)
            self.stored = (intended if change.grows else self.own).state()
            now = room(intended.cautious(seen.inventory), NOTHING_RESERVED)
            for place, size in self.promised.items():
                assert now.get(place, 0) >= min(size, before.get(place, 0))
            if killed != "before":
                self.small += min(change.then - change.now, gives)
            self.own = intended
        assert self.small <= max(wanted, seen.inventory.by_numa[0].pages_of(SMALL.page).count)
        if killed:
            self.own = own_pages(self.stored)
        self.own = self.own.observed(self.see().inventory, str(self.boot))
        self.stored = self.own.state()

    @rule(to=st.integers(0, 1200), restarted=st.booleans())
    def others_change_pages(self, to: int, restarted: bool) -> None:
        """The agent notices, perhaps only when it has been restarted."""
        to = max(to, self.used, self.promised.get(HERE, 0) // SMALL.page)
        self.others = max(0, min(to, self.others + max(0, to - self.small)))
        self.small = to
        self.own = own_pages(self.stored) if restarted else self.own
        self.own = self.own.observed(self.see().inventory, str(self.boot))
        self.stored = self.own.state()

    @rule(pages=st.integers(0, 300))
    def programs_use(self, pages: int) -> None:
        self.used = min(self.small, pages)

    @rule(pages=st.integers(0, 300), memory=st.integers(0, 3))
    def claims_are_given(self, pages: int, memory: int) -> None:
        there = room(inventory(self.small), NOTHING_RESERVED)
        wish = {HERE: pages * SMALL.page, Place(0, MEMORY): memory * GI}
        self.promised = {place: min(size, there.get(place, 0)) for place, size in wish.items()}

    @rule(small=st.integers(0, 600))
    def restart(self, small: int) -> None:
        """Pages of the boot line may be as many as before, or not."""
        self.boot += 1
        self.small = self.others = max(small, self.promised.get(HERE, 0) // SMALL.page)
        self.used = 0

    @invariant()
    def others_keep_their_pages(self) -> None:
        if hasattr(self, "small"):
            assert self.small - self.own_pages_now() >= self.others

    def own_pages_now(self) -> int:
        return self.own.observed(inventory(self.small), str(self.boot)).of(HERE)

    @invariant()
    def promises_are_kept(self) -> None:
        if hasattr(self, "small"):
            assert self.small * SMALL.page >= self.promised.get(HERE, 0)
            assert self.used <= self.small


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


# ---- inputs


def test_the_settings_want_pages_only_where_they_offer_memory() -> None:
    memory = MemorySettings(enabled=True, provision=(ProvisionedPages(0, 2 * MI, 512), ProvisionedPages(1, 2 * MI, 3)))
    assert wanted_pages(memory) == {HERE: 512, OTHER: 3}
    assert wanted_pages(replace(memory, enabled=False)) == {}
    assert lacking(inventory(small=500, other=3), wanted_pages(memory)) == {HERE: 12}


def test_memory_is_available_if_it_is_free_or_holds_files_that_are_on_the_disk() -> None:
    meminfo = "".join(
        f"Node 0 {name}: {size} kB\n"
        for name, size in (
            ("MemTotal", 9000),
            ("MemFree", 1000),
            ("Active(anon)", 4000),
            ("Active(file)", 300),
            ("Inactive(file)", 200),
            ("Dirty", 50),
            ("Writeback", 7),
        )
    )
    assert available_in(f"{meminfo}Node 0 HugePages_Free:     0\n", "meminfo") == (1000 * 1024, (500 - 57) * 1024)
    assert available_in("Node 0 MemFree: 7 kB\nNode 0 Dirty: 50 kB\n", "meminfo") == (7 * 1024, 0)
    with pytest.raises(TopologyError, match="meminfo has no MemFree"):
        available_in("", "meminfo")


@given(st.integers(0, 5000), st.integers(0, 4 * GI), st.integers(0, 4 * GI), st.integers(0, 3 * GI), st.integers(0, GI))
def test_no_promise_is_broken_and_memory_stays_free(
    wanted: int, available: int, here: int, there: int, system: int
) -> None:
    given_out = {Place(0, MEMORY): here, Place(1, MEMORY): there}
    kept = promises(given_out, offer_settings=OfferSettings(), system=system)
    machine = inventory()
    for change in plan(found(machine, available), {HERE: wanted}, OwnPages(), kept).changes:
        made_of = (change.then - change.now) * SMALL.page
        assert change.then <= wanted
        assert available - made_of >= max(kept_free(4 * GI), system // 2) + here
        after, before = kept.room(inventory(small=change.then)), kept.room(machine)
        assert all(after.get(place, 0) >= min(size, before.get(place, 0)) for place, size in given_out.items())
