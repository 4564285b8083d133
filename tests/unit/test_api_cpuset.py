"""Sets of CPUs behave like sets, and their text form is the kernel's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dracpu_api.cpuset import EMPTY, MAX_CPU, CpuSet, CpuSetError, union

cpus = st.frozensets(st.integers(0, 600), max_size=80)


@given(cpus)
def test_a_set_has_its_members_in_ascending_order(members: frozenset[int]) -> None:
    made = CpuSet(members)
    assert list(made) == sorted(members)
    assert len(made) == len(members)
    assert bool(made) == bool(members)
    assert all(cpu in made for cpu in members)


@given(cpus, cpus)
def test_algebra_is_that_of_sets(left: frozenset[int], right: frozenset[int]) -> None:
    a, b = CpuSet(left), CpuSet(right)
    assert set(a | b) == left | right
    assert set(a & b) == left & right
    assert set(a - b) == left - right
    assert (a <= b) == (left <= right)
    assert a.isdisjoint(b) == left.isdisjoint(right)
    assert (a == b) == (left == right)
    assert union([a, b]) == a | b


@given(cpus)
def test_equal_sets_hash_alike(members: frozenset[int]) -> None:
    assert hash(CpuSet(members)) == hash(CpuSet(sorted(members, reverse=True)))


@given(cpus)
def test_text_reads_back_as_the_same_set(members: frozenset[int]) -> None:
    made = CpuSet(members)
    assert CpuSet.parse(str(made)) == made


@given(cpus)
def test_the_text_is_as_short_as_possible(members: frozenset[int]) -> None:
    starts = [cpu for cpu in members if cpu - 1 not in members]
    assert len([part for part in str(CpuSet(members)).split(",") if part]) == len(starts)


@pytest.mark.parametrize(
    ("text", "members"),
    [
        ("", []),
        ("\n", []),
        ("0", [0]),
        ("0-3,8", [0, 1, 2, 3, 8]),
        ("8,0-3", [0, 1, 2, 3, 8]),
        ("0-2,1-3", [0, 1, 2, 3]),
        ("5-5", [5]),
        (" 0-1 , 4\n", [0, 1, 4]),
        (f"{MAX_CPU}", [MAX_CPU]),
    ],
)
def test_the_kernels_notation_is_read(text: str, members: list[int]) -> None:
    assert list(CpuSet.parse(text)) == members


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("a", 'write CPU numbers and ranges like "0-3,8"'),
        ("1,,2", "not a cpuset"),
        ("-3", "not a cpuset"),
        ("3-", "not a cpuset"),
        ("0-1-2", "not a cpuset"),
        ("1.5", "not a cpuset"),
        ("0x3", "not a cpuset"),
        ("\u0663", "not a cpuset"),  # a digit, but not one that the kernel writes
        ("9-8", 'write "8-9"'),
        (f"{MAX_CPU + 1}", f"above {MAX_CPU}"),
        ("0-" + "9" * 400, f"above {MAX_CPU}"),
    ],
)
def test_a_text_that_is_not_a_cpuset_is_refused_with_advice(text: str, advice: str) -> None:
    with pytest.raises(CpuSetError) as refused:
        CpuSet.parse(text)
    assert advice in str(refused.value)


@given(st.text(alphabet="0123456789,- ", max_size=20))
def test_any_text_is_read_or_refused_with_a_message(text: str) -> None:
    try:
        CpuSet.parse(text)
    except CpuSetError as refused:
        message = str(refused)
    else:
        message = "read"
    assert message


@given(cpus.filter(bool))
def test_lowest_is_the_smallest_member(members: frozenset[int]) -> None:
    assert CpuSet(members).lowest == min(members)


def test_an_empty_set_has_no_lowest_member() -> None:
    with pytest.raises(ValueError, match="empty"):
        _ = EMPTY.lowest


def test_a_set_cannot_be_changed() -> None:
    with pytest.raises(AttributeError, match="immutable"):
        EMPTY.mask = 1


def test_a_negative_mask_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be negative"):
        CpuSet.of_mask(-1)


@pytest.mark.parametrize("stranger", ["0", 0.5, None, -1])
def test_only_cpu_numbers_are_members(stranger: object) -> None:
    assert stranger not in CpuSet([0, 1])
