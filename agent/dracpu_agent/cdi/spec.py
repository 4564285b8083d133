"""A claim as a CDI spec (Container Device Interface): one device for each use, which sets one environment variable.

The claim's record is kept in the spec too: the reply to the kubelet comes after this file, so that a checkpoint that
was lost can be rebuilt from the files of all claims that anybody was told of.
"""

import json
from typing import Final

from dracpu_agent.claims.checkpoint import CheckpointError, decode_claim, encode_claim
from dracpu_agent.claims.ledger import HeldClaim
from dracpu_api import names
from dracpu_api.errors import DriverError

VERSION: Final = "0.6.0"  # CDI: the first with annotations
_RECORD: Final = f"{names.DRIVER}/claim"


class CdiSpecError(DriverError):
    """A CDI file of ours that holds no claim's record."""


def qualified(device: str) -> str:
    """A device's full name, as the kubelet passes it to the runtime."""
    return f"{names.CDI_KIND}={device}"


def encode(claim: HeldClaim) -> bytes:
    """The claim's CDI file."""
    devices = [
        {"name": device, "containerEdits": {"env": [f"{env}={cpus}"]}} for device, env, cpus in claim.cdi_devices()
    ]
    record = json.dumps(encode_claim(claim), separators=(",", ":"))
    spec = {"cdiVersion": VERSION, "kind": names.CDI_KIND, "annotations": {_RECORD: record}, "devices": devices}
    return json.dumps(spec, indent=1).encode() + b"\n"


def decode(data: bytes) -> HeldClaim:
    """The claim that a CDI file was written for."""
    try:
        return decode_claim(json.loads(json.loads(data)["annotations"][_RECORD]))
    except (ValueError, KeyError, TypeError, CheckpointError) as error:
        raise CdiSpecError(f"it is no CDI file of this agent: {error!r}") from error
