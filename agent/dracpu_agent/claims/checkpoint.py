"""Encodes and decodes the checkpoint: everything that must survive a restart, with a checksum.

Grants name their kind, so that another kind of grant can be added without a new format.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from dracpu_agent.claims.earmarks import Places
from dracpu_agent.claims.grant import ClaimRef, CpuGrant
from dracpu_agent.claims.ledger import HeldClaim
from dracpu_api.cpuset import EMPTY, CpuSet, CpuSetError
from dracpu_api.errors import DriverError
from dracpu_api.settings import (
    CpuNodeSpec,
    Settings,
    SettingsError,
    decode_settings,
    decode_spec,
    encode_settings,
    encode_spec,
)

VERSION: Final = 1


class CheckpointError(DriverError):
    """An invalid checkpoint; the message names the fault."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state that a restarted agent continues from."""

    node: str
    spec: CpuNodeSpec | None  # the last good settings, for a restart without a reachable API server
    claims: tuple[HeldClaim, ...]
    former: Settings | None = None  # their devices are published while the node settles
    earmarks: Places = field(default_factory=dict)
    withheld: CpuSet = EMPTY  # the core kept for the system if no CPUs are reserved

    @property
    def uids(self) -> frozenset[str]:
        """The UIDs of the claims."""
        return frozenset(claim.ref.uid for claim in self.claims)


def encode(checkpoint: Checkpoint) -> bytes:
    """One line of JSON."""
    body = {
        "version": VERSION,
        "node": checkpoint.node,
        "spec": None if checkpoint.spec is None else encode_spec(checkpoint.spec),
        "claims": [encode_claim(claim) for claim in checkpoint.claims],
        "former": None if checkpoint.former is None else encode_settings(checkpoint.former),
        "earmarks": {
            uid: {device: str(cpus) for device, cpus in places.items()} for uid, places in checkpoint.earmarks.items()
        },
        "withheld": str(checkpoint.withheld),
    }
    return json.dumps({"checksum": _checksum(body), "body": body}, separators=(",", ":")).encode() + b"\n"


def decode(data: bytes) -> Checkpoint:
    """Reads the output of `encode`; raises CheckpointError for anything else."""
    try:
        document = json.loads(data)
        body = document["body"]
        if document["checksum"] != _checksum(body):
            raise CheckpointError("the checksum does not match: the file was damaged or edited")
        if body["version"] != VERSION:
            raise CheckpointError(f"version {body['version']} is not supported: this agent reads version {VERSION}")
        spec = None if body["spec"] is None else decode_spec(body["spec"])
        claims = tuple(decode_claim(claim) for claim in body["claims"])
        former = None if body["former"] is None else decode_settings(body["former"])
        earmarks = {
            uid: {device: CpuSet.parse(cpus) for device, cpus in places.items()}
            for uid, places in body["earmarks"].items()
        }
        withheld = CpuSet.parse(body.get("withheld", ""))  # absent in checkpoints of agent 0.1.0
        return Checkpoint(body["node"], spec, claims, former, earmarks, withheld)
    except (ValueError, AttributeError, KeyError, TypeError, SettingsError) as error:
        raise CheckpointError(f"the content is invalid: {error!r}") from error


def encode_claim(claim: HeldClaim) -> dict[str, Any]:
    """A claim as JSON. Its CDI file contains this, too, so that a lost checkpoint can be rebuilt."""
    return {
        "namespace": claim.ref.namespace,
        "name": claim.ref.name,
        "uid": claim.ref.uid,
        "grants": [
            {
                "kind": "cpu",
                "request": grant.request,
                "pool": grant.pool,
                "device": grant.device,
                "shareID": grant.share_id,
                "cpus": str(grant.cpus),
            }
            for grant in claim.grants
        ],
        "consumers": sorted(claim.consumers),
        "digest": claim.digest,
        "lingering": claim.lingering,
    }


def decode_claim(claim: Mapping[str, Any]) -> HeldClaim:
    """The inverse of `encode_claim`."""
    try:
        return HeldClaim(
            ref=ClaimRef(claim["namespace"], claim["name"], claim["uid"]),
            grants=tuple(_decode_grant(grant) for grant in claim["grants"]),
            consumers=frozenset(claim["consumers"]),
            digest=claim["digest"],
            lingering=claim["lingering"],
        )
    except (KeyError, TypeError, CpuSetError) as error:
        raise CheckpointError(f"a claim is invalid: {error!r}") from error


def _decode_grant(grant: Mapping[str, Any]) -> CpuGrant:
    if grant["kind"] != "cpu":
        raise CheckpointError(f"a claim has a grant of kind {grant['kind']}, which this agent does not support")
    return CpuGrant(grant["request"], grant["pool"], grant["device"], grant["shareID"], CpuSet.parse(grant["cpus"]))


def _checksum(body: Mapping[str, Any]) -> str:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
