"""Kubernetes Events: the objects by which operator and agents report what people should notice."""

import secrets
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from dracpu_api.resources import EVENTS, JsonObject

Severity = Literal["Normal", "Warning"]

NAMESPACE: Final = "default"  # Kubernetes: of Events about objects without a namespace

# events.k8s.io/v1 refuses what is longer
_NOTE_BYTES: Final = 1024
_INSTANCE_LENGTH: Final = 128
_NAME_LENGTH: Final = 253


@dataclass(frozen=True, slots=True)
class Event:
    """The contents of an Event. `reason` (the outcome) and `action` (the attempt) are CamelCase."""

    severity: Severity
    reason: str
    action: str
    note: str


def event_body(event: Event, *, regarding: JsonObject, controller: str, instance: str, at: datetime) -> JsonObject:
    """The object to create. `regarding` refers to the object that the Event is about; `controller` is the program that
    reports it, and `instance` its pod or node. `at` is in UTC."""
    suffix = f".{secrets.token_hex(8)}"
    return {
        "apiVersion": EVENTS.api_version,
        "kind": EVENTS.kind,
        "metadata": {
            "name": regarding["name"][: _NAME_LENGTH - len(suffix)].rstrip(".-") + suffix,
            "namespace": regarding.get("namespace", NAMESPACE),  # Kubernetes: that of the object
        },
        "eventTime": at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "reportingController": controller,
        "reportingInstance": instance[:_INSTANCE_LENGTH],
        "type": event.severity,
        "reason": event.reason,
        "action": event.action,
        "note": event.note.encode()[:_NOTE_BYTES].decode(errors="ignore"),
        "regarding": regarding,
    }
