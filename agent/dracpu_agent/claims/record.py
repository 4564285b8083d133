"""A claim's record: its entry in the checkpoint, which is also in its CDI file, as JSON.

A newer agent may have written it. Fields that this agent does not know are ignored and kept. A record that cannot be
decoded gives a frozen claim, which keeps the record as it is and everything that can be found in it.

Grants name their kind, by which a claim's driver is found. Drivers read their own fields of a grant (claims/held.py).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dracpu_agent.claims.fields import Fields, RecordError
from dracpu_agent.claims.grant import ClaimRef, Grant
from dracpu_agent.claims.held import Frozen, G, HeldClaim
from dracpu_agent.claims.ledger import C
from dracpu_agent.placement.proof import CdiDevice

__all__ = ["RecordError", "decode_claim", "encode_claim", "freeze", "kind_of", "uid_in"]


def encode_claim(claim: HeldClaim[Any]) -> Any:
    """A claim as JSON; a frozen claim's record is unchanged, except that it may linger since."""
    if claim.frozen is not None:
        record = claim.frozen.record
        return {**record, "lingering": True} if claim.lingering and isinstance(record, dict) else record
    return {
        **claim.unknown,
        "namespace": claim.ref.namespace,
        "name": claim.ref.name,
        "uid": claim.ref.uid,
        "grants": [_encode_grant(claim.kind, grant) for grant in claim.grants],
        "consumers": sorted(claim.consumers),
        "digest": claim.digest,
        "lingering": claim.lingering,
    }


def decode_claim(kind: type[C], record: object) -> C:
    """The inverse of `encode_claim`, for the claims of one driver; raises RecordError."""
    fields = Fields(record, "the claim")
    ref = ClaimRef(fields.text("namespace"), fields.text("name"), fields.text("uid"))
    grants = tuple(_decode_grant(kind, grant) for grant in fields.take("grants", list))
    if not grants:
        raise RecordError("the claim has no grants")
    consumers = fields.take("consumers", list)
    if not all(isinstance(consumer, str) for consumer in consumers):
        raise RecordError("the claim has consumers that are not texts")
    digest, lingering = fields.take("digest", str), fields.take("lingering", bool)
    return kind(ref, grants, frozenset(consumers), digest, lingering, fields.left)


def freeze(
    kind: type[C], uid: str, record: object, reason: str, devices: Sequence[CdiDevice] = (), others: Iterable[Any] = ()
) -> C:
    """A claim whose record cannot be decoded, with everything that can be read of it. `devices` and the grants `others`
    are those of its CDI file; `record` is None if only that file is known."""
    fields = record if isinstance(record, dict) else {}
    consumers = fields.get("consumers")
    return kind(
        ClaimRef(_text(fields, "namespace"), _text(fields, "name"), uid),
        kind.salvage(record, devices, others),
        frozenset(pod for pod in consumers if isinstance(pod, str)) if isinstance(consumers, list) else frozenset(),
        digest="",
        lingering=fields.get("lingering") is True,
        frozen=Frozen(reason, record, tuple(devices)),
    )


def kind_of(record: object) -> str:
    """The kind of a claim's grants; "" if there is none, or if it is not the same in all of them."""
    grants = record.get("grants") if isinstance(record, dict) else None
    found = grants if isinstance(grants, list) else []
    kinds = {_text(grant, "kind") if isinstance(grant, dict) else "" for grant in found}
    return kinds.pop() if len(kinds) == 1 else ""


def uid_in(record: object) -> str:
    """The UID in a record that cannot be decoded; "" if there is none."""
    return _text(record, "uid") if isinstance(record, dict) else ""


def _encode_grant(kind: str, grant: Grant) -> dict[str, Any]:
    return {
        **grant.unknown,
        "kind": kind,
        "request": grant.request,
        "pool": grant.pool,
        "device": grant.device,
        "shareID": grant.share_id,
        **grant.fields(),
    }


def _decode_grant(claims: type[HeldClaim[G]], record: object) -> G:
    fields = Fields(record, "a grant")
    if (kind := fields.take("kind", str)) != claims.kind:
        raise RecordError(f"a grant has the kind {kind}, which this agent does not know")
    request, pool, device = (fields.text(name) for name in ("request", "pool", "device"))
    return claims.decode_grant(request, pool, device, fields.text_or_none("shareID"), fields)


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""
