"""Checkpoints and CDI files as a newer agent could write them: with fields and kinds that this agent does not know."""

import hashlib
import json
from collections.abc import Callable
from typing import Any


def checkpoint(body: dict[str, Any]) -> bytes:
    """Returns a checkpoint with this content and a valid checksum."""
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    checksum = hashlib.sha256(text.encode()).hexdigest()
    return json.dumps({"checksum": checksum, "body": body}).encode()


def body_of(data: bytes) -> dict[str, Any]:
    """Returns the content of a checkpoint."""
    body: dict[str, Any] = json.loads(data)["body"]
    return body


def rewritten(data: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    """Returns a checkpoint whose content was changed, with a valid checksum."""
    body = body_of(data)
    change(body)
    return checkpoint(body)


def cdi_record(data: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    """Returns a CDI file in which the claim's record was changed."""
    spec = json.loads(data)
    record = json.loads(spec["annotations"]["dra.cpu/claim"])
    change(record)
    spec["annotations"]["dra.cpu/claim"] = json.dumps(record)
    return json.dumps(spec).encode()
