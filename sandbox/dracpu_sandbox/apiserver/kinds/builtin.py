"""The built-in kinds that are served, with their columns, their subresources and the conversion of events."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from dracpu_sandbox.apiserver.kinds import cells, events
from dracpu_sandbox.apiserver.kinds.cells import field_at
from dracpu_sandbox.apiserver.kinds.kind import ALL_VERBS, Column, Kind
from dracpu_sandbox.apiserver.kinds.listtypes import merging_of
from dracpu_sandbox.apiserver.kinds.schemas import KINDS, schema_of
from dracpu_sandbox.apiserver.kinds.tables import AGE, NAME

_EVENT_COLUMNS: Final = (
    Column("Last Seen", "", type="date", cell=cells.event_last),
    Column("Type", ".type"),
    Column("Reason", ".reason"),
    Column("Object", "", cell=cells.event_object),
    Column("Subobject", "", cell=field_at("involvedObject", "fieldPath"), priority=1),
    Column("Source", "", cell=cells.event_source, priority=1),
    Column("Message", "", cell=lambda event: str(event.get("message") or "").strip()),
    Column("First Seen", "", type="date", cell=cells.event_first, priority=1),
    Column("Count", "", cell=cells.event_count, priority=1),
    replace(NAME, priority=1),
)


def _of_core_event(column: Column) -> Column:
    """Returns a column that shows events of events.k8s.io, whose fields have other names, like core events."""
    cell = column.cell
    return column if cell is None else replace(column, cell=lambda event: cell(events.to_core(event)))


_COLUMNS: Final[Mapping[str, tuple[Column, ...]]] = {  # by resource; others show their age only
    "namespaces": (Column("Status", ".status.phase"), AGE),
    "nodes": (
        Column("Status", "", cell=cells.node_status),
        Column("Roles", "", cell=cells.node_roles),
        AGE,
        Column("Version", ".status.nodeInfo.kubeletVersion"),
        Column("Internal-IP", "", cell=cells.node_address("InternalIP"), priority=1),
        Column("External-IP", "", cell=cells.node_address("ExternalIP"), priority=1),
        Column("OS-Image", "", cell=cells.node_info("osImage"), priority=1),
        Column("Kernel-Version", "", cell=cells.node_kernel, priority=1),
        Column("Container-Runtime", "", cell=cells.node_info("containerRuntimeVersion"), priority=1),
    ),
    "pods": (
        Column("Ready", "", cell=cells.pod_ready),
        Column("Status", "", cell=cells.pod_status),
        Column("Restarts", "", cell=cells.pod_restarts),
        AGE,
        Column("IP", "", cell=cells.pod_ip, priority=1),
        Column("Node", "", cell=field_at("spec", "nodeName", otherwise=cells.NONE), priority=1),
        Column("Nominated Node", "", cell=field_at("status", "nominatedNodeName", otherwise=cells.NONE), priority=1),
        Column("Readiness Gates", "", cell=lambda pod: cells.NONE, priority=1),
    ),
    "daemonsets.apps": (
        Column("Desired", ".status.desiredNumberScheduled", type="integer"),
        Column("Current", ".status.currentNumberScheduled", type="integer"),
        Column("Ready", ".status.numberReady", type="integer"),
        Column("Up-to-date", ".status.updatedNumberScheduled", type="integer"),
        Column("Available", ".status.numberAvailable", type="integer"),
        Column("Node Selector", "", cell=cells.daemon_set_selector),
        AGE,
        Column("Containers", "", cell=cells.daemon_set_containers("name"), priority=1),
        Column("Images", "", cell=cells.daemon_set_containers("image"), priority=1),
    ),
    "configmaps": (Column("Data", "", cell=cells.config_map_size), AGE),
    "events": _EVENT_COLUMNS,
    "events.events.k8s.io": tuple(map(_of_core_event, _EVENT_COLUMNS)),
    "resourceclaims.resource.k8s.io": (Column("State", "", cell=cells.claim_state), AGE),
    "resourceslices.resource.k8s.io": (
        Column("Node", ".spec.nodeName"),
        Column("Driver", ".spec.driver"),
        Column("Pool", ".spec.pool.name"),
        AGE,
    ),
    "customresourcedefinitions.apiextensions.k8s.io": (
        Column("Created At", ".metadata.creationTimestamp", type="time"),
    ),
    "leases.coordination.k8s.io": (Column("Holder", "", cell=field_at("spec", "holderIdentity")), AGE),
}
_SUBRESOURCES: Final[Mapping[str, tuple[str, ...]]] = {
    "namespaces": ("status",),
    "nodes": ("status",),
    "pods": ("binding", "log", "resize", "status"),
    "resourceclaims.resource.k8s.io": ("status",),
    "customresourcedefinitions.apiextensions.k8s.io": ("status",),
    "daemonsets.apps": ("status",),
}


def _built_in() -> Iterator[Kind]:
    for described in KINDS:
        schema = schema_of(described["type"])
        list_types, atomic_maps = merging_of(schema)
        named: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in described.items()
        }
        named["verbs"] = tuple(verb for verb in ALL_VERBS if verb in described["verbs"])
        kind = Kind(**named, schema=schema, list_types=list_types, atomic_maps=atomic_maps)
        own: dict[str, Any] = {
            "columns": _COLUMNS.get(kind.resource, ()),
            "subresources": _SUBRESOURCES.get(kind.resource, ()),
            "name_first": kind.kind != "Event",
        }
        if kind.resource == "events.events.k8s.io":
            own |= {"stored_as": "events", "to_stored": events.to_core, "from_stored": events.from_core}
        yield replace(kind, **own)


BUILT_IN: Final = tuple(_built_in())
(DEFINITION,) = (kind for kind in BUILT_IN if kind.kind == "CustomResourceDefinition")
