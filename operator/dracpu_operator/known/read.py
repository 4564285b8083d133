"""Objects as the API server sends them -> the records of `model`. Pure; what makes no sense is recorded, not raised:
one odd object must not stop the fleet."""

import hashlib
import json
from typing import Final

from dracpu_api.cpuset import CpuSet, CpuSetError
from dracpu_api.objects.models import CpuDriverConfig, CpuDriverConfigSpec
from dracpu_api.objects.parts import Settings as SettingsFields
from dracpu_api.objects.validate import InvalidObjectError, parse
from dracpu_api.resources import Json, resource_version
from dracpu_api.settings import Settings, SettingsError, decode_settings, decode_spec, encode_settings
from dracpu_operator.decide.records import Config, CpuCounts, CpuNode, Node, Phase, Trouble, Wanted

_REVISION_DIGITS: Final = 16  # 64 bits: two settings of one cluster will not meet
_API_VERSION: Final = "dra.cpu/v1alpha1"
# conditions of the agent's without which no claim gets CPUs
_NEEDED: Final = frozenset({"KubeletRegistered", "RuntimeConnected", "SlicesPublished", "StateHealthy"})
_WORDS: Final = 256  # of each trouble: three nodes have to fit into a message that people read
_SILENT: Final = "its agent has not reported yet: does the DaemonSet's pod run on this node?"


def read_node(raw: Json) -> Node:
    """A Node, or its metadata alone."""
    metadata = raw["metadata"]
    return Node(metadata["name"], metadata["uid"], resource_version(raw), dict(metadata.get("labels") or {}))


def read_config(raw: Json) -> Config:
    """A CpuDriverConfig."""
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
    """A CpuNode."""
    metadata, status = raw["metadata"], raw.get("status") or {}
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
    )


def revision_of(settings: Settings) -> str:
    """The same for the same settings, however they are written: "0,1" and "0-1" are one."""
    text = json.dumps(encode_settings(settings), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_REVISION_DIGITS]


def settings_of(spec: CpuDriverConfigSpec) -> Settings:
    """A config's spec, less what concerns the fleet."""
    return decode_settings(spec.model_dump(mode="json", by_alias=True, include=set(SettingsFields.model_fields)))


def _read_wanted(raw: Json) -> tuple[Wanted | None, tuple[str, ...]]:
    # the status is our own affair: one written by a newer operator makes no config invalid
    document = {"apiVersion": _API_VERSION, "kind": "CpuDriverConfig", "spec": raw.get("spec") or {}}
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


def _phase(text: str | None) -> Phase:
    try:
        return Phase(text or "")
    except ValueError:  # of a newer agent
        return Phase.PENDING


def _cpus(status: Json) -> CpuCounts:
    cpus = status.get("cpus") or {}
    total = ((status.get("topology") or {}).get("counts") or {}).get("cpus", 0)
    try:
        reserved, exclusive = CpuSet.parse(cpus.get("reserved", "")), CpuSet.parse(cpus.get("exclusive", ""))
    except CpuSetError:
        return CpuCounts(total)
    # a claim keeps its CPUs when they become reserved: they count once
    held = len(reserved | exclusive)
    available = max(0, total - held) if cpus and status.get("appliedRevision") else 0
    return CpuCounts(total, len(reserved), len(exclusive), available)


def _failure(status: Json) -> str:
    conditions = status.get("conditions") or ()
    applied: Json = next((one for one in conditions if one.get("type") == "ConfigApplied"), {})
    return "" if applied.get("status") == "True" else str(applied.get("message") or "")[:_WORDS]


def _troubles(metadata: Json, status: Json) -> tuple[Trouble, ...]:
    if not status.get("phase"):
        return (Trouble(metadata.get("creationTimestamp") or "", _SILENT),)
    return tuple(
        Trouble(one.get("lastTransitionTime") or "", str(one.get("message") or f"{one['type']} is False")[:_WORDS])
        for one in status.get("conditions") or ()
        if one.get("type") in _NEEDED and one.get("status") == "False"
    )
