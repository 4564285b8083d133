"""Renders objects as `kubectl get` requests them: as tables, and reduced to their metadata."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal

from dracpu_sandbox.apiserver.kinds import ages
from dracpu_sandbox.apiserver.kinds.kind import Column, JsonObject, Kind
from dracpu_sandbox.apiserver.kinds.paths import first_at

Include = Literal["Metadata", "Object", "None"]

NAME: Final = Column("Name", ".metadata.name", format="name")
AGE: Final = Column("Age", ".metadata.creationTimestamp", type="date")


def table(
    kind: Kind,
    objects: Sequence[JsonObject],
    list_metadata: Mapping[str, Any],
    include: Include = "Metadata",
    *,
    now: datetime | None = None,
) -> JsonObject:
    """Renders objects as a meta.k8s.io/v1 Table."""
    columns = columns_of(kind)
    moment = now or datetime.now(UTC)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": dict(list_metadata),
        "columnDefinitions": [_definition(column, custom=kind.is_custom) for column in columns],
        "rows": [_row(columns, item, include, moment) for item in objects],
    }


def partial(item: JsonObject) -> JsonObject:
    """Reduces an object to its metadata."""
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": item.get("metadata", {})}


def columns_of(kind: Kind) -> tuple[Column, ...]:
    """Returns the columns of a kind's table, with NAME."""
    columns = kind.columns or (AGE,)
    return (NAME, *columns) if kind.name_first else columns


def _definition(column: Column, *, custom: bool) -> JsonObject:
    # ages have the type string in tables of built-in kinds, and the type date in tables of custom resources
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
    match include:
        case "Metadata":
            row["object"] = partial(item)
        case "Object":
            row["object"] = item
    return row


def _cell(column: Column, item: JsonObject, now: datetime) -> object:
    value = first_at(column.path, item) if column.cell is None else column.cell(item)
    match column.type:
        case "date":
            return ages.age(value, now) if value is not None or column is AGE else None
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
