"""What makes a CustomResourceDefinition bad: its names, its versions, its schemas, its rules."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from dracpu_sandbox.apiserver.kinds import checking, problems
from dracpu_sandbox.apiserver.kinds.jsonpath import PathError, parse_path
from dracpu_sandbox.apiserver.kinds.model import JsonObject
from dracpu_sandbox.apiserver.kinds.problems import Problem
from dracpu_sandbox.apiserver.kinds.rules import RuleError, compile_rules
from dracpu_sandbox.apiserver.kinds.semantics import names
from dracpu_sandbox.apiserver.kinds.settling import EMBEDDED, INT_OR_STRING, PRESERVE, settle

_SCHEMA: Final = "spec.validation.openAPIV3Schema"  # where the API server says that a version's schema is
_TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")
_COLUMN_TYPES: Final = ("boolean", "date", "integer", "number", "string")
_REASONS: Final = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
_PROTECTED: Final = re.compile(r"(.*\.)?(k8s|kubernetes)\.io")
_APPROVAL: Final = "api-approved.kubernetes.io"


def check(crd: JsonObject, old: JsonObject | None, subresource: str) -> Iterator[Problem]:
    """What is wrong with a definition that has its defaults."""
    spec = crd["spec"]
    yield from _names(crd, spec)
    if not spec.get("scope"):
        yield problems.required("spec.scope")
    elif spec["scope"] not in {"Cluster", "Namespaced"}:
        yield problems.unsupported("spec.scope", spec["scope"], ("Cluster", "Namespaced"))
    versions = spec["versions"]
    if sum(bool(one["storage"]) for one in versions) != 1:
        yield problems.invalid("spec.versions", versions, "must have exactly one version marked as storage version")
    if len({one.get("name") for one in versions}) != len(versions):
        yield problems.invalid("spec.versions", versions, "must contain unique version names")
    for number, version in enumerate(versions):
        yield from _version(version, number)
    if old is not None:
        yield from _changes(spec, old["spec"])


def _names(crd: JsonObject, spec: JsonObject) -> Iterator[Problem]:
    group, plural = spec.get("group") or "", spec["names"].get("plural") or ""
    name = (crd.get("metadata") or {}).get("name")
    if name != f"{plural}.{group}":
        yield problems.invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')
    if not group:
        yield problems.required("spec.group")
    else:
        yield from names.subdomain("spec.group", group)
        annotations = (crd.get("metadata") or {}).get("annotations") or {}
        if _PROTECTED.fullmatch(group) and not annotations.get(_APPROVAL):
            why = "see https://github.com/kubernetes/enhancements/pull/1111"
            detail = f'protected groups must have approval annotation "{_APPROVAL}", {why}'
            yield problems.required(f"metadata.annotations[{_APPROVAL}]", detail)
    for key in ("plural", "singular", "kind", "listKind"):
        told = spec["names"].get(key)
        if told:
            yield from names.label(f"spec.names.{key}", told.lower())
        elif key != "singular":
            yield problems.required(f"spec.names.{key}")


def _changes(spec: JsonObject, old: JsonObject) -> Iterator[Problem]:
    for key in ("group", "scope"):
        if spec.get(key) != old.get(key):
            yield problems.invalid(f"spec.{key}", spec.get(key), "field is immutable")
    for key in ("kind", "plural"):
        if spec["names"].get(key) != (old.get("names") or {}).get(key):
            yield problems.invalid(f"spec.names.{key}", spec["names"].get(key), "field is immutable")


def _version(version: JsonObject, number: int) -> Iterator[Problem]:
    yield from names.label(f"spec.versions[{number}].name", version.get("name") or "")
    for position, column in enumerate(version.get("additionalPrinterColumns") or ()):
        yield from _column(column, f"spec.additionalPrinterColumns[{position}]")
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    if schema is None:
        yield problems.required(f"spec.versions[{number}].schema.openAPIV3Schema")
        return
    found = list(_root(schema))
    yield from found
    if found:
        return  # rules of a schema that is not one cannot be compiled
    try:
        compile_rules(schema, _SCHEMA)
    except RuleError as error:
        yield problems.invalid(error.field, error.rule, str(error))


def _column(column: JsonObject, path: str) -> Iterator[Problem]:
    for key in ("name", "type"):
        if not column.get(key):
            yield problems.required(f"{path}.{key}")
    if column.get("type") and column["type"] not in _COLUMN_TYPES:
        yield problems.invalid(f"{path}.type", column["type"], f"must be one of {','.join(_COLUMN_TYPES)}")
    if not column.get("jsonPath"):
        yield problems.required(f"{path}.JSONPath")
        return
    try:
        parse_path(column["jsonPath"])
    except PathError:
        detail = "must be a simple json path starting with ."
        yield problems.invalid(f"{path}.JSONPath", column["jsonPath"], detail)


def _root(schema: JsonObject) -> Iterator[Problem]:
    if not schema.get("type"):
        yield problems.required(f"{_SCHEMA}.type", "must not be empty at the root")
    for name in (schema.get("properties") or {}).get("metadata", {}).get("properties") or ():
        if name not in {"name", "generateName"}:
            detail = "must not specify anything other than name and generateName, but metadata is implicitly specified"
            yield problems.forbidden(f"{_SCHEMA}.properties[metadata]", detail)
            break
    yield from _schema(schema, _SCHEMA, is_root=True)


def _schema(schema: Mapping[str, Any], path: str, *, is_root: bool = False) -> Iterator[Problem]:
    kind = schema.get("type")
    if kind and kind not in _TYPES:
        yield problems.unsupported(f"{path}.type", kind, _TYPES)
    if not kind and not is_root and not schema.get(INT_OR_STRING) and not schema.get(PRESERVE):
        holder = "array items" if path.endswith(".items") else "object fields"
        yield problems.required(f"{path}.type", f"must not be empty for specified {holder}")
    if kind == "array" and "items" not in schema:
        yield problems.required(f"{path}.items", "must be specified")
    if schema.get(EMBEDDED) and kind != "object":
        yield problems.invalid(f"{path}.type", kind or "", "must be object if x-kubernetes-embedded-resource is true")
    if "properties" in schema and "additionalProperties" in schema:
        yield problems.forbidden(
            f"{path}.additionalProperties", "additionalProperties and properties are mutual exclusive"
        )
    yield from _pattern(schema, path)
    yield from _default(schema, path)
    yield from _list(schema, path)
    yield from _rules(schema, path)
    for name, inside in (schema.get("properties") or {}).items():
        if is_root and name in {"apiVersion", "kind", "metadata"}:
            continue
        yield from _schema(inside, f"{path}.properties[{name}]")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), Mapping):
            yield from _schema(schema[key], f"{path}.{key}")


def _pattern(schema: Mapping[str, Any], path: str) -> Iterator[Problem]:
    if "pattern" not in schema:
        return
    try:
        checking.go_pattern(schema["pattern"])
    except re.error as error:
        detail = f"must be a valid regular expression, but isn't: {error}"
        yield problems.invalid(f"{path}.pattern", schema["pattern"], detail)


def _default(schema: Mapping[str, Any], path: str) -> Iterator[Problem]:
    if "default" not in schema:
        return
    default = schema["default"]
    filled = settle(schema, default) if isinstance(default, dict) else default
    for one in checking.check(schema, filled):
        yield problems.Problem(f"{path}.default{one.field and '.' + one.field}", one.reason, one.message)


def _list(schema: Mapping[str, Any], path: str) -> Iterator[Problem]:
    if schema.get("x-kubernetes-list-type") != "map":
        return
    here = f"{path}.x-kubernetes-list-map-keys"
    keys: list[str] = schema.get("x-kubernetes-list-map-keys") or []
    if not keys:
        yield problems.required(here, "must not be empty if x-kubernetes-list-type is map")
        return
    items = schema.get("items") or {}
    fields = items.get("properties") or {}
    if not all(key in fields for key in keys):
        yield problems.invalid(here, keys, "entries must all be names of item properties")
        return
    for key in keys:
        if key not in (items.get("required") or ()) and "default" not in fields[key]:
            detail = (
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"
            )
            yield problems.required(f"{path}.items.properties[{key}].default", detail)


def _rules(schema: Mapping[str, Any], path: str) -> Iterator[Problem]:
    for number, rule in enumerate(schema.get("x-kubernetes-validations") or ()):
        here = f"{path}.x-kubernetes-validations[{number}]"
        if not (rule.get("rule") or "").strip():
            yield problems.required(f"{here}.rule", "rule is not specified")
        if rule.get("reason") and rule["reason"] not in _REASONS:
            yield problems.unsupported(f"{here}.reason", rule["reason"], _REASONS)
