"""Turns objects from the API server into records. Pure.

An object that cannot be understood is recorded as such instead of raising an error: it must not stop all the others.
"""

import hashlib
import json
from typing import Final

from dracpu_api.conditions import NodeCondition, Phase
from dracpu_api.cpuset import CpuSet, CpuSetError
from dracpu_api.names import ANNOTATION_AGENT_WAS_READY, ANNOTATION_GIVEN_AT, ANNOTATION_REMOVE_AFTER
from dracpu_api.objects.models import CpuDriverConfig, CpuDriverConfigSpec
from dracpu_api.objects.parts import Settings as SettingsFields
from dracpu_api.objects.validate import InvalidObjectError, parse
from dracpu_api.resources import CONFIGS, Json, resource_version
from dracpu_api.settings import Settings, SettingsError, decode_settings, decode_spec, encode_settings
from dracpu_operator.decide.records import Config, CpuCounts, CpuNode, Node, Trouble, Wanted

_REVISION_DIGITS: Final = 16  # 64 bits: no two settings in a cluster get the same revision
# while one of these conditions is not true, no claim gets CPUs of the node
_NEEDED: Final = frozenset(NodeCondition) - {NodeCondition.CONFIG_APPLIED}
_MESSAGE_LENGTH: Final = 256  # of one trouble: three nodes have to fit into a message that people read
_SILENT: Final = "its agent has not reported yet: does the DaemonSet's pod run on this node?"


def read_node(raw: Json) -> Node:
    """Reads a Node; its metadata is enough."""
    metadata = raw["metadata"]
    return Node(metadata["name"], metadata["uid"], resource_version(raw), dict(metadata.get("labels") or {}))


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
    try:
        spec = decode_spec(raw.get("spec"))
    except SettingsError:
        spec = None
    return CpuNode(
        name=metadata["name"],
        uid=metadata["uid"],
        version=resource_version(raw),
        generation=metadata.get("generation", 0),
        owner=_owner(metadata),
        spec=spec,
        phase=_phase(status.get("phase")),
        applied=status.get("appliedRevision"),
        cpus=_cpus(status),
        failure=_failure(status),
        troubles=_troubles(metadata, status),
        config_name=str((((raw.get("spec") or {}).get("config")) or {}).get("name") or ""),
        ignored=tuple(status.get("ignoredSettings") or ()),
        given_at=annotations.get(ANNOTATION_GIVEN_AT, ""),
        was_ready={"true": True, "false": False}.get(annotations.get(ANNOTATION_AGENT_WAS_READY, "")),
        remove_after=annotations.get(ANNOTATION_REMOVE_AFTER, ""),
        reported_agent=status.get("agent") or {},
    )


def revision_of(settings: Settings) -> str:
    """A hash of the settings. It does not depend on how they are written: "0,1" and "0-1" have one revision."""
    text = json.dumps(encode_settings(settings), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_REVISION_DIGITS]


def settings_of(spec: CpuDriverConfigSpec) -> Settings:
    """The settings for a node: a config's spec without selector, priority and rollout."""
    return decode_settings(spec.model_dump(mode="json", by_alias=True, include=set(SettingsFields.model_fields)))


def _read_wanted(raw: Json) -> tuple[Wanted | None, tuple[str, ...]]:
    # without the status: one that a newer operator has written does not make the config invalid
    document = {"apiVersion": CONFIGS.api_version, "kind": CONFIGS.kind, "spec": raw.get("spec") or {}}
    try:
        config = parse(document)
    except InvalidObjectError as error:
        return None, error.problems
    assert isinstance(config, CpuDriverConfig)
    settings = settings_of(config.spec)
    return Wanted(config.spec, settings, revision_of(settings)), ()


def _owner(metadata: Json) -> str | None:
    owners = metadata.get("ownerReferences") or ()
    return next((owner["uid"] for owner in owners if owner.get("kind") == "Node"), None)


def _phase(text: str | None) -> Phase | None:
    if not text:
        return None
    try:
        return Phase(text)
    except ValueError:  # a phase of a newer agent
        return Phase.PENDING


def _cpus(status: Json) -> CpuCounts:
    cpus = status.get("cpus") or {}
    total = ((status.get("topology") or {}).get("counts") or {}).get("cpus", 0)
    try:
        reserved, exclusive = CpuSet.parse(cpus.get("reserved", "")), CpuSet.parse(cpus.get("exclusive", ""))
    except CpuSetError:
        return CpuCounts(total)
    # a claim keeps its CPUs when they become reserved: such CPUs are in both sets and count once
    held = len(reserved | exclusive)
    available = max(0, total - held) if cpus and status.get("appliedRevision") else 0
    return CpuCounts(total, len(reserved), len(exclusive), available)


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
    return tuple(
        Trouble(condition.get("lastTransitionTime") or "", _message(condition))
        for condition in status.get("conditions") or ()
        if condition.get("type") in _NEEDED and condition.get("status") == "False"
    )
