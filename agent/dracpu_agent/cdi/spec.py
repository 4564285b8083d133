"""Encodes a claim as a CDI spec, in which each device sets an environment variable.

The spec also contains the claim's record. The kubelet gets its answer after this file was written, so a lost checkpoint
can be rebuilt from the files: they contain every claim that was reported as prepared.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from dracpu_agent.claims.held import HeldClaim
from dracpu_agent.claims.ledger import C
from dracpu_agent.claims.record import RecordError, decode_claim, encode_claim, freeze
from dracpu_agent.placement.proof import CdiDevice
from dracpu_api.names import VARIABLES, DriverNames

VERSION: Final = "0.6.0"  # CDI: the first version with annotations


def encode(claim: HeldClaim[Any]) -> bytes:
    """The content of a claim's CDI file."""
    devices = [
        {
            "name": device.name.partition("=")[2],
            "containerEdits": {"env": [f"{name}={value}" for name, value in device.variables]},
        }
        for device in claim.cdi_devices()
    ]
    record = json.dumps(encode_claim(claim), separators=(",", ":"))
    annotations = {_annotation(claim.names): record}
    spec = {"cdiVersion": VERSION, "kind": claim.names.cdi_kind, "annotations": annotations, "devices": devices}
    return json.dumps(spec, indent=1).encode() + b"\n"


def decode(kind: type[C], data: bytes, uid: str) -> C:
    """The claim in the CDI file whose name has this UID; a frozen claim if its record cannot be decoded."""
    spec = _parsed(data, kind.names)
    record = _record(spec, kind.names)
    try:
        return decode_claim(kind, record)
    except RecordError as error:
        return freeze(kind, uid, record, f"its CDI file: {error}", tuple(_devices(spec, kind.names)))


def serves(data: bytes, claim: HeldClaim[Any]) -> bool:
    """Whether a file gives containers what they need of the claim, and contains its record.

    What a newer agent has added is accepted. Consumers are not compared: a file keeps those of the claim's Prepare.
    """
    spec = _parsed(data, claim.names)
    variables = {device.name: set(device.variables) for device in _devices(spec, claim.names)}
    if not all(set(device.variables) <= variables.get(device.name, set()) for device in claim.cdi_devices()):
        return False
    record = _record(spec, claim.names)
    try:
        found = decode_claim(type(claim), record)
    except RecordError:
        return isinstance(record, dict) and record.get("uid") == claim.ref.uid
    return _identity(found) == _identity(claim)


def _identity(claim: HeldClaim[Any]) -> tuple[object, ...]:
    return claim.ref, claim.digest, tuple(replace(grant, unknown={}) for grant in claim.grants)


def _annotation(driver: DriverNames) -> str:
    return f"{driver.driver}/claim"


def _parsed(data: bytes, driver: DriverNames) -> dict[str, Any]:
    """The spec, or {} if it is not one of the driver's kind."""
    try:
        spec = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return spec if isinstance(spec, dict) and spec.get("kind") == driver.cdi_kind and "cdiVersion" in spec else {}


def _record(spec: dict[str, Any], driver: DriverNames) -> Any:
    """The record; None if there is none."""
    try:
        return json.loads(spec["annotations"][_annotation(driver)])
    except (KeyError, TypeError, ValueError, RecursionError):
        return None


def _devices(spec: dict[str, Any], driver: DriverNames) -> Iterator[CdiDevice]:
    """The devices, with those of their variables that drivers set: a claim of CPUs may have some of memory."""
    devices = spec.get("devices")
    for device in devices if isinstance(devices, list) else ():
        try:
            name, env = str(device["name"]), [str(entry) for entry in device["containerEdits"].get("env") or ()]
        except (AttributeError, KeyError, TypeError):
            continue
        ours = [entry.partition("=") for entry in env if entry.startswith(VARIABLES)]
        yield CdiDevice(f"{driver.cdi_kind}={name}", tuple((variable, value) for variable, _, value in ours))
