"""Turns objects from the API server into records. Pure.

An object that cannot be understood is recorded as such instead of raising an error: it must not stop all the others.

The objects may be those of a newer version, whose CRDs are installed before its programs and stay when these are rolled
back. Settings that this version does not know are copied from the config to its nodes. Those that nobody has written
are left out: they are defaults of the newer CRD.
"""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from sys import intern
from typing import Any, Final

from dracpu_api.conditions import NodeCondition, Phase
from dracpu_api.cpuset import CpuSet, CpuSetError
from dracpu_api.memory_kinds import KINDS, LIMIT
from dracpu_api.names import (
    ANNOTATION_AGENT_WAS_READY,
    ANNOTATION_DEVICES_CHANGED_AT,
    ANNOTATION_GIVEN_AT,
    ANNOTATION_REMOVE_AFTER,
)
from dracpu_api.objects.validate import InvalidObjectError, parse_stored_config
from dracpu_api.quantity import whole_number
from dracpu_api.resources import Json, resource_version
from dracpu_api.settings import Settings, SettingsError, decode_settings, decode_spec, encode_settings
from dracpu_operator.decide.records import Config, CpuCounts, CpuNode, MemoryBytes, Node, Trouble, Wanted, sums_by_kind
from dracpu_operator.decide.times import written_time

_REVISION_DIGITS: Final = 16  # 64 bits: no two settings in a cluster get the same revision
# while one of these conditions is false, no claim gets CPUs of the node; the conditions of newer agents are remarks
_NEEDED_BY_CPUS: Final = frozenset(
    {
        NodeCondition.KUBELET_REGISTERED,
        NodeCondition.RUNTIME_CONNECTED,
        NodeCondition.SLICES_PUBLISHED,
        NodeCondition.STATE_HEALTHY,
    }
)
_NEEDED_BY_MEMORY: Final = frozenset({NodeCondition.MEMORY_READY})  # beside those that CPUs need
_MOST_CPUS: Final = 8192  # of one node; sums over nodes stay within 64 bits, whatever an agent reports
_QUANTITY_LENGTH: Final = 32
_MOST_PLACES: Final = 4096  # kinds on NUMA nodes of one node
_MESSAGE_LENGTH: Final = 256  # of one trouble: three nodes have to fit into a message that people read
_PARTLY_KNOWN: Final = frozenset({"allocation", "memory"})  # objects of which this version knows some fields
_NOT_SETTINGS: Final = frozenset({"nodeSelector", "priority", "rollout"})
_KINDS: Final = {kind: kind for kind in KINDS}  # so that all records share the texts
_SILENT: Final = "its agent has not reported yet: does the DaemonSet's pod run on this node?"


def read_node(raw: Json) -> Node:
    """Reads a Node; its metadata is enough."""
    metadata = raw["metadata"]
    # nodes have many labels, and nearly all labels of one node are those of others: each text is kept once
    labels = {intern(key): intern(value) for key, value in (metadata.get("labels") or {}).items()}
    return Node(intern(metadata["name"]), metadata["uid"], resource_version(raw), labels)


def read_config(raw: Json) -> Config:
    """Reads a CpuDriverConfig."""
    metadata = raw["metadata"]
    wanted, problems = _read_wanted(raw)
    return Config(
        name=metadata["name"],
        uid=metadata["uid"],
        version=resource_version(raw),
        generation=metadata.get("generation", 0),
        created=metadata.get("creationTimestamp") or "",
        wanted=wanted,
        problems=problems,
        status=raw.get("status") or {},
    )


def read_cpu_node(raw: Json) -> CpuNode:
    """Reads a CpuNode."""
    metadata, status = raw["metadata"], raw.get("status") or {}
    annotations = metadata.get("annotations") or {}
    spec, unreadable = None, ""
    try:
        spec = decode_spec(raw.get("spec"))
    except SettingsError as error:
        unreadable = str(error)[:_MESSAGE_LENGTH]
    return CpuNode(
        name=intern(metadata["name"]),
        uid=metadata["uid"],
        version=resource_version(raw),
        generation=metadata.get("generation", 0),
        owner=_owner(metadata),
        spec=spec,
        unreadable=unreadable,
        config_name=_config_name(raw) if spec is None else spec.config_name,
        phase=_phase(status.get("phase")),
        applied=status.get("appliedRevision"),
        cpus=_cpus(status),
        memory=sums_by_kind(_memory(status)),
        failure=_failure(status),
        troubles=_troubles(metadata, status),
        memory_troubles=_false(status, _NEEDED_BY_MEMORY),
        ignored=tuple(str(path)[:_MESSAGE_LENGTH] for path in status.get("ignoredSettings") or ()),
        given_at=written_time(annotations.get(ANNOTATION_GIVEN_AT)),
        devices_changed_at=written_time(annotations.get(ANNOTATION_DEVICES_CHANGED_AT)),
        was_ready={"true": True, "false": False}.get(annotations.get(ANNOTATION_AGENT_WAS_READY) or ""),
        remove_after=annotations.get(ANNOTATION_REMOVE_AFTER) or "",
        reported_agent=_reported_agent(status),
    )


def revision_of(settings: Settings) -> str:
    """A hash of the settings. It does not depend on how they are written: "0,1" and "0-1" have one revision."""
    text = json.dumps(encode_settings(settings), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_REVISION_DIGITS]


