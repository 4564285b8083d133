"""A spec is decoded, keeps the fields that this version does not know, or is refused with the name of the field."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from node_specs import settings, specs

from dracpu_api.cpuset import CpuSet
from dracpu_api.settings import (
    Allocation,
    CpuNodeSpec,
    GroupBy,
    Mode,
    Settings,
    SettingsError,
    changed_fields,
    decode_settings,
    decode_spec,
    encode_settings,
    encode_spec,
)


def a_spec(**changes: Any) -> dict[str, Any]:
    return {"config": {"name": "default", "generation": 1}, "settings": {}, "revision": "r1"} | changes


@given(specs)
def test_a_spec_reads_back_as_it_was_written(spec: CpuNodeSpec) -> None:
    assert decode_spec(encode_spec(spec)) == spec


@given(settings)
def test_settings_read_back_as_they_were_written(written: Settings) -> None:
    assert decode_settings(encode_settings(written)) == written


def test_missing_fields_have_their_defaults() -> None:
    decoded = decode_spec(a_spec())
    assert decoded.settings == Settings()
    assert decoded.outstanding == ()


def test_reserved_cpus_are_read_as_a_set() -> None:
    assert decode_spec(a_spec(settings={"reservedCPUs": "0-1,4"})).settings.reserved_cpus == CpuSet([0, 1, 4])


def newer_spec() -> dict[str, Any]:
    devices = [{"name": "d", "cpus": 1}, {"name": "e", "cpus": 2, "new": 1}]
    claim = {"uid": "u", "namespace": "n", "name": "c", "devices": devices, "new": {"a": 1}}
    written = encode_spec(decode_spec(a_spec(outstanding=[claim])))
    written["settings"] |= {"mode": "individual", "turbo": [1], "power": {"limit": 5}}
    written["settings"]["allocation"]["new"] = True
    written["config"]["uid"] = "u"
    written["new"] = None
    return written


def test_unknown_fields_are_kept_at_every_level() -> None:
    read = decode_spec(newer_spec())
    assert read.settings.mode is Mode.INDIVIDUAL
    assert encode_spec(read) == newer_spec()


def test_unknown_settings_are_listed_by_their_paths() -> None:
    ignored = decode_spec(newer_spec()).settings.ignored
    assert ignored == ("settings.allocation.new", "settings.power", "settings.turbo")
    assert Settings().ignored == ()


def test_unknown_fields_of_a_spec_are_not_ignored_settings() -> None:
    assert decode_spec(a_spec(new=1)).settings.ignored == ()


def test_settings_with_unknown_fields_can_be_members_of_a_set() -> None:
    settings = decode_settings({"turbo": [1]})
    assert {settings, decode_settings({"turbo": [1]})} == {settings}
    assert settings != Settings()


def test_later_fields_are_encoded_only_where_they_differ_from_their_defaults() -> None:
    later = {"fullCores": "full_cores", "preferUncoreCache": "prefer_uncore_cache"}
    assert changed_fields(Allocation(), later) == {}
    assert changed_fields(Allocation(full_cores=True), later) == {"fullCores": True}
    assert changed_fields(Allocation(prefer_uncore_cache=False), later) == {"preferUncoreCache": False}


def test_an_unknown_field_becomes_a_later_one_without_a_change_of_the_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator that does not know a field, and one that does, write it in the same place."""
    former = encode_settings(decode_settings({"allocation": {"later": 3}, "later": 4}))
    default = encode_settings(Settings())

    @dataclasses.dataclass(frozen=True)
    class NextAllocation(Allocation):
        later: int = 0

    @dataclasses.dataclass(frozen=True)
    class NextSettings(Settings):
        later: int = 0

    for names in ("_LATER_SETTINGS", "_LATER_ALLOCATION"):
        monkeypatch.setattr(f"dracpu_api.settings.{names}", {"later": "later"})
    assert encode_settings(NextSettings(allocation=NextAllocation(later=3), later=4)) == former
    assert encode_settings(NextSettings(allocation=NextAllocation())) == default


def test_group_by_distinguishes_representations_in_grouped_mode_only() -> None:
    by_socket, by_machine = GroupBy.SOCKET, GroupBy.MACHINE
    assert Settings(group_by=by_socket).representation != Settings(group_by=by_machine).representation
    individual = Mode.INDIVIDUAL
    assert Settings(individual, by_socket).representation == Settings(individual, by_machine).representation


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (None, "spec must be an object, got nothing"),
        ([], "spec must be an object"),
        ({}, "spec.config must be an object, got nothing"),
        (a_spec(settings=None), "spec.settings must be an object, got nothing"),
        (a_spec(revision=""), "spec.revision must be a non-empty text"),
        (a_spec(config={"name": "default"}), "spec.config.generation must be a whole number, got nothing"),
        (a_spec(config={"name": "default", "generation": True}), "spec.config.generation must be a whole number"),
        (a_spec(settings={"mode": "numa"}), "spec.settings.mode must be one of grouped, individual"),
        (a_spec(settings={"mode": ["grouped"]}), "spec.settings.mode must be one of grouped, individual"),
        (a_spec(settings={"reservedCPUs": "3-0"}), 'spec.settings.reservedCPUs: "3-0" is reversed: write "0-3"'),
        (a_spec(settings={"reservedCPUs": 3}), 'spec.settings.reservedCPUs must be a cpuset like "0-3,8", got 3'),
        (a_spec(settings={"allocation": []}), "spec.settings.allocation must be an object"),
        (a_spec(settings={"allocation": {"fullCores": 1}}), "spec.settings.allocation.fullCores must be true or false"),
        (a_spec(outstanding={}), "spec.outstanding must be a list"),
        (a_spec(outstanding=[{}]), "spec.outstanding[0].uid must be a non-empty text"),
        (
            a_spec(outstanding=[{"uid": "u", "namespace": "n", "name": "c", "devices": [{"name": "d"}]}]),
            "spec.outstanding[0].devices[0].cpus must be a whole number, got nothing",
        ),
    ],
)
def test_a_spec_that_cannot_be_decoded_is_refused_with_the_name_of_the_field(spec: object, message: str) -> None:
    with pytest.raises(SettingsError) as refused:
        decode_spec(spec)
    assert message in str(refused.value)
