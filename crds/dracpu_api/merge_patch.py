"""Merge patches for a status of which each top-level field has one writer.

The agent and the operator write into the status of the same CpuNode, and programs of several versions write during an
upgrade. A writer names the fields that are its own, and neither compares nor deletes others.
"""

from collections.abc import Collection, Mapping
from typing import Any

from dracpu_api.resources import JsonObject


def only(status: Mapping[str, Any], fields: Collection[str]) -> JsonObject:
    """These top-level fields of the status."""
    return {name: value for name, value in status.items() if name in fields}


def difference(desired: Mapping[str, Any], current: Mapping[str, Any]) -> JsonObject:
    """The merge patch that turns `current` into `desired`: null deletes a field, lists are replaced as a whole."""
    patch: JsonObject = {name: None for name in current if name not in desired}
    for name, value in desired.items():
        there = current.get(name)
        if isinstance(value, Mapping) and isinstance(there, Mapping):
            if nested := difference(value, there):
                patch[name] = nested
        elif name not in current or value != there:
            patch[name] = value
    return patch
