"""The agent decodes a spec completely, or refuses it and names the field."""

from typing import Any

import pytest
from hypothesis import given
from node_specs import settings, specs

from dracpu_api.cpuset import CpuSet
from dracpu_api.settings import (
    CpuNodeSpec,
    GroupBy,
    Mode,
    Settings,
    SettingsError,
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


def test_unknown_fields_are_ignored_on_request_at_every_level() -> None:
    claim = {"uid": "u", "namespace": "n", "name": "c", "devices": [{"name": "d", "cpus": 1, "new": 1}], "new": 1}
    settings = {"mode": "individual", "allocation": {"new": 1}, "new": 1}
    spec = a_spec(config={"name": "c", "generation": 1, "new": 1}, settings=settings, outstanding=[claim], new=1)
    assert decode_spec(spec, ignore_unknown=True).settings == Settings(Mode.INDIVIDUAL)
    assert decode_settings(settings, ignore_unknown=True) == Settings(Mode.INDIVIDUAL)


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
        (a_spec(config={"name": "default", "generation": 1, "uid": "u"}), "unknown: spec.config.uid"),
        (a_spec(settings={"mode": "numa"}), "spec.settings.mode must be one of grouped, individual"),
        (a_spec(settings={"mode": ["grouped"]}), "spec.settings.mode must be one of grouped, individual"),
        (a_spec(settings={"reservedCPUs": "3-0"}), 'spec.settings.reservedCPUs: "3-0" is reversed: write "0-3"'),
        (a_spec(settings={"reservedCPUs": 3}), 'spec.settings.reservedCPUs must be a cpuset like "0-3,8", got 3'),
        (a_spec(settings={"allocation": []}), "spec.settings.allocation must be an object"),
        (a_spec(settings={"allocation": {"fullCores": 1}}), "spec.settings.allocation.fullCores must be true or false"),
        (a_spec(settings={"allocation": {"strateg": "packed"}}), "unknown: spec.settings.allocation.strateg"),
        (a_spec(settings={"future": 1}), "unknown: spec.settings.future; the agent is older than the object"),
        (a_spec(future=1, another=2), "unknown: spec.another, spec.future"),
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
