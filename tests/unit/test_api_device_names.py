"""Names of devices are parsed back to what they were formatted from."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dracpu_api.device_names import (
    DeviceName,
    belongs_to,
    cpu_device,
    group_device,
    is_published,
    memory_device,
    parse_device,
    parse_memory_device,
)
from dracpu_api.memory_kinds import KINDS
from dracpu_api.settings import GroupBy, MemorySettings, Mode, OutstandingDevice, Publish, Settings

REPRESENTATIONS = [Settings(mode=Mode.INDIVIDUAL), *(Settings(group_by=group_by) for group_by in GroupBy)]
NUMBERS = st.integers(min_value=0, max_value=8191)


def any_device() -> st.SearchStrategy[DeviceName]:
    numbered = [None, *(group_by for group_by in GroupBy if group_by is not GroupBy.MACHINE)]
    return st.one_of(st.builds(DeviceName, st.sampled_from(numbered), NUMBERS), st.just(DeviceName(GroupBy.MACHINE, 0)))


def test_the_names_are_those_that_manifests_rely_on() -> None:
    assert cpu_device(7) == "cpudev007"
    assert cpu_device(1023) == "cpudev1023"
    assert group_device(GroupBy.NUMA_NODE, 1) == "cpudevnuma001"
    assert group_device(GroupBy.SOCKET, 0) == "cpudevsocket000"
    assert group_device(GroupBy.MACHINE, 0) == "cpudevmachine"
    assert group_device(GroupBy.L3_CACHE, 12) == "cpudevl3cache012"


@given(any_device())
def test_a_name_is_read_back_to_what_it_stands_for(device: DeviceName) -> None:
    assert parse_device(str(device)) == device


@given(any_device())
def test_a_name_belongs_to_exactly_one_way_of_publishing_devices(device: DeviceName) -> None:
    (settings,) = (settings for settings in REPRESENTATIONS if belongs_to(str(device), settings))
    assert settings.representation[1] is device.group_by


@given(st.text(max_size=70) | st.from_regex(r"cpudev[a-z0-9]{0,12}", fullmatch=True))
def test_any_other_text_is_not_the_name_of_a_device(text: str) -> None:
    parsed = parse_device(text)
    assert parsed is None or str(parsed) == text


@pytest.mark.parametrize(
    "text",
    ["", "cpudev", "cpudev7", "cpudev0007", "cpudev\u0660\u0660\u0667", "cpudevnuma", "cpudevnuma1", "cpudevnuma-01",
     "cpudevsocket0000", "cpudevmachine000", "cpudevcluster000", "Cpudev007", "cpudev007\n", "gpu000"],
)  # fmt: skip
def test_a_name_that_is_spelt_otherwise_is_not_the_name_of_a_device(text: str) -> None:
    assert parse_device(text) is None
    assert not any(belongs_to(text, settings) for settings in REPRESENTATIONS)


def test_group_by_has_no_effect_on_names_in_individual_mode() -> None:
    assert belongs_to("cpudev004", Settings(mode=Mode.INDIVIDUAL, group_by=GroupBy.SOCKET))


@given(st.sampled_from(KINDS), NUMBERS)
def test_the_name_of_a_device_of_memory_is_read_back(kind: str, numa_node: int) -> None:
    assert parse_memory_device(memory_device(kind, numa_node)) == (kind, numa_node)


@pytest.mark.parametrize(
    "text",
    ["", "memory-x1y2z3", "memory-numa01", "memory-numa0001", "memory-numa-01", "hugepages-numa000", "cpudevnuma000",
     "hugepages-3mi-numa000", "hugepages_2Mi-numa000", "hugepages-2mi-numa000\n", "memory-numa\u0660\u0660\u0667"],
)  # fmt: skip
def test_a_name_that_is_spelt_otherwise_is_not_the_name_of_a_device_of_memory(text: str) -> None:
    assert parse_memory_device(text) is None


WITH_CPUS = MemorySettings(enabled=True, publish=Publish.WITH_CPUS)
DEVICES = MemorySettings(enabled=True)
CPUS = OutstandingDevice("cpudevnuma000", 2)
BOTH = OutstandingDevice("cpudevnuma000", 2, amounts=(("memory", 1024),))
MEMORY = OutstandingDevice("memory-numa000", 0, "dra.memory", (("memory", 1024),))


@pytest.mark.parametrize(
    ("settings", "published"),
    [
        (Settings(), {CPUS}),
        (Settings(memory=DEVICES), {CPUS, MEMORY}),
        (Settings(memory=WITH_CPUS), {CPUS, BOTH}),
        (Settings(Mode.INDIVIDUAL, memory=WITH_CPUS), {MEMORY}),
        (Settings(Mode.INDIVIDUAL), set()),
    ],
)
def test_a_device_is_published_when_all_that_was_given_of_it_is(
    settings: Settings, published: set[OutstandingDevice]
) -> None:
    assert {device for device in (CPUS, BOTH, MEMORY) if is_published(device, settings)} == published


def test_a_device_of_an_unknown_driver_is_left_to_newer_versions() -> None:
    assert is_published(OutstandingDevice("x", 0, "dra.other"), Settings())
