"""Encodes and decodes the checkpoint: everything that must survive a restart, with a checksum.

A newer agent may have written it. Each claim is decoded on its own, and the settings as well, so that what this agent
does not understand affects nothing else, and is written back unchanged.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from dracpu_agent.claims.cpu_claim import CpuClaim
from dracpu_agent.claims.earmarks import Places
from dracpu_agent.claims.held import HeldClaim
from dracpu_agent.claims.record import RecordError, decode_claim, encode_claim, freeze, kind_of, uid_in
from dracpu_api.cpuset import EMPTY, CpuSet, CpuSetError
from dracpu_api.errors import DriverError
from dracpu_api.settings import (
    CpuNodeSpec,
    Settings,
    decode_settings,
    decode_spec,
    encode_settings,
    encode_spec,
)

VERSION: Final = 1

ClaimKind = type[HeldClaim[Any]]
KINDS: Final[Sequence[ClaimKind]] = (CpuClaim,)  # the first one keeps records of a kind that is not known

_T = TypeVar("_T")


class CheckpointError(DriverError):
    """An invalid checkpoint; the message names the fault."""


class NewerCheckpointError(CheckpointError):
    """A checkpoint in a format that only a newer agent can read."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Content of a checkpoint that this agent writes back unchanged, because it may not know all of it."""

    fields: Mapping[str, Any] = field(default_factory=dict)  # of the checkpoint itself; only unknown ones
    spec: Any = None  # this field and the others: only what cannot be decoded
    former: Any = None
    earmarks: Mapping[str, Any] = field(default_factory=dict)

    def without_settings(self) -> "Kept":
        """Forgets the checkpoint's settings, which others have replaced, and keeps the rest."""
        return Kept(self.fields)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state that a restarted agent continues from."""

    node: str
    spec: CpuNodeSpec | None  # the last good settings, for a restart without a reachable API server
    claims: tuple[HeldClaim[Any], ...]  # of all drivers
    former: Settings | None = None  # their devices are published while the node settles
    earmarks: Places = field(default_factory=dict)
    withheld: CpuSet = EMPTY  # the core kept for the system if no CPUs are reserved
    states: Mapping[str, Any] = field(default_factory=dict)  # driver -> what else it must keep, as JSON
    kept: Kept = field(default_factory=Kept)

    @property
    def uids(self) -> frozenset[str]:
        """The UIDs of the claims."""
        return frozenset(claim.ref.uid for claim in self.claims)


def encode(checkpoint: Checkpoint) -> bytes:
    """One line of JSON."""
    kept = checkpoint.kept
    body = {
        **kept.fields,
        "version": VERSION,
        "node": checkpoint.node,
        "spec": kept.spec if checkpoint.spec is None else encode_spec(checkpoint.spec),
        "claims": [
            encode_claim(claim)
            for claim in checkpoint.claims
            if claim.frozen is None or claim.frozen.record is not None
        ],
        "former": kept.former if checkpoint.former is None else encode_settings(checkpoint.former),
        "earmarks": {**kept.earmarks, **_encode_earmarks(checkpoint.earmarks)},
        "withheld": str(checkpoint.withheld),
    }
    if checkpoint.states:
        body["drivers"] = dict(checkpoint.states)
    return json.dumps({"checksum": _checksum(body), "body": body}, separators=(",", ":")).encode() + b"\n"


def decode(data: bytes, kinds: Sequence[ClaimKind] = KINDS) -> Checkpoint:
    """Reads the output of `encode`, of this or of a newer agent; raises CheckpointError for anything else."""
    try:
        document = json.loads(data)
        body = dict(document["body"])
        if document["checksum"] != _checksum(body):
            raise CheckpointError("the checksum does not match: the file was damaged or edited")
        _check_version(body.pop("version"))
        node, claims = body.pop("node"), _decode_claims(body.pop("claims"), kinds)
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError) as error:
        raise CheckpointError(f"the content is invalid: {error!r}") from error
    records = body.pop("spec", None), body.pop("former", None)
    spec, former = _if_readable(records[0], decode_spec), _if_readable(records[1], decode_settings)
    earmarks, not_decoded = _decode_earmarks(body.pop("earmarks", {}))
    states = body.pop("drivers", None)
    return Checkpoint(
        node,
        spec,
        claims,
        former,
        earmarks,
        _if_readable(body.pop("withheld", None), CpuSet.parse) or EMPTY,  # absent in checkpoints of agent 0.1.0
        states if isinstance(states, dict) else {},
        Kept(
            body,
            records[0] if spec is None else None,
            records[1] if former is None else None,
            not_decoded,
        ),
    )


def _check_version(version: object) -> None:
    if isinstance(version, int) and version > VERSION:
        raise NewerCheckpointError(f"a newer agent wrote it in version {version}, this agent reads version {VERSION}")
    if version != VERSION:
        raise CheckpointError(f"version {version} is not supported: this agent reads version {VERSION}")


def _decode_claims(records: object, kinds: Sequence[ClaimKind]) -> tuple[HeldClaim[Any], ...]:
    """All claims, those that can be decoded first. A driver has no two with the same UID: a record without a UID of its
    own is frozen under a name that no claim can have."""
    if not isinstance(records, list):
        raise CheckpointError("the content is invalid: the claims are not a list")
    by_name: dict[str, ClaimKind] = {kind.kind: kind for kind in kinds}
    decoded: dict[tuple[ClaimKind, str], HeldClaim[Any]] = {}
    frozen: list[tuple[int, ClaimKind, object, str]] = []
    for index, record in enumerate(records):
        kind = by_name.get(kind_of(record), kinds[0])
        try:
            claim = decode_claim(kind, record)
        except RecordError as error:
            frozen.append((index, kind, record, str(error)))
            continue
        if decoded.setdefault((kind, claim.ref.uid), claim) is not claim:
            frozen.append((index, kind, record, "another entry has the same UID"))
    claims = dict(decoded)
    for index, kind, record, reason in frozen:
        uid = uid_in(record)
        name = uid if uid and (kind, uid) not in claims else f"{uid}#{index}"
        claims[kind, name] = freeze(kind, name, record, reason)
    return tuple(claims.values())


def _encode_earmarks(earmarks: Places) -> dict[str, dict[str, str]]:
    return {uid: {device: str(cpus) for device, cpus in places.items()} for uid, places in earmarks.items()}


def _decode_earmarks(records: object) -> tuple[Places, Mapping[str, Any]]:
    """The earmarks, and the records of those that cannot be decoded. The node picks their CPUs anew."""
    decoded: dict[str, dict[str, CpuSet]] = {}
    not_decoded: dict[str, Any] = {}
    for uid, places in records.items() if isinstance(records, dict) else ():
        try:
            decoded[uid] = {device: CpuSet.parse(cpus) for device, cpus in places.items()}
        except (AttributeError, CpuSetError):
            not_decoded[uid] = places
    return decoded, not_decoded


def _if_readable(record: Any, decode: Callable[[Any], _T]) -> _T | None:
    """None as well if the record cannot be decoded: claims do not depend on it."""
    try:
        return None if record is None else decode(record)
    except (AttributeError, ValueError):
        return None


def _checksum(body: Mapping[str, Any]) -> str:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
