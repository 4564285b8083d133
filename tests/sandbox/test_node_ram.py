"""The memory of a simulated machine adds up, whatever containers and administrators do with it."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dracpu_sandbox.machines.description import Memory, equipped
from dracpu_sandbox.node.ram import ORDINARY, Ram

MI = 1 << 20
SMALL = 2 * MI
NODES = (0, 1)
OWNERS = ("pods/a/one", "pods/a/two", "pods/b/one")

steps = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.sampled_from(OWNERS), st.sampled_from([ORDINARY, SMALL]), st.integers(1, 400)),
        st.tuples(st.just("reserve"), st.sampled_from(OWNERS), st.just(SMALL), st.integers(1, 100)),
        st.tuples(st.just("release"), st.sampled_from(OWNERS)),
        st.tuples(st.just("pages"), st.sampled_from(NODES), st.integers(0, 2000)),
    ),
    max_size=40,
)


def play(ram: Ram, step: tuple[Any, ...]) -> None:
    """Does a step if the kernel allows it."""
    match step:
        case ("take", owner, page, count):
            size = count * SMALL
            if ram.left(page, NODES) >= size:
                if page != ORDINARY:
                    ram.reserve(owner, page, size)
                ram.touch(owner, page, size, NODES)
        case ("reserve", owner, page, count):
            if ram.left(page, NODES) >= count * page:
                ram.reserve(owner, page, count * page)
        case ("release", owner):
            ram.release(owner)
        case ("pages", numa, count):
            ram.set_pages(SMALL, numa, count)


@given(steps)
def test_no_node_gives_more_than_it_has_and_its_files_agree_with_what_containers_hold(history) -> None:
    ram = Ram(equipped(NODES, 1, small=100))
    for step in history:
        play(ram, step)
        banks = {bank.numa: bank for bank in ram.banks()}
        for numa, bank in banks.items():
            counts = {size * 1024: (count, free, surplus) for size, count, free, surplus in bank.pages}
            count, free, surplus = counts[SMALL]
            assert 0 <= free <= count
            assert 0 <= surplus <= count
            assert not (surplus and free)  # a surplus page vanishes as soon as it is free
            assert (count - free) * SMALL == ram.by_node("", SMALL)[numa]
            assert bank.used + count * SMALL // 1024 <= bank.kib
            assert bank.used * 1024 >= ram.by_node("", ORDINARY)[numa]
        for page in (ORDINARY, SMALL):
            parts = [ram.touched(cgroup, page) for cgroup in ("pods/a", "pods/b")]
            assert sum(parts) == ram.touched("pods", page) == ram.touched("", page)
            assert ram.reserved("pods", page) >= ram.touched("pods", page)


@given(steps)
def test_everything_is_free_again_when_all_containers_have_ended(history) -> None:
    ram = Ram(equipped(NODES, 1, small=100))
    for step in history:
        if step[0] != "pages":
            play(ram, step)
    for owner in OWNERS:
        ram.release(owner)
    assert ram.banks() == Ram(equipped(NODES, 1, small=100)).banks()
    assert not ram.owners()


def test_cgroups_are_distinguished_by_whole_names() -> None:
    ram = Ram(equipped(NODES, 1))
    ram.touch("pods/ab/one", ORDINARY, MI, NODES)
    assert (ram.touched("pods/a", ORDINARY), ram.touched("pods/ab", ORDINARY)) == (0, MI)


def test_pages_that_programs_of_the_host_use_are_not_free() -> None:
    ram = Ram([Memory(0, 1 << 20, ((2048, 10, 4, 0),))])
    assert ram.left(SMALL, [0]) == 4 * SMALL
    assert ram.banks()[0].pages == ((2048, 10, 4, 0),)
