"""The distributed search returns the answer of a brute-force search, in bounded time."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kubelet_rules import Parts, parts

from dracpu_agent.allocation.balance import balance

# free CPUs -> groups with as many
ENDLESS = {1: 2, 2: 1, 3: 2, 4: 1, 5: 4, 6: 3, 7: 6, 8: 5, 9: 5, 10: 2, 11: 2, 12: 1, 13: 3, 14: 2, 15: 3, 16: 6}


def searched(free: list[int], count: int, chunk: int, fewest: int) -> Parts | None:
    got = balance(free, count, chunk, fewest)
    return None if got is None else tuple((part.group, part.base, part.chunks) for part in got)


@settings(max_examples=500)
@given(
    free=st.lists(st.integers(1, 40), min_size=1, max_size=7),
    chunk=st.sampled_from([1, 1, 2, 3, 4]),
    fraction=st.floats(0, 1),
    fewest=st.integers(0, 7),
)
@example(free=[1, 9, 9, 1], chunk=2, fraction=1.0, fewest=1)  # endless in the kubelet: too few whole chunks
@example(free=[4, 4, 4, 4, 31], chunk=1, fraction=0.5, fewest=2)  # one group far above the others takes every chunk
def test_the_search_agrees_with_brute_force(free: list[int], chunk: int, fraction: float, fewest: int) -> None:
    count = max(int(sum(free) // chunk * fraction), 1) * chunk
    assert searched(free, count, chunk, fewest) == parts(free, count, chunk, fewest)


@settings(max_examples=200)
@given(
    free=st.lists(st.integers(1000, 1006), min_size=4, max_size=5),
    uneven=st.integers(1, 50),
    taken=st.integers(1, 160),
    fewest=st.integers(2, 5),
)
@example(free=[1001, 1003, 1002, 1002, 1003], uneven=35, taken=158, fewest=5)
@example(free=[92, 3, 12, 3, 887, 13], uneven=574, taken=6, fewest=4)
def test_the_first_of_several_choices_with_equal_rounded_scores_is_used(
    free: list[int], uneven: int, taken: int, fewest: int
) -> None:
    # Where one group is far off, one CPU more or less elsewhere changes only the fourth decimal.
    groups = [*free, uneven]
    assert searched(groups, taken, 1, fewest) == parts(groups, taken, 1, fewest)


@settings(max_examples=60)
@given(
    free=st.lists(st.integers(1, 300), min_size=8, max_size=8),
    remainder=st.integers(0, 7),
    fewest=st.sampled_from([4, 6, 7, 8]),
)
def test_the_search_among_eight_groups_is_never_cut_short(free: list[int], remainder: int, fewest: int) -> None:
    count = min(fewest * (sorted(free)[-fewest] // 2) + remainder, sum(free)) or 1
    assert searched(free, count, 1, fewest) == parts(free, count, 1, fewest)


@settings(max_examples=60)
@given(
    free=st.lists(st.integers(1, 128), min_size=16, max_size=64),
    chunk=st.sampled_from([1, 2, 8]),
    fraction=st.floats(0.05, 0.95),
    fewest=st.integers(1, 64),
)
def test_any_number_of_groups_is_divided_correctly_in_bounded_time(
    free: list[int], chunk: int, fraction: float, fewest: int
) -> None:
    count = max(int(sum(free) // chunk * fraction), 1) * chunk
    got = balance(free, count, chunk, fewest)
    if got is None:
        return
    assert len(got) >= min(fewest, len(free))
    assert sum(part.base + part.chunks * chunk for part in got) == count
    assert all(part.base + part.chunks * chunk <= free[part.group] for part in got)
    assert [part.group for part in got] == sorted({part.group for part in got})


def test_the_search_ends_where_brute_force_would_not() -> None:
    # Half of 48 groups, and no choice reaches the bound: without a limit this would run for minutes at least.
    free = [size for size, groups in ENDLESS.items() for _ in range(groups)]
    got = searched(free, 66, 1, 24)
    assert got is not None
    assert sum(base + chunks for _, base, chunks in got) == 66


@pytest.mark.parametrize(
    ("free", "count", "chunk", "fewest"),
    [
        ([3, 3], 6, 2, 1),  # six CPUs, but only two whole pairs
        ([5], 6, 1, 1),
        ([8, 8], 4, 2, 3),  # fewer groups than must give CPUs
        ([], 1, 1, 1),
    ],
)
def test_a_request_that_cannot_be_divided_has_no_answer(free: list[int], count: int, chunk: int, fewest: int) -> None:
    assert balance(free, count, chunk, fewest) is None


def test_the_first_of_several_equally_even_choices_is_used() -> None:
    assert searched([8, 8, 8, 8], 8, 1, 2) == ((0, 4, 0), (1, 4, 0))
