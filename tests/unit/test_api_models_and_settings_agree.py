"""The operator's models and the agent's dataclasses describe one spec: names, defaults, choices and meaning."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from node_specs import specs
from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from dracpu_api import settings
from dracpu_api.objects import models, parts
from dracpu_api.settings import CpuNodeSpec, decode_settings, decode_spec, encode_spec

TWINS = [(parts.Settings, settings.Settings), (parts.Allocation, settings.Allocation)]


def dump(model: BaseModel) -> dict[str, Any]:
    return model.model_dump(mode="json", by_alias=True)


@pytest.mark.parametrize(("model", "record"), TWINS)
def test_both_have_the_same_fields(model: type[BaseModel], record: type) -> None:
    fields = [field.name for field in dataclasses.fields(record)]
    assert list(model.model_fields) == [name for name in fields if name != "unknown"]


def test_both_have_the_same_defaults() -> None:
    assert decode_settings(dump(parts.Settings())) == settings.Settings()
    assert decode_settings({}) == settings.Settings()


def test_both_have_the_same_choices() -> None:
    for name in ("mode", "group_by"):
        default = getattr(settings.Settings(), name)
        assert parts.Settings.model_fields[name].annotation is type(default)
    assert parts.Allocation.model_fields["strategy"].annotation is settings.Strategy


def test_a_config_adds_selector_priority_and_rollout_only() -> None:
    added = models.CpuDriverConfigSpec.model_fields.keys() - parts.Settings.model_fields.keys()
    assert added == {"node_selector", "priority", "rollout"}


@given(specs)
def test_the_models_read_what_the_agent_writes_and_return_it_unchanged(spec: CpuNodeSpec) -> None:
    written = encode_spec(spec)
    taken = models.CpuNodeSpec.model_validate(written, by_alias=True, by_name=False)
    assert dump(taken) == written
    assert decode_spec(dump(taken)) == spec


@pytest.mark.parametrize("name", sorted(models.CpuNodeSpec.model_fields))
def test_both_require_the_same_fields(name: str) -> None:
    whole = encode_spec(CpuNodeSpec("c", 1, settings.Settings(), "r"))
    del whole[to_camel(name)]
    if models.CpuNodeSpec.model_fields[name].is_required():
        with pytest.raises(settings.SettingsError, match=name):
            decode_spec(whole)
    else:
        decode_spec(whole)