def _read_wanted(raw: Json) -> tuple[Wanted | None, tuple[str, ...]]:
    # without the status: one that a newer operator has written does not make the config invalid
    stored = raw.get("spec") or {}
    try:
        spec = parse_stored_config(stored)
        settings = decode_settings({name: value for name, value in stored.items() if name not in _NOT_SETTINGS})
    except InvalidObjectError as error:
        return None, error.problems
    except SettingsError as error:
        return None, (str(error),)
    if settings.unknown:
        settings = replace(settings, unknown=_written(settings.unknown, _written_specs(raw["metadata"])))
    return Wanted(spec, settings, revision_of(settings)), ()


def _written_specs(metadata: Json) -> list[Json] | None:
    """The fields of the spec that somebody has written, in the form of `managedFields`; None when the API server does
    not record it."""
    entries = metadata.get("managedFields")
    if not entries:
        return None
    fields = [entry.get("fieldsV1") or {} for entry in entries if not entry.get("subresource")]
    return [written["f:spec"] for written in fields if "f:spec" in written]


def _written(
    unknown: Mapping[str, Any], owned: Sequence[Json] | None, partly_known: Collection[str] = _PARTLY_KNOWN
) -> dict[str, Any]:
    """The fields that somebody has written. Of the objects in `partly_known`, `unknown` has only unknown fields."""
    if owned is None:
        return dict(unknown)
    found: dict[str, Any] = {}
    for name, value in unknown.items():
        written = [fields[f"f:{name}"] for fields in owned if f"f:{name}" in fields]
        if not written:
            continue
        # an object without fields of its own was written as a whole
        if name in partly_known or (isinstance(value, Mapping) and any(map(_has_fields, written))):
            nested = _written(value, written, ())
            if nested:
                found[name] = nested
        else:
            found[name] = value
    return found


def _has_fields(owned: Json) -> bool:
    return any(key.startswith("f:") for key in owned)


def _config_name(raw: Json) -> str:
    """The config that a spec names which cannot be decoded."""
    spec = raw.get("spec")
    config = spec.get("config") if isinstance(spec, Mapping) else None
    name = config.get("name") if isinstance(config, Mapping) else None
    return name if isinstance(name, str) else ""


def _owner(metadata: Json) -> str | None:
    owners = metadata.get("ownerReferences") or ()
    return next((owner["uid"] for owner in owners if owner.get("kind") == "Node"), None)


def _reported_agent(status: Json) -> Json:
    agent = status.get("agent")
    return {**agent, "since": written_time(agent.get("since"))} if agent else {}


def _phase(text: str | None) -> Phase | None:
    if not text:
        return None
    try:
        return Phase(text)
    except ValueError:  # a phase of a newer agent
        return Phase.PENDING


def _cpus(status: Json) -> CpuCounts:
    cpus = status.get("cpus") or {}
    total = min(((status.get("topology") or {}).get("counts") or {}).get("cpus", 0), _MOST_CPUS)
    try:
        reserved, exclusive = CpuSet.parse(cpus.get("reserved", "")), CpuSet.parse(cpus.get("exclusive", ""))
    except CpuSetError:
        return CpuCounts(total)
    # a claim keeps its CPUs when they become reserved: such CPUs are in both sets and count once
    held = len(reserved | exclusive)
    available = max(0, total - held) if cpus and status.get("appliedRevision") else 0
    return CpuCounts(total, len(reserved), len(exclusive), available)


def _memory(status: Json) -> Iterator[MemoryBytes]:
    """The memory of each NUMA node. Kinds that this version does not know are left out, and claims cannot get memory of
    a node that has not applied its settings."""
    places = status.get("memory")
    for place in places[:_MOST_PLACES] if isinstance(places, list) else ():
        kind = _KINDS.get(str(place.get("kind"))) if isinstance(place, Mapping) else None
        if kind is not None:
            total, reserved, promised = (_bytes(place.get(name)) for name in ("total", "reserved", "promised"))
            available = max(0, total - reserved - promised) if status.get("appliedRevision") else 0
            yield MemoryBytes(kind, total, reserved, promised, available)


def _bytes(quantity: object) -> int:
    """An amount as agents write it; 0 for anything else."""
    return _parsed(quantity) if isinstance(quantity, str) and len(quantity) <= _QUANTITY_LENGTH else 0


@lru_cache(maxsize=4096)  # nodes of one type of machine report mostly the same amounts
def _parsed(quantity: str) -> int:
    return min(whole_number(quantity) or 0, LIMIT)


def _message(condition: Json) -> str:
    return str(condition.get("message") or f"{condition['type']} is False")[:_MESSAGE_LENGTH]


def _failure(status: Json) -> str:
    for condition in status.get("conditions") or ():
        if condition.get("type") == NodeCondition.CONFIG_APPLIED and condition.get("status") != "True":
            return str(condition.get("message") or "")[:_MESSAGE_LENGTH]
    return ""


def _troubles(metadata: Json, status: Json) -> tuple[Trouble, ...]:
    if not status.get("phase"):
        return (Trouble(metadata.get("creationTimestamp") or "", _SILENT),)
    return _false(status, _NEEDED_BY_CPUS)


def _false(status: Json, kinds: Collection[str]) -> tuple[Trouble, ...]:
    return tuple(
        Trouble(condition.get("lastTransitionTime") or "", _message(condition))
        for condition in status.get("conditions") or ()
        if condition.get("type") in kinds and condition.get("status") == "False"
    )
