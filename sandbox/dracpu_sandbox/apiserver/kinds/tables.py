"""Objects as `kubectl get` asks for them: tables, and objects reduced to their metadata."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal

from dracpu_sandbox.apiserver.kinds import ages, jsonpath
from dracpu_sandbox.apiserver.kinds.model import Column, JsonObject, Kind

Include = Literal["Metadata", "Object", "None"]

NAME: Final = Column("Name", ".metadata.name", format="name", description="Unique among objects of the kind.")
AGE: Final = Column("Age", ".metadata.creationTimestamp", type="date", description="How long ago it was created.")


def table(
    kind: Kind,
    objects: Sequence[JsonObject],
    list_metadata: Mapping[str, Any],
    include: Include = "Metadata",
    *,
    now: datetime | None = None,
) -> JsonObject:
    """A meta.k8s.io/v1 Table."""
    columns = columns_of(kind)
    moment = now or datetime.now(UTC)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": dict(list_metadata),
        "columnDefinitions": [_definition(column, custom=kind.is_custom) for column in columns],
        "rows": [_row(columns, one, include, moment) for one in objects],
    }


def partial(
    kind: Kind, objects: JsonObject | Sequence[JsonObject], metadata: Mapping[str, Any] | None = None
) -> JsonObject:
    """The metadata of an object, or of the objects of a list whose own metadata are given."""
    if isinstance(objects, dict):
        return _partial(objects)
    return {
        "kind": "PartialObjectMetadataList",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": dict(metadata or {}),
        "items": [_partial(one) for one in objects],
    }


def _partial(item: JsonObject) -> JsonObject:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": item.get("metadata", {})}


def columns_of(kind: Kind) -> tuple[Column, ...]:
    """What the table of a kind shows, NAME and all."""
    columns = kind.columns or (AGE,)
    return (NAME, *columns) if kind.name_first else columns


def _definition(column: Column, *, custom: bool) -> JsonObject:
    # built-in tables are made by printers that give ages as texts, those of custom resources keep the word date
    kind = {"date": "date" if custom else "string", "time": "date"}.get(column.type, column.type)
    return {
        "name": column.name,
        "type": kind,
        "format": column.format,
        "description": column.description,
        "priority": column.priority,
    }


def _row(columns: Sequence[Column], item: JsonObject, include: Include, now: datetime) -> JsonObject:
    row: JsonObject = {"cells": [_cell(column, item, now) for column in columns]}
    phase = (item.get("status") or {}).get("phase") if item.get("kind") == "Pod" else None
    if phase in {"Succeeded", "Failed"}:
        row["conditions"] = [{"type": "Completed", "status": "True", "reason": phase, "message": _DONE[phase]}]
    match include:
        case "Metadata":
            row["object"] = _partial(item)
        case "Object":
            row["object"] = item
    return row


_DONE: Final = {
    "Succeeded": "The pod has completed successfully.",
    "Failed": "The pod failed.",
}


def _cell(column: Column, item: JsonObject, now: datetime) -> object:
    if column.cell is not None:
        value = column.cell(item)
    else:
        found = jsonpath.find(column.path, item)
        value = found[0] if found else None
    match column.type:
        case "date":
            return ages.since(value, now) if value is not None or column is AGE else None
        case "integer":
            return _number(value)
        case "string" | "time":
            return value if value is None else _text(value)
        case _:
            return value


def _number(value: object) -> int | None:
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
