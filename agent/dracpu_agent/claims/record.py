"""A claim's record: its entry in the checkpoint, which is also in its CDI file, as JSON.

A newer agent may have written it. Fields that this agent does not know are ignored and kept. A record that cannot be
decoded gives a frozen claim, which keeps the record as it is and every CPU that can be found in it.

Grants name their kind, so that another kind of grant can be added without a new format.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from dracpu_agent.claims.grant import ClaimRef, CpuGrant
from dracpu_agent.claims.ledger import Frozen, HeldClaim, cpus_named_by
from dracpu_agent.placement.proof import CdiDevice
from dracpu_api.cpuset import EMPTY, CpuSet, CpuSetError, union
from dracpu_api.errors import DriverError

_KIND: Final = "cpu"
_NAMES_OF_CPUS: Final = ("cpus", "cpuset")

_T = TypeVar("_T")


class RecordError(DriverError):
    """A record that this agent cannot decode; the message names the fault."""


def encode_claim(claim: HeldClaim) -> Any:
    """A claim as JSON; a frozen claim's record is unchanged, except that it may linger since."""
    if claim.frozen is not None:
        record = claim.frozen.record
        return {**record, "lingering": True} if claim.lingering and isinstance(record, dict) else record
    return {
        **claim.unknown,
        "namespace": claim.ref.namespace,
        "name": claim.ref.name,
        "uid": claim.ref.uid,
        "grants": [
            {
                **grant.unknown,
                "kind": _KIND,
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


def decode_claim(record: object) -> HeldClaim:
    """The inverse of `encode_claim`; raises RecordError."""
    fields = _Fields(record, "the claim")
    ref = ClaimRef(fields.text("namespace"), fields.text("name"), fields.text("uid"))
    grants = tuple(_decode_grant(grant) for grant in fields.take("grants", list))
    if not grants:
        raise RecordError("the claim has no grants")
    consumers = fields.take("consumers", list)
    if not all(isinstance(consumer, str) for consumer in consumers):
        raise RecordError("the claim has consumers that are not texts")
    digest, lingering = fields.take("digest", str), fields.take("lingering", bool)
    return HeldClaim(ref, grants, frozenset(consumers), digest, lingering, fields.left)


def freeze(
    uid: str,
    record: object,
    reason: str,
    devices: Sequence[CdiDevice] = (),
    cpus: CpuSet = EMPTY,
) -> HeldClaim:
    """A claim whose record cannot be decoded, with everything that can be read of it. `devices` and `cpus` are those of
    its CDI file; `record` is None if only that file is known."""
    fields = record if isinstance(record, dict) else {}
    grants: list[CpuGrant] = []
    found = EMPTY
    for grant in _readable_grants(fields.get("grants")):
        grants.append(replace(grant, cpus=grant.cpus - found))
        found |= grant.cpus
    others = union([*_named_cpus(record), *map(cpus_named_by, devices), cpus]) - found
    grants.append(CpuGrant("", "", "", None, others))
    consumers = fields.get("consumers")
    return HeldClaim(
        ClaimRef(_text(fields, "namespace"), _text(fields, "name"), uid),
        tuple(grant for grant in grants if grant.cpus),
        frozenset(pod for pod in consumers if isinstance(pod, str)) if isinstance(consumers, list) else frozenset(),
        digest="",
        lingering=fields.get("lingering") is True,
        frozen=Frozen(reason, record, tuple(devices)),
    )


def uid_in(record: object) -> str:
    """The UID in a record that cannot be decoded; "" if there is none."""
    return _text(record, "uid") if isinstance(record, dict) else ""


def _decode_grant(record: object) -> CpuGrant:
    fields = _Fields(record, "a grant")
    if (kind := fields.take("kind", str)) != _KIND:
        raise RecordError(f"a grant has the kind {kind}, which this agent does not know")
    request, pool, device = (fields.text(name) for name in ("request", "pool", "device"))
    share_id = None if fields.left.get("shareID") is None else fields.text("shareID")
    fields.left.pop("shareID", None)
    try:
        cpus = CpuSet.parse(fields.take("cpus", str))
    except CpuSetError as error:
        raise RecordError(f"a grant has invalid CPUs: {error}") from error
    if not cpus:
        raise RecordError("a grant has no CPUs")
    return CpuGrant(request, pool, device, share_id, cpus, fields.left)


def _readable_grants(records: object) -> Iterator[CpuGrant]:
    for record in records if isinstance(records, list) else ():
        if isinstance(record, dict):
            request, pool, device, share_id = (_text(record, name) for name in ("request", "pool", "device", "shareID"))
            yield CpuGrant(request, pool, device, share_id or None, _cpus(record.get("cpus")))


def _named_cpus(record: object) -> Iterator[CpuSet]:
    """The CPUs in every field of such a name, at any depth."""
    left = [record]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            yield from (_cpus(value[name]) for name in _NAMES_OF_CPUS if name in value)
            left += value.values()
        elif isinstance(value, list):
            left += value


def _cpus(value: object) -> CpuSet:
    try:
        return CpuSet.parse(value) if isinstance(value, str) else EMPTY
    except CpuSetError:
        return EMPTY


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""


class _Fields:
    """The fields of a record; those that are left at the end are unknown."""

    def __init__(self, record: object, what: str) -> None:
        if not isinstance(record, dict):
            raise RecordError(f"{what} is not an object")
        self.left = dict(record)
        self._what = what

    def take(self, name: str, kind: type[_T]) -> _T:
        value = self.left.pop(name, None)
        if not isinstance(value, kind):
            raise RecordError(f"{self._what} has no valid field {name}")
        return value

    def text(self, name: str) -> str:
        text = self.take(name, str)
        if not text:
            raise RecordError(f"{self._what} has an empty field {name}")
        return text
