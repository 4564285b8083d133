"""Which hugepages count as made by the agent, and what counts as pages while it makes or gives back some."""

import pytest
from page_plans import GI, HERE, MI, NOTHING_RESERVED, changes, found, inventory, made, promises

from dracpu_agent.memory.kinds import MEMORY, Place
from dracpu_agent.memory.own_pages import Change, OwnPages, count, own_pages
from dracpu_agent.memory.provision import (
    plan,
)
from dracpu_agent.memory.room import room


def test_pages_that_others_take_away_count_as_the_agents() -> None:
    own = made(HERE, 448, inventory(small=512)).observed(inventory(small=100), "boot 1")
    assert own.of(HERE) == 36
    assert own.observed(inventory(small=600), "boot 1").of(HERE) == 36


def test_pages_that_others_add_are_no_reason_to_give_any_back() -> None:
    """Otherwise the agent would undo what an administrator does."""
    own = made(HERE, 448, inventory(small=512)).observed(inventory(small=600), "boot 1")
    machine = inventory(small=600)
    assert plan(found(machine), {HERE: 512}, own, promises()).changes == ()
    assert changes(plan(found(machine), {HERE: 500}, own, promises())) == {HERE: (600, 500)}
    assert changes(plan(found(machine), {}, own, promises())) == {HERE: (600, 152)}


def test_nothing_is_the_agents_after_the_machine_was_restarted() -> None:
    own = made(HERE, 448, inventory(small=512))
    assert own.observed(inventory(small=512), "boot 2").places == ()


def test_the_record_survives_a_restart_of_the_agent() -> None:
    own = made(HERE, 448, inventory(small=512))
    assert own_pages(own.state()).observed(inventory(small=512), "boot 1").of(HERE) == 448


@pytest.mark.parametrize(
    "state",
    [
        None,
        [],
        {"pools": 1},
        {"boot": "boot 1", "pools": {"pages": {"own": 1, "total": 1, "others": 0}}},
        {"boot": "boot 1", "pools": {"memory-numa000": {"own": 1, "total": 1, "others": 0}}},
        {"boot": "boot 1", "pools": {"hugepages-2mi-numa000": {"own": 3, "total": 2, "others": 0}}},
        {"boot": "boot 1", "pools": {"hugepages-2mi-numa000": {"own": 1}}},
        {"boot": "boot 1", "pools": {"hugepages-2mi-numa000": "x"}},
    ],
)
def test_what_cannot_be_read_counts_as_made_by_others(state: object) -> None:
    assert own_pages(state).places == ()


def test_while_pages_are_made_they_are_neither_ordinary_memory_nor_pages() -> None:
    own = OwnPages().intending(Change(HERE, 0, 512))
    assert room(own.cautious(inventory()), NOTHING_RESERVED) == {Place(0, MEMORY): 3 * GI, Place(1, MEMORY): 4 * GI}
    assert room(own.cautious(inventory(small=512)), NOTHING_RESERVED)[HERE] == GI


def test_while_pages_are_given_back_they_are_neither_ordinary_memory_nor_pages() -> None:
    machine = inventory(small=512)
    own = made(HERE, 512, machine).intending(Change(HERE, 512, 0))
    assert room(own.cautious(machine), NOTHING_RESERVED) == {Place(0, MEMORY): 3 * GI, Place(1, MEMORY): 4 * GI}
    assert own.observed(inventory(), "boot 1").places == ()


@pytest.mark.parametrize("there", [0, 100, 512])
def test_a_change_of_several_steps_counts_as_a_whole_from_its_beginning(there: int) -> None:
    """While it goes on, the pages of earlier steps are there, and the memory of later ones is not."""
    own = OwnPages().aiming({HERE: 512}).observed(inventory(small=there), "boot 1")
    now = room(own.cautious(inventory(small=there)), NOTHING_RESERVED)
    assert (now.get(HERE, 0), now[Place(0, MEMORY)]) == (there * 2 * MI, 3 * GI)
    over = own.aiming({})
    assert over.cautious(inventory(small=there)) == inventory(small=there)
    assert over.state() == own.state()


def test_pages_that_will_be_given_back_are_nobodys_until_all_of_them_are_gone() -> None:
    own = made(HERE, 512, inventory(small=512)).aiming({HERE: 100})
    for machine in (inventory(small=512), inventory(small=300), inventory(small=100)):
        now = room(own.observed(machine, "boot 1").cautious(machine), NOTHING_RESERVED)
        still = count(machine, HERE) * 2 * MI
        assert (now[HERE], now[Place(0, MEMORY)]) == (200 * MI, 4 * GI - still)
