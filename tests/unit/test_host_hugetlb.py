"""Limits of hugepages are written in an order that leaves no process with pages that it reserved and may not touch."""

from copy import deepcopy

import pytest
from counted_pages import CountedPages, Counter
from hypothesis import given
from hypothesis import strategies as st

from dracpu_agent.host.cgroup_errors import BusyLimitError, CgroupError
from dracpu_agent.host.hugetlb import (
    UNLIMITED,
    bytes_in,
    limit_file,
    limit_files,
    limit_in,
    limit_text,
    pages_limited,
    size_text,
    write_limits,
)

KIB, MIB, GIB = 2**10, 2**20, 2**30
SIZES = {
    64 * KIB: "64KB",
    MIB: "1MB",
    2 * MIB: "2MB",
    32 * MIB: "32MB",
    512 * MIB: "512MB",
    GIB: "1GB",
    16 * GIB: "16GB",
}


def test_files_have_the_kernels_names():
    for page, text in SIZES.items():
        assert size_text(page) == text
        assert limit_files(page) == (f"hugetlb.{text}.max", f"hugetlb.{text}.rsvd.max")


def test_sizes_are_found_in_the_names_of_files():
    names = [limit_file(page) for page in reversed(SIZES)]
    others = [
        "hugetlb.2TB.max",
        "hugetlb.MB.max",
        "hugetlb.4MB.rsvd.max",
        "hugetlb.8MB.max.x",
        "hugetlb.08MB.max",
        "memory.max",
    ]
    assert pages_limited([*names, *others]) == list(SIZES)


@pytest.mark.parametrize(
    ("limit", "shown"),
    [
        (0, "0"),
        (2 * MIB - 1, "0"),
        (2 * MIB + 1, "2097152"),
        (2**62, "4611686018427387904"),
        (2**63 - 2 * MIB - 1, str(2**63 - 4 * MIB)),
        (2**63 - 2 * MIB, "max"),  # the kernel's counters end here
        (UNLIMITED, "max"),
        (2**64, "max"),  # the kernel would take this text for 0
    ],
)
def test_a_limit_is_written_as_the_kernel_shows_it(limit, shown):
    assert limit_text(limit, 2 * MIB) == shown
    assert limit_text(limit_in(shown, 2 * MIB, "file"), 2 * MIB) == shown


def test_a_text_that_is_no_number_of_bytes_is_an_error_that_names_the_file():
    for text in ("", "-1", "2M", "0x1"):
        with pytest.raises(CgroupError, match=r"^pod/hugetlb\.2MB\.max contains"):
            bytes_in(text, "pod/hugetlb.2MB.max")


pages = st.sampled_from([2 * MIB, GIB])
amounts = st.integers(0, 8)


@st.composite
def counted(draw):
    """A cgroup whose processes use and have reserved no more pages than its limits allow."""

    def counter(page):
        used, reserved = draw(amounts), draw(amounts)
        limits = [UNLIMITED if draw(st.booleans()) else page * (least + draw(amounts)) for least in (used, reserved)]
        return Counter(limits[0], limits[1], page * used, page * reserved)

    return CountedPages({page: counter(page) for page in (2 * MIB, GIB)})


limits = st.dictionaries(pages, st.one_of(st.just(UNLIMITED), st.integers(0, 16 * GIB)))


@given(counted(), limits)
def test_reservations_never_exceed_what_may_be_used_because_of_a_write(files, wanted):
    before = deepcopy(files.counters)
    busy = busy_after(files, wanted)
    for page, limit, reserved_limit in files.shown:
        if before[page].reserved_limit <= before[page].limit:
            assert reserved_limit <= limit
    for page in before.keys() - wanted.keys():
        assert files.counters[page] == before[page]
    for page, limit in wanted.items():
        counter = files.counters[page]
        shown = {limit_text(counter.limit, page), limit_text(counter.reserved_limit, page)}
        assert (page in busy) == (shown != {limit_text(limit, page)})
        if page in busy:
            assert limit < before[page].used or limit < before[page].reserved


@given(counted(), limits)
def test_what_is_written_already_is_not_written_again(files, wanted):
    busy = busy_after(files, wanted)
    files.shown.clear()
    assert busy_after(files, wanted) == busy
    assert files.shown == []


def test_a_limit_that_is_too_low_is_refused_and_the_others_are_written():
    files = CountedPages({2 * MIB: Counter(8 * MIB, 8 * MIB, 0, 6 * MIB), GIB: Counter(2 * GIB, 2 * GIB)})
    with pytest.raises(BusyLimitError, match="kubepods/pod1: .* 2MB .* try again .* or delete the pod") as raised:
        write_limits(files, {2 * MIB: 4 * MIB, GIB: GIB}, "kubepods/pod1")
    assert raised.value.pages == {2 * MIB}
    # pages that are reserved and not touched yet can still be touched
    assert files.counters == {2 * MIB: Counter(8 * MIB, 8 * MIB, 0, 6 * MIB), GIB: Counter(GIB, GIB)}


def busy_after(files, wanted):
    try:
        assert write_limits(files, wanted, "pod") == bool(files.shown)
    except BusyLimitError as error:
        return error.pages
    return frozenset()
