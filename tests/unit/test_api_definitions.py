"""The CRDs are generated from the models, and an API server accepts them."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from dracpu_api.objects import definitions
from dracpu_api.objects.schema import SchemaError, structural

ROOT = Path(__file__).parents[2]


def walk(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from walk(child, f"{path}.{name}")
    for nested in ("items", "additionalProperties"):
        if nested in schema:
            yield from walk(schema[nested], f"{path}[]")


def version(resource: definitions.CustomResource) -> dict[str, Any]:
    (only,) = definitions.definition(resource)["spec"]["versions"]
    assert isinstance(only, dict)
    return only


@pytest.fixture(params=definitions.CUSTOM_RESOURCES, ids=lambda resource: resource.kind)
def schema(request: pytest.FixtureRequest) -> dict[str, Any]:
    made: dict[str, Any] = version(request.param)["schema"]["openAPIV3Schema"]
    return made


@pytest.mark.parametrize("path", sorted(definitions.files()))
def test_the_files_in_the_repository_are_up_to_date(path: str) -> None:
    assert (ROOT / path).read_text() == definitions.files()[path], "run `make generate` and commit the result"


@pytest.mark.parametrize("folder", definitions.FOLDERS)
def test_a_folder_with_crds_contains_no_other_manifests(folder: str) -> None:
    """The chart installs every file of its folder, so a leftover would be installed, too."""
    assert {file.name for file in (ROOT / folder).glob("*.yaml")} == definitions.crds().keys()


def test_the_text_reads_back_as_the_definition() -> None:
    for resource in definitions.CUSTOM_RESOURCES:
        assert yaml.safe_load(definitions.crds()[f"{resource.plural}.yaml"]) == definitions.definition(resource)


def test_every_value_has_a_type(schema: dict[str, Any]) -> None:
    for path, node in walk(schema):
        assert "type" in node or node.get("x-kubernetes-int-or-string"), path


def test_every_field_is_explained(schema: dict[str, Any]) -> None:
    for name in ("spec", "status"):
        for path, node in walk(schema["properties"][name], name):
            if not path.endswith("[]"):
                assert node["description"].endswith("."), path


def test_a_config_needs_no_field_and_a_node_needs_its_spec() -> None:
    config, node = (version(resource)["schema"]["openAPIV3Schema"] for resource in definitions.CUSTOM_RESOURCES)
    assert "required" not in config
    assert "required" not in config["properties"]["spec"]
    assert node["required"] == ["spec"]


def test_nested_objects_have_defaults_that_their_fields_complete() -> None:
    config, _ = (version(resource)["schema"]["openAPIV3Schema"] for resource in definitions.CUSTOM_RESOURCES)
    spec = config["properties"]["spec"]
    nested = [spec] + [spec["properties"][name] for name in ("allocation", "nodeSelector", "rollout")]
    assert [node["default"] for node in nested] == [{}, {}, {}, {}]


def test_a_cpu_node_has_no_defaults() -> None:
    _, node = (version(resource)["schema"]["openAPIV3Schema"] for resource in definitions.CUSTOM_RESOURCES)
    assert [path for path, field in walk(node) if "default" in field] == []


def test_a_config_has_no_defaults_but_those_of_the_first_version() -> None:
    """The API server adds a default to stored configs while the operator of the former version still runs."""
    config, _ = (version(resource)["schema"]["openAPIV3Schema"] for resource in definitions.CUSTOM_RESOURCES)
    assert {path.removeprefix("."): field["default"] for path, field in walk(config) if "default" in field} == {
        "spec": {},
        "spec.mode": "grouped",
        "spec.groupBy": "numanode",
        "spec.reservedCPUs": "",
        "spec.allocation": {},
        "spec.allocation.strategy": "packed",
        "spec.allocation.fullCores": False,
        "spec.allocation.preferUncoreCache": True,
        "spec.exposePCIeRoots": False,
        "spec.nodeAllocatable": False,
        "spec.nodeSelector": {},
        "spec.priority": 0,
        "spec.rollout": {},
        "spec.rollout.maxUnavailable": "25%",
        "spec.rollout.paused": False,
        "spec.rollout.settleSeconds": 10,
        **{f"status.nodes.{name}": 0 for name in ("selected", "applied", "progressing", "failed")},
        **{f"status.cpus.{name}": 0 for name in ("total", "reserved", "exclusive", "available")},
    }


def test_a_field_that_is_added_to_a_model_gets_no_default_in_its_crd() -> None:
    class Next(BaseModel):
        mode: str = "grouped"
        turbo: bool = False

    properties = structural(Next, {"mode"})["properties"]
    assert properties == {"mode": {"type": "string", "default": "grouped"}, "turbo": {"type": "boolean"}}


def test_any_phase_can_be_stored() -> None:
    """Agents of a newer version may run under an older CRD."""
    _, node = (version(resource)["schema"]["openAPIV3Schema"] for resource in definitions.CUSTOM_RESOURCES)
    assert "enum" not in node["properties"]["status"]["properties"]["phase"]


def test_rules_keep_to_cel_without_optional_syntax(schema: dict[str, Any]) -> None:
    rules = [rule["rule"] for _, node in walk(schema) for rule in node.get("x-kubernetes-validations", ())]
    assert rules
    assert not [rule for rule in rules if ".?" in rule or "[?" in rule]


def test_columns_lead_to_fields_that_exist() -> None:
    for resource in definitions.CUSTOM_RESOURCES:
        paths = {path for path, _ in walk(version(resource)["schema"]["openAPIV3Schema"])}
        columns = {re.sub(r"\[.*?\]", "[]", column.path) for column in resource.columns} - {definitions.AGE.path}
        assert columns <= paths


def test_columns_end_with_the_age_and_then_the_wide_ones() -> None:
    for resource in definitions.CUSTOM_RESOURCES:
        wide = [column.wide for column in resource.columns]
        assert wide == sorted(wide)
        assert [column for column in resource.columns if not column.wide][-1] == definitions.AGE


def test_alternatives_are_refused_because_a_structural_schema_cannot_have_them() -> None:
    class Vague(BaseModel):
        value: int | str

    with pytest.raises(SchemaError, match="no alternatives"):
        structural(Vague)


def test_unknown_keywords_are_refused() -> None:
    class Strange(BaseModel):
        value: dict[str, int]

    Strange.model_config["json_schema_extra"] = {"examples": [1]}
    Strange.model_rebuild(force=True)
    with pytest.raises(SchemaError, match="examples"):
        structural(Strange)
