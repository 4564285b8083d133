"""The distributed search: the brute force's answer without the brute force."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kubelet_rules import Shares, shares

from dracpu_agent.allocation.balance import balance

# free CPUs -> groups with as many
ENDLESS = {1: 2, 2: 1, 3: 2, 4: 1, 5: 4, 6: 3, 7: 6, 8: 5, 9: 5, 10: 2, 11: 2, 12: 1, 13: 3, 14: 2, 15: 3, 16: 6}


def searched(free: list[int], count: int, chunk: int, fewest: int) -> Shares | None:
    got = balance(free, count, chunk, fewest)
    return None if got is None else tuple((share.group, share.base, share.chunks) for share in got)


@settings(max_examples=500)
@given(
    free=st.lists(st.integers(1, 40), min_size=1, max_size=7),
    chunk=st.sampled_from([1, 1, 2, 3, 4]),
    part=st.floats(0, 1),
    fewest=st.integers(0, 7),
)
@example(free=[1, 9, 9, 1], chunk=2, part=1.0, fewest=1)  # the kubelet's endless loop: CPUs, but no whole chunks
@example(free=[4, 4, 4, 4, 31], chunk=1, part=0.5, fewest=2)  # one group far above the others takes every chunk
def test_the_search_answers_what_trying_everything_answers(
    free: list[int], chunk: int, part: float, fewest: int
) -> None:
    count = max(int(sum(free) // chunk * part), 1) * chunk
    assert searched(free, count, chunk, fewest) == shares(free, count, chunk, fewest)


@settings(max_examples=200)
@given(
    free=st.lists(st.integers(1000, 1006), min_size=4, max_size=5),
    uneven=st.integers(1, 50),
    taken=st.integers(1, 160),
    fewest=st.integers(2, 5),
)
@example(free=[1001, 1003, 1002, 1002, 1003], uneven=35, taken=158, fewest=5)
@example(free=[92, 3, 12, 3, 887, 13], uneven=574, taken=6, fewest=4)
def test_choices_that_round_to_the_same_evenness_are_equal_and_the_first_wins(
    free: list[int], uneven: int, taken: int, fewest: int
) -> None:
    # Where one group is far off, one CPU more or less elsewhere changes only the fourth decimal.
    groups = [*free, uneven]
    assert searched(groups, taken, 1, fewest) == shares(groups, taken, 1, fewest)


@settings(max_examples=60)
@given(
    free=st.lists(st.integers(1, 300), min_size=8, max_size=8),
    remainder=st.integers(0, 7),
    fewest=st.sampled_from([4, 6, 7, 8]),
)
def test_eight_groups_are_never_cut_short(free: list[int], remainder: int, fewest: int) -> None:
    count = min(fewest * (sorted(free)[-fewest] // 2) + remainder, sum(free)) or 1
    assert searched(free, count, 1, fewest) == shares(free, count, 1, fewest)


@settings(max_examples=60)
@given(
    free=st.lists(st.integers(1, 128), min_size=16, max_size=64),
    chunk=st.sampled_from([1, 2, 8]),
    part=st.floats(0.05, 0.95),
    fewest=st.integers(1, 64),
)
def test_any_number_of_groups_is_divided_rightly_and_in_bounded_time(
    free: list[int], chunk: int, part: float, fewest: int
) -> None:
    count = max(int(sum(free) // chunk * part), 1) * chunk
    got = balance(free, count, chunk, fewest)
    if got is None:
        return
    assert len(got) >= min(fewest, len(free))
    assert sum(share.base + share.chunks * chunk for share in got) == count
    assert all(share.base + share.chunks * chunk <= free[share.group] for share in got)
    assert [share.group for share in got] == sorted({share.group for share in got})


def test_the_search_ends_where_trying_everything_would_not() -> None:
    # Half of 48 groups, and no choice is as even as the bound hopes: without a limit this runs for minutes at least.
    free = [size for size, groups in ENDLESS.items() for _ in range(groups)]
    got = searched(free, 66, 1, 24)
    assert got is not None
    assert sum(base + chunks for _, base, chunks in got) == 66


@pytest.mark.parametrize(
    ("free", "count", "chunk", "fewest"),
    [
        ([3, 3], 6, 2, 1),  # six CPUs, but only two whole pairs
        ([5], 6, 1, 1),
        ([8, 8], 4, 2, 3),  # fewer groups than must take part
        ([], 1, 1, 1),
    ],
)
def test_what_cannot_be_divided_is_said(free: list[int], count: int, chunk: int, fewest: int) -> None:
    assert balance(free, count, chunk, fewest) is None


def test_of_equally_even_choices_the_first_is_taken() -> None:
    assert searched([8, 8, 8, 8], 8, 1, 2) == ((0, 4, 0), (1, 4, 0))
