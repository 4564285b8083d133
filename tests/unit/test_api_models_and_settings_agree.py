"""The operator's models and the agent's dataclasses describe one spec: names, defaults, choices and meaning."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from node_specs import specs
from pydantic import BaseModel, ValidationError
from pydantic.alias_generators import to_camel

from dracpu_api import settings
from dracpu_api.memory_kinds import PAGE_SIZES, RESERVABLE
from dracpu_api.objects import models, parts
from dracpu_api.quantity import format_binary
from dracpu_api.settings import CpuNodeSpec, decode_settings, decode_spec, encode_settings, encode_spec

TWINS = [
    (parts.Settings, settings.Settings),
    (parts.Allocation, settings.Allocation),
    (parts.MemorySettings, settings.MemorySettings),
]


def dump(model: BaseModel, *, exclude_unset: bool = False) -> dict[str, Any]:
    return model.model_dump(mode="json", by_alias=True, exclude_unset=exclude_unset)


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
    assert parts.MemorySettings.model_fields["publish"].annotation is settings.Publish


def test_a_config_adds_selector_priority_and_rollout_only() -> None:
    added = models.CpuDriverConfigSpec.model_fields.keys() - parts.Settings.model_fields.keys()
    assert added == {"node_selector", "priority", "rollout"}


@given(specs)
def test_the_models_read_what_the_agent_writes_and_return_it_unchanged(spec: CpuNodeSpec) -> None:
    written = encode_spec(spec)
    taken = models.CpuNodeSpec.model_validate(written, by_alias=True, by_name=False)
    assert dump(taken, exclude_unset=True) == written
    assert decode_spec(dump(taken)) == spec


def test_both_reserve_the_same_kinds_of_memory() -> None:
    names = {field.alias for field in parts.ReservedMemory.model_fields.values()}
    assert names == {"numaNode", *RESERVABLE}


def test_both_describe_provisioned_pages_with_the_same_fields() -> None:
    names = [field.name for field in dataclasses.fields(settings.ProvisionedPages)]
    assert list(parts.ProvisionedPages.model_fields) == names


@pytest.mark.parametrize("size", PAGE_SIZES)
def test_pages_below_1gi_can_be_provisioned_and_larger_ones_only_by_the_kernels_command_line(size: int) -> None:
    entry = {"numaNode": 1, "size": format_binary(size), "pages": 512}
    if size < 1 << 30:
        parts.ProvisionedPages.model_validate(entry)
    else:
        with pytest.raises(ValidationError, match="write them on the kernel's command line"):
            parts.ProvisionedPages.model_validate(entry)
    read = decode_settings({"memory": {"provision": [entry]}})
    assert read.memory.provision == (settings.ProvisionedPages(1, size, 512),)
    assert encode_settings(read)["memory"] == {"provision": [entry]}


amounts = st.one_of(
    st.text("0123456789.kKMGTPEim-+e", max_size=6),
    st.builds(
        "{}{}".format, st.integers(0, 10**16), st.sampled_from(["", *"kMGTPEm", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"])
    ),
)


def accepted(kind: str, amount: str) -> bool:
    try:
        parts.ReservedMemory.model_validate({"numaNode": 0, kind: amount})
    except ValidationError:
        return False
    return True


def decoded(kind: str, amount: str) -> settings.Settings:
    return decode_settings({"memory": {"reserved": [{"numaNode": 0, kind: amount}]}})


@given(st.sampled_from(RESERVABLE), amounts)
def test_the_agent_reads_each_amount_that_the_schema_accepts_and_writes_one_that_it_accepts(kind, amount) -> None:
    if accepted(kind, amount):
        read = decoded(kind, amount)
        (entry,) = encode_settings(read)["memory"]["reserved"]
        assert accepted(kind, entry[kind])
        assert decoded(kind, entry[kind]) == read


@pytest.mark.parametrize("size", PAGE_SIZES)
def test_both_know_the_same_sizes_of_hugepages(size: int) -> None:
    model = parts.MemorySettings(hugepages=(format_binary(size),))
    assert decode_settings({"memory": dump(model)}).memory.hugepages == (size,)
    for wrong in (size * 3, size + 1):
        with pytest.raises(ValidationError):
            parts.MemorySettings(hugepages=(format_binary(wrong),))
        with pytest.raises(settings.SettingsError, match=r"settings\.memory\.hugepages"):
            decode_settings({"memory": {"hugepages": [format_binary(wrong)]}})


@pytest.mark.parametrize("name", sorted(models.CpuNodeSpec.model_fields))
def test_both_require_the_same_fields(name: str) -> None:
    whole = encode_spec(CpuNodeSpec("c", 1, settings.Settings(), "r"))
    del whole[to_camel(name)]
    if models.CpuNodeSpec.model_fields[name].is_required():
        with pytest.raises(settings.SettingsError, match=name):
            decode_spec(whole)
    else:
        decode_spec(whole)
