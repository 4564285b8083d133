"""Encodes a claim as a CDI spec, in which each device sets an environment variable.

The spec also contains the claim's record. The kubelet gets its answer after this file was written, so a lost checkpoint
can be rebuilt from the files: they contain every claim that was reported as prepared.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from dracpu_agent.claims.ledger import HeldClaim
from dracpu_agent.claims.record import RecordError, decode_claim, encode_claim, freeze
from dracpu_agent.placement.proof import CdiDevice
from dracpu_api import names

VERSION: Final = "0.6.0"  # CDI: the first version with annotations
_KIND: Final = names.CPUS.cdi_kind
_RECORD: Final = f"{names.DRIVER}/claim"


def encode(claim: HeldClaim) -> bytes:
    """The content of a claim's CDI file."""
    devices = [
        {
            "name": device.name.partition("=")[2],
            "containerEdits": {"env": [f"{name}={value}" for name, value in device.variables]},
        }
        for device in claim.cdi_devices()
    ]
    record = json.dumps(encode_claim(claim), separators=(",", ":"))
    spec = {"cdiVersion": VERSION, "kind": _KIND, "annotations": {_RECORD: record}, "devices": devices}
    return json.dumps(spec, indent=1).encode() + b"\n"


def decode(data: bytes, uid: str) -> HeldClaim:
    """The claim in the CDI file whose name has this UID; a frozen claim if its record cannot be decoded."""
    spec = _parsed(data)
    record = _record(spec)
    try:
        return decode_claim(record)
    except RecordError as error:
        return freeze(uid, record, f"its CDI file: {error}", tuple(_devices(spec)))


def serves(data: bytes, claim: HeldClaim) -> bool:
    """Whether a file gives containers what they need of the claim, and contains its record.

    What a newer agent has added is accepted. Consumers are not compared: a file keeps those of the claim's Prepare.
    """
    spec = _parsed(data)
    variables = {device.name: set(device.variables) for device in _devices(spec)}
    if not all(set(device.variables) <= variables.get(device.name, set()) for device in claim.cdi_devices()):
        return False
    record = _record(spec)
    try:
        found = decode_claim(record)
    except RecordError:
        return isinstance(record, dict) and record.get("uid") == claim.ref.uid
    return _identity(found) == _identity(claim)


def _identity(claim: HeldClaim) -> tuple[object, ...]:
    return claim.ref, claim.digest, tuple(replace(grant, unknown={}) for grant in claim.grants)


def _parsed(data: bytes) -> dict[str, Any]:
    """The spec, or {} if it is not one of our kind."""
    try:
        spec = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return spec if isinstance(spec, dict) and spec.get("kind") == _KIND and "cdiVersion" in spec else {}


def _record(spec: dict[str, Any]) -> Any:
    """The record; None if there is none."""
    try:
        return json.loads(spec["annotations"][_RECORD])
    except (KeyError, TypeError, ValueError, RecursionError):
        return None


def _devices(spec: dict[str, Any]) -> Iterator[CdiDevice]:
    """The devices, with those of their variables that are ours."""
    devices = spec.get("devices")
    for device in devices if isinstance(devices, list) else ():
        try:
            name, env = str(device["name"]), [str(entry) for entry in device["containerEdits"].get("env") or ()]
        except (AttributeError, KeyError, TypeError):
            continue
        ours = [entry.partition("=") for entry in env if entry.startswith(names.CPUS.variables)]
        yield CdiDevice(f"{_KIND}={name}", tuple((variable, value) for variable, _, value in ours))
