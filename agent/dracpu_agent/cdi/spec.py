"""Encodes a claim as a CDI spec, in which each device sets an environment variable.

The spec also contains the claim's record. The kubelet gets its answer after this file was written, so a lost checkpoint
can be rebuilt from the files: they contain every claim that was reported as prepared.
"""

import json
from typing import Final

from dracpu_agent.claims.checkpoint import CheckpointError, decode_claim, encode_claim
from dracpu_agent.claims.ledger import HeldClaim
from dracpu_api import names
from dracpu_api.errors import DriverError

VERSION: Final = "0.6.0"  # CDI: the first version with annotations
_RECORD: Final = f"{names.DRIVER}/claim"


class CdiSpecError(DriverError):
    """A CDI file does not contain a claim's record."""


def qualified(device: str) -> str:
    """A device's full name, as the kubelet passes it to the runtime."""
    return f"{names.CDI_KIND}={device}"


def encode(claim: HeldClaim) -> bytes:
    """The content of a claim's CDI file."""
    devices = [
        {"name": device, "containerEdits": {"env": [f"{env}={cpus}"]}} for device, env, cpus in claim.cdi_devices()
    ]
    record = json.dumps(encode_claim(claim), separators=(",", ":"))
    spec = {"cdiVersion": VERSION, "kind": names.CDI_KIND, "annotations": {_RECORD: record}, "devices": devices}
    return json.dumps(spec, indent=1).encode() + b"\n"


def decode(data: bytes) -> HeldClaim:
    """The claim in a CDI file; raises CdiSpecError."""
    try:
        return decode_claim(json.loads(json.loads(data)["annotations"][_RECORD]))
    except (ValueError, KeyError, TypeError, CheckpointError) as error:
        raise CdiSpecError(f"the file was not written by this agent: {error!r}") from error
