"""The config that comes with the chart: created once, updated with the chart's values, and left alone from the moment
that somebody else has written its spec. Pure: the present object in, what to do out.

The API server records in `metadata.managedFields` who has written which fields.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

import yaml

from dracpu_api.names import API_GROUP, API_VERSION
from dracpu_api.resources import Json
from dracpu_operator.errors import ManifestError

CHART: Final = "dracpu-chart"  # the field manager that the chart writes as

_KIND: Final = "CpuDriverConfig"
_WRITTEN_METADATA: Final = ("name", "labels", "annotations")


class Action(Enum):
    """The ways to treat the config."""

    CREATE = "create"
    UPDATE = "update"
    LEAVE = "leave"


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision, with its reason when the config is left alone."""

    action: Action
    reason: str = ""


def read_manifest(text: str) -> Json:
    """The config in a file, reduced to the fields that the chart sets. The API server validates its spec."""
    try:
        documents = [document for document in yaml.safe_load_all(text) if document is not None]
    except yaml.YAMLError as error:
        raise ManifestError(f"is not YAML: {error}") from error
    if len(documents) != 1:
        raise ManifestError(f"has {len(documents)} objects in it: one {_KIND} is expected")
    document, api_version = documents[0], f"{API_GROUP}/{API_VERSION}"
    if not isinstance(document, dict) or (document.get("apiVersion"), document.get("kind")) != (api_version, _KIND):
        raise ManifestError(f"is not a {_KIND} of {api_version}")
    metadata = document.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str) or not metadata["name"]:
        raise ManifestError("has no metadata.name")
    return {
        "apiVersion": api_version,
        "kind": _KIND,
        "metadata": {key: metadata[key] for key in _WRITTEN_METADATA if metadata.get(key)},
        "spec": {} if document.get("spec") is None else document["spec"],
    }


def decide(existing: Json | None) -> Decision:
    """Decides how to treat the config; `existing` is None when the API server has none of that name."""
    if existing is None:
        return Decision(Action.CREATE)
    entries = [entry for entry in existing["metadata"].get("managedFields") or () if not entry.get("subresource")]
    others = [entry for entry in entries if not _is_chart(entry) and "f:spec" in (entry.get("fieldsV1") or {})]
    if others:
        named = ", ".join(f"{entry.get('manager', 'somebody')} ({entry.get('time', 'no time')})" for entry in others)
        return Decision(Action.LEAVE, f"its spec was written by {named}")
    if not any(map(_is_chart, entries)):  # also where somebody removed managedFields
        return Decision(Action.LEAVE, "this chart did not make it")
    return Decision(Action.UPDATE)


def _is_chart(entry: Json) -> bool:
    return entry.get("manager") == CHART and entry.get("operation") == "Apply"
