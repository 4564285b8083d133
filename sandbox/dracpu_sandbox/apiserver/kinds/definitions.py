"""CustomResourceDefinitions: the kinds that they define."""

from datetime import UTC, datetime
from typing import Any, Final

from dracpu_sandbox.apiserver.kinds.definitioncheck import check
from dracpu_sandbox.apiserver.kinds.listtypes import METADATA_ATOMS, METADATA_LISTS, lists_of
from dracpu_sandbox.apiserver.kinds.model import Column, JsonObject, Kind
from dracpu_sandbox.apiserver.kinds.problems import refusal
from dracpu_sandbox.apiserver.kinds.rules import compile_rules

_DEFINITION: Final = Kind(
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    "customresourcedefinition",
    "CustomResourceDefinition",
    namespaced=False,
)


def kinds_of(crd: JsonObject) -> tuple[Kind, ...]:
    """The kinds of the versions that are served; raises RefusedError when the definition is bad."""
    whole = with_defaults(crd)
    found = list(check(whole, None, ""))
    if found:
        raise refusal(_DEFINITION, whole["metadata"].get("name", ""), found)
    storage = next(version["name"] for version in whole["spec"]["versions"] if version["storage"])
    return tuple(_kind(whole["spec"], version, storage) for version in whole["spec"]["versions"] if version["served"])


def _kind(spec: JsonObject, version: JsonObject, storage: str) -> Kind:
    names, schema = spec["names"], version["schema"]["openAPIV3Schema"]
    lists, atoms = lists_of(schema)

    def bearing(api_version: str) -> Any:
        return lambda item: {**item, "apiVersion": api_version}

    def same(item: JsonObject) -> JsonObject:
        return item

    is_stored = version["name"] == storage
    return Kind(
        group=spec["group"],
        version=version["name"],
        plural=names["plural"],
        singular=names["singular"],
        kind=names["kind"],
        namespaced=spec["scope"] == "Namespaced",
        list_kind=names["listKind"],
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        subresources=tuple(version.get("subresources") or ()),
        columns=tuple(map(_column, version.get("additionalPrinterColumns") or ())),
        schema=schema,
        rules=compile_rules(schema),
        list_types={**METADATA_LISTS, **lists},
        atomic_maps=METADATA_ATOMS | atoms,
        hub="" if is_stored else storage,
        to_stored=same if is_stored else bearing(f"{spec['group']}/{storage}"),
        from_stored=same if is_stored else bearing(f"{spec['group']}/{version['name']}"),
    )


def _column(column: JsonObject) -> Column:
    path = column["jsonPath"]
    return Column(
        name=column["name"],
        path=path,
        type=column["type"],
        format=column.get("format", ""),
        description=column.get("description") or f"Custom resource definition column (in JSONPath format): {path}",
        priority=column.get("priority", 0),
    )


def status_of(crd: JsonObject) -> JsonObject:
    """The status of a definition that is served, now or since it was served first."""
    whole = with_defaults(crd)
    before: JsonObject = crd.get("status") or {}
    known = {one["type"]: one for one in before.get("conditions") or ()}
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    conditions = [
        {"type": "NamesAccepted", "status": "True", "reason": "NoConflicts", "message": "no conflicts found"},
        {
            "type": "Established",
            "status": "True",
            "reason": "InitialNamesAccepted",
            "message": "the initial names have been accepted",
        },
    ]
    stored = list(before.get("storedVersions") or ())
    storage = next(version["name"] for version in whole["spec"]["versions"] if version["storage"])
    return {
        "conditions": [
            known[one["type"]]
            if known.get(one["type"], {}).get("status") == "True"
            else {**one, "lastTransitionTime": now}
            for one in conditions
        ],
        "acceptedNames": whole["spec"]["names"],
        "storedVersions": stored if storage in stored else [*stored, storage],
    }


def with_defaults(crd: JsonObject) -> JsonObject:
    """A definition with what the API server fills in."""
    spec: JsonObject = crd.get("spec") or {}
    names: JsonObject = dict(spec.get("names") or {})
    if names.get("kind"):
        names = {"singular": names["kind"].lower(), "listKind": f"{names['kind']}List", **names}
    versions = [{"served": False, "storage": False, **one} for one in spec.get("versions") or ()]
    return {**crd, "spec": {"conversion": {"strategy": "None"}, **spec, "names": names, "versions": versions}}
