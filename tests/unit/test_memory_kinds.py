"""Each kind of memory has one name in records and one in devices, and both are read back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dracpu_agent.memory.kinds import MEMORY, Kind, Place, place_of

MI, GI = 1024**2, 1024**3
kinds = st.sampled_from([MEMORY, Kind(64 * 1024), Kind(2 * MI), Kind(32 * MI), Kind(512 * MI), Kind(GI), Kind(16 * GI)])


@pytest.mark.parametrize(
    ("place", "name", "device"),
    [
        (Place(0, MEMORY), "memory", "memory-numa000"),
        (Place(1, Kind(2 * MI)), "hugepages_2Mi", "hugepages-2mi-numa001"),
        (Place(12, Kind(GI)), "hugepages_1Gi", "hugepages-1gi-numa012"),
        (Place(1234, Kind(64 * 1024)), "hugepages_64Ki", "hugepages-64ki-numa1234"),
    ],
)
def test_the_names_are_those_that_users_see(place: Place, name: str, device: str) -> None:
    assert (place.kind.name, place.device) == (name, device)


@given(st.integers(0, 5000), kinds)
def test_names_are_read_back(numa: int, kind: Kind) -> None:
    assert Kind.named(kind.name) == kind
    assert place_of(Place(numa, kind).device) == Place(numa, kind)


@pytest.mark.parametrize("name", ["", "Memory", "hugepages", "hugepages_2MB", "hugepages_1024Mi", "hugepages_0Mi"])
def test_other_names_are_no_kind(name: str) -> None:
    assert Kind.named(name) is None


@pytest.mark.parametrize(
    "device",
    ["", "memory", "memory-numa00", "memory-numa0000", "hugepages-numa000", "hugepages-1024mi-numa000", "cpudev001"],
)
def test_other_names_are_no_device(device: str) -> None:
    assert place_of(device) is None
