"""Who owns which fields: what a write does to `managedFields`, and what a server-side apply makes of an object.

The rules are those of Kubernetes. Who writes a field takes it from all others. An apply owns what it names: it is
refused when it would change what somebody else owns (unless forced), and what it named the last time and names no
longer goes away, when nobody else owns it.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from dracpu_sandbox.apiserver.fieldsets import (
    NO_FIELDS,
    FieldPath,
    FieldSet,
    Shape,
    compare,
    decode_fields,
    describe,
    encode_fields,
    field_set,
    with_parents,
    without,
)
from dracpu_sandbox.apiserver.merging import merged
from dracpu_sandbox.apiserver.refusal import Cause, RefusedError

JsonObject = dict[str, Any]
Operation = Literal["Apply", "Update"]

_NOBODYS: Final = frozenset(
    {
        ("f:apiVersion",),
        ("f:kind",),
        ("f:metadata",),
        *(
            ("f:metadata", f"f:{name}")
            for name in (
                "creationTimestamp",
                "deletionGracePeriodSeconds",
                "deletionTimestamp",
                "generation",
                "managedFields",
                "name",
                "namespace",
                "resourceVersion",
                "selfLink",
                "uid",
            )
        ),
    }
)
_BEFORE_FIRST_APPLY: Final = "before-first-apply"


@dataclass(frozen=True, slots=True)
class Manager:
    """Somebody who writes objects, in one of the ways to write them."""

    name: str
    operation: Operation
    api_version: str
    subresource: str = ""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Who is the same: an applier is, whatever the version."""
        version = "" if self.operation == "Apply" else self.api_version
        return self.name, self.operation, version, self.subresource


@dataclass(frozen=True, slots=True)
class Share:
    """What a manager owns, and since when."""

    manager: Manager
    fields: FieldSet
    time: str


Shares = Mapping[tuple[str, str, str, str], Share]


def decode_shares(entries: Iterable[JsonObject]) -> Shares:
    """From `metadata.managedFields`."""
    shares = (
        Share(
            Manager(
                entry.get("manager", ""), entry["operation"], entry.get("apiVersion", ""), entry.get("subresource", "")
            ),
            decode_fields(entry.get("fieldsV1") or {}),
            entry.get("time", ""),
        )
        for entry in entries
    )
    return {share.manager.key: share for share in shares}


def encode_shares(shares: Shares) -> list[JsonObject]:
    """As `metadata.managedFields`: appliers first, then by time."""
    ordered = sorted(shares.values(), key=lambda one: (one.manager.operation, one.time, one.manager.key))
    return [_encode(share) for share in ordered]


def _encode(share: Share) -> JsonObject:
    manager = share.manager
    entry: JsonObject = {
        "manager": manager.name,
        "operation": manager.operation,
        "apiVersion": manager.api_version,
        "time": share.time,
        "fieldsType": "FieldsV1",
        "fieldsV1": encode_fields(share.fields),
    }
    return {**entry, "subresource": manager.subresource} if manager.subresource else entry


def shares_of(live: JsonObject, new: JsonObject) -> Shares:
    """The shares to start from: what the writer says, when it says something sensible, else what is stored."""
    said = new.get("metadata", {}).get("managedFields")
    if said == [{}]:
        return {}  # a writer resets them
    try:
        shares = decode_shares(said or ())
    except (AttributeError, KeyError, TypeError):
        shares = {}
    return shares or decode_shares(live.get("metadata", {}).get("managedFields") or ())


def updated(live: JsonObject, new: JsonObject, shares: Shares, writer: Manager, shape: Shape, now: str) -> Shares:
    """The shares after a write that is no apply; `live` is empty for an object that is new."""
    difference = compare(live, new, shape)
    taken = _ownable(difference.added | difference.modified, writer, shape)
    left = _less(shares, taken | difference.removed)
    if not taken:
        return left
    before = shares.get(writer.key)
    kept = before.fields - difference.removed if before else NO_FIELDS
    return {**left, writer.key: Share(writer, kept | taken, now)}


@dataclass(frozen=True, slots=True)
class Applied:
    """The outcome of an apply."""

    object: JsonObject
    shares: Shares


def applied(
    live: JsonObject, config: JsonObject, shares: Shares, writer: Manager, shape: Shape, now: str, *, force: bool
) -> Applied:
    """What an apply makes; raises RefusedError for conflicts. `live` is empty for an object that is new."""
    if live and not shares:
        shares = _before_first_apply(live, writer, shape, now)
    said = _ownable(field_set(config, shape), writer, shape)
    before = shares.get(writer.key)
    mine = before if before and before.fields == said else Share(writer, said, now)
    others = {key: share for key, share in shares.items() if key != writer.key}
    wanted = merged(live, config, shape)
    if before:
        wanted = _pruned(wanted, before.fields, [mine, *others.values()], shape)
    difference = compare(live, wanted, shape)
    changed = difference.added | difference.modified
    conflicts = [(share.manager, path) for share in others.values() for path in share.fields & changed]
    if conflicts and not force:
        allowed = _applied_before(live, writer, shape)
        if refused := [one for one in conflicts if one[1] not in allowed]:
            raise _conflict(refused)
    left = _less(others, changed | difference.removed)
    return Applied(_remembering(wanted, live, config, writer), {**left, writer.key: mine} if said else left)


