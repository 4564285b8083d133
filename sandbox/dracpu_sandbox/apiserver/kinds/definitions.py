"""CustomResourceDefinitions: reads the kinds that they define, and refuses features that the sandbox does not support.

It supports the features that the definitions of this project use. A refusal names the unsupported feature.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

from dracpu_sandbox.apiserver.kinds import problems
from dracpu_sandbox.apiserver.kinds.builtin import DEFINITION
from dracpu_sandbox.apiserver.kinds.checking import FORMATS, go_pattern
from dracpu_sandbox.apiserver.kinds.kind import Column, JsonObject, Kind
from dracpu_sandbox.apiserver.kinds.listtypes import merging_of
from dracpu_sandbox.apiserver.kinds.paths import EXAMPLE, steps_of
from dracpu_sandbox.apiserver.kinds.problems import Problem, refusal
from dracpu_sandbox.apiserver.kinds.rules import RuleError, compile_rules
from dracpu_sandbox.apiserver.kinds.schemas import INT_OR_STRING, METADATA_TYPE, PRESERVE, Schema, schema_of

_SCHEMA: Final = "spec.versions[0].schema.openAPIV3Schema"
_KEYWORDS: Final = frozenset(
    {
        "type", "description", "properties", "required", "additionalProperties", "items", "default", "enum", "nullable",
        "format", "pattern", "minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems", "minProperties",
        "maxProperties", "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type",
        "x-kubernetes-validations", INT_OR_STRING, PRESERVE,
    }
)  # fmt: skip
_RULE_FIELDS: Final = frozenset({"rule", "message"})
_CONDITIONS: Final = {"NamesAccepted": "NoConflicts", "Established": "InitialNamesAccepted"}


def kind_of(definition: JsonObject) -> Kind:
    """Returns the kind that a definition defines; raises RefusedError when the sandbox cannot serve it."""
    whole = with_defaults(definition)
    found = list(check(whole, None, ""))
    if found:
        raise refusal(DEFINITION, whole["metadata"].get("name", ""), found)
    spec, (version,) = whole["spec"], whole["spec"]["versions"]
    names, declared = spec["names"], version["schema"]["openAPIV3Schema"]
    identity = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": schema_of(METADATA_TYPE)}
    schema = {**declared, "properties": {**declared.get("properties", {}), **identity}}
    list_types, atomic_maps = merging_of(schema)
    return Kind(
        group=spec["group"],
        version=version["name"],
        plural=names["plural"],
        singular=names["singular"],
        kind=names["kind"],
        namespaced=spec["scope"] == "Namespaced",
        schema=schema,
        type=".".join([*reversed(spec["group"].split(".")), version["name"], names["kind"]]),
        is_custom=True,
        list_kind=names["listKind"],
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        subresources=tuple(version.get("subresources") or ()),
        columns=tuple(map(_column, version.get("additionalPrinterColumns") or ())),
        rules=compile_rules(declared, _SCHEMA),
        list_types=list_types,
        atomic_maps=atomic_maps,
    )


def _column(column: JsonObject) -> Column:
    return Column(
        name=column["name"],
        path=column["jsonPath"],
        type=column["type"],
        format=column.get("format", ""),
        description=column.get("description", ""),
        priority=column.get("priority", 0),
    )


def check(definition: JsonObject, old: JsonObject | None, subresource: str) -> Iterator[Problem]:
    """Yields the problems of a definition, which must have its defaults and conform to its own schema."""
    spec: JsonObject = definition["spec"]
    name = definition["metadata"].get("name")
    if name != f"{spec['names']['plural']}.{spec['group']}":
        yield problems.invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')
    if len(spec["versions"]) != 1:
        yield problems.unsupported_here("spec.versions", "definitions with several versions")
        return
    (version,) = spec["versions"]
    if not (version["served"] and version["storage"]):
        yield problems.invalid("spec.versions[0]", name, "the only version must be served and stored")
    for number, column in enumerate(version.get("additionalPrinterColumns") or ()):
        if steps_of(column["jsonPath"]) is None:
            where = f"spec.versions[0].additionalPrinterColumns[{number}].jsonPath"
            yield problems.unsupported_here(where, f"paths other than field names and {EXAMPLE}")
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    if schema is None:
        yield problems.required(_SCHEMA)
        return
    found = list(_schema(schema, _SCHEMA))
    yield from found
    if not found:  # rules of an unsupported schema cannot be compiled
        try:
            compile_rules(schema, _SCHEMA)
        except RuleError as error:
            yield problems.invalid(error.field, error.rule, str(error))


def _schema(schema: Schema, path: str) -> Iterator[Problem]:
    for keyword in sorted(schema.keys() - _KEYWORDS):
        yield problems.unsupported_here(f"{path}.{keyword}", f"the keyword {keyword}")
    if schema.get("format", "double") not in FORMATS:
        yield problems.unsupported_here(f"{path}.format", f"the format {schema['format']}")
    for number, rule in enumerate(schema.get("x-kubernetes-validations", ())):
        for field in sorted(rule.keys() - _RULE_FIELDS):
            yield problems.unsupported_here(f"{path}.x-kubernetes-validations[{number}].{field}", f"{field} of rules")
    if "pattern" in schema:
        try:
            go_pattern(schema["pattern"])
        except re.error as error:
            yield problems.invalid(f"{path}.pattern", schema["pattern"], f"must be a regular expression: {error}")
    parts: dict[str, Any] = {key: schema[key] for key in ("items", "additionalProperties") if key in schema}
    parts |= {f"properties[{name}]": field for name, field in schema.get("properties", {}).items()}
    for name, part in parts.items():
        if isinstance(part, dict):
            yield from _schema(part, f"{path}.{name}")
        else:
            yield problems.unsupported_here(f"{path}.{name}", f"the schema {str(part).lower()}")


def status_of(definition: JsonObject) -> JsonObject:
    """Returns the status of a served definition; its conditions keep the times of earlier conditions."""
    whole, now = with_defaults(definition), datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    before: JsonObject = definition.get("status") or {}
    since = {old["type"]: old["lastTransitionTime"] for old in before.get("conditions") or ()}
    return {
        "conditions": [
            {"type": kind, "status": "True", "reason": reason, "lastTransitionTime": since.get(kind, now)}
            for kind, reason in _CONDITIONS.items()
        ],
        "acceptedNames": whole["spec"]["names"],
        "storedVersions": [version["name"] for version in whole["spec"]["versions"]],
    }


def with_defaults(definition: JsonObject) -> JsonObject:
    """Returns a definition with the fields that the API server fills in."""
    spec: JsonObject = definition["spec"]
    names = {"singular": spec["names"]["kind"].lower(), "listKind": f"{spec['names']['kind']}List", **spec["names"]}
    return {**definition, "spec": {"conversion": {"strategy": "None"}, **spec, "names": names}}