def _before_first_apply(live: JsonObject, writer: Manager, shape: Shape, now: str) -> Shares:
    """Somebody must own what was there before anybody counted, as far as this apply can touch it."""
    manager = Manager(_BEFORE_FIRST_APPLY, "Update", writer.api_version, writer.subresource)
    fields = _ownable(compare({}, live, shape).added, writer, shape)
    return {manager.key: Share(manager, fields, now)} if fields else {}


def _pruned(wanted: JsonObject, formerly: FieldSet, shares: Sequence[Share], shape: Shape) -> JsonObject:
    """Less what the applier owned, names no longer, and nobody else owns.

    What nobody owns (a default) stays, unless it stands in something that goes.
    """
    there = with_parents(field_set(wanted, shape))
    former = with_parents(formerly)
    owned = with_parents(path for share in shares for path in share.fields)
    stays = with_parents(field_set(without(wanted, former, shape), shape)) | owned
    kept = with_parents(field_set(without(wanted, there - stays, shape), shape))
    pruned: JsonObject = without(wanted, (there - kept) & former, shape)
    return pruned


def _ownable(fields: FieldSet, writer: Manager, shape: Shape) -> FieldSet:
    """The fields that a writer can own."""
    if writer.subresource == "status":
        return frozenset(path for path in fields if path[0] == "f:status")
    if shape.status_apart:
        fields = frozenset(path for path in fields if path[0] != "f:status")
    return fields - _NOBODYS


def _less(shares: Shares, lost: FieldSet) -> Shares:
    left = {key: replace(share, fields=share.fields - lost) for key, share in shares.items()}
    return {key: share for key, share in left.items() if share.fields}


# Conflicts

_Conflicts = list[tuple[Manager, FieldPath]]
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


def _applied_before(live: JsonObject, writer: Manager, shape: Shape) -> FieldSet:
    """What kubectl applied from the client's side, and is still so: it may go over to the server's side with it."""
    annotation = _last_applied(live)
    if writer.name != "kubectl" or not annotation:
        return NO_FIELDS
    try:
        formerly = json.loads(annotation)
    except ValueError:
        return NO_FIELDS
    since = compare(formerly, live, shape)
    return field_set(formerly, shape) - since.added - since.modified - since.removed


def _remembering(wanted: JsonObject, live: JsonObject, config: JsonObject, writer: Manager) -> JsonObject:
    """What is wanted; kubectl, which may go back to the client's side, is to find there what it applied last."""
    if writer.name != "kubectl" or writer.subresource or not _last_applied(live):
        return wanted
    said = {name: value for name, value in config.get("metadata", {}).items() if name != "annotations"}
    annotations = {name: one for name, one in _annotations(config).items() if name != _LAST_APPLIED}
    metadata = {**said, **({"annotations": annotations} if annotations else {})}
    text = json.dumps({**config, "metadata": metadata}, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    annotated = {**_annotations(wanted), _LAST_APPLIED: f"{text}\n"}
    return {**wanted, "metadata": {**wanted["metadata"], "annotations": annotated}}


def _last_applied(live: JsonObject) -> str:
    return str(_annotations(live).get(_LAST_APPLIED) or "")


def _annotations(one: JsonObject) -> JsonObject:
    return one.get("metadata", {}).get("annotations") or {}


def _conflict(conflicts: _Conflicts) -> RefusedError:
    ordered = sorted(conflicts, key=lambda one: (one[0].key, _reading_order(one[1])))
    causes = [
        Cause(describe(path), f"conflict with {_told(manager)}", "FieldManagerConflict") for manager, path in ordered
    ]
    if len(ordered) == 1:
        message = f"Apply failed with 1 conflict: {causes[0].message}: {causes[0].field}"
    else:
        paths: dict[str, list[str]] = {}
        for manager, path in ordered:
            paths.setdefault(_told(manager), []).append(describe(path))
        lines = [
            line for who, fields in paths.items() for line in (f"conflicts with {who}:", *map("- {}".format, fields))
        ]
        message = f"Apply failed with {len(ordered)} conflicts: " + "\n".join(lines)
    return RefusedError(409, "Conflict", message, causes=causes)


def _reading_order(path: FieldPath) -> list[tuple[bool, str]]:
    """At each level, fields that are not divided come first."""
    return [(place < len(path), element) for place, element in enumerate(path, start=1)]


def _told(manager: Manager) -> str:
    words = f'"{manager.name}"'
    if manager.subresource:
        words += f' with subresource "{manager.subresource}"'
    if manager.operation == "Update":
        words += f" using {manager.api_version}"
    return words
