"""The built-in kinds that are served: names, columns, and how their lists and maps merge."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from dracpu_sandbox.apiserver.kinds import cells, events
from dracpu_sandbox.apiserver.kinds.cells import at
from dracpu_sandbox.apiserver.kinds.listtypes import METADATA_ATOMS, METADATA_LISTS, SET
from dracpu_sandbox.apiserver.kinds.model import ALL_VERBS, Column, Kind, ListType
from dracpu_sandbox.apiserver.kinds.tables import AGE, NAME

_CREATED: Final = Column("Created At", ".metadata.creationTimestamp", type="time", description="When it was created.")
_STATUS: Final = ("status",)
_Lists = Mapping[tuple[str, ...], ListType]


def _by(*keys: str, **defaults: object) -> ListType:
    return ListType("map", keys, defaults)


_CONDITIONS: Final[_Lists] = {("status", "conditions"): _by("type")}


def _within(*path: str, **lists: ListType) -> _Lists:
    """Lists below a path; two underscores in a name stand for a step down."""
    return {(*path, *name.split("__")): kind for name, kind in lists.items()}


def _containers(name: str) -> _Lists:
    return {
        ("spec", name): _by("name"),
        **_within(
            "spec",
            name,
            env=_by("name"),
            ports=_by("containerPort", "protocol", protocol="TCP"),
            resources__claims=_by("name"),
            volumeDevices=_by("devicePath"),
            volumeMounts=_by("mountPath"),
        ),
    }


def _container_statuses(name: str) -> _Lists:
    return _within(
        "status",
        name,
        allocatedResourcesStatus=_by("name"),
        allocatedResourcesStatus__resources=_by("resourceID"),
        volumeMounts=_by("mountPath"),
    )


_POD_LISTS: Final[_Lists] = {
    **METADATA_LISTS,
    **_CONDITIONS,
    **_containers("containers"),
    **_containers("initContainers"),
    **_containers("ephemeralContainers"),
    **_container_statuses("containerStatuses"),
    **_container_statuses("initContainerStatuses"),
    **_within(
        "spec",
        hostAliases=_by("ip"),
        imagePullSecrets=_by("name"),
        resourceClaims=_by("name"),
        schedulingGates=_by("name"),
        topologySpreadConstraints=_by("topologyKey", "whenUnsatisfiable"),
        volumes=_by("name"),
    ),
    **_within("status", podIPs=_by("ip"), resourceClaimStatuses=_by("name")),
}
_POD_ATOMS: Final = frozenset(
    {
        *METADATA_ATOMS,
        ("spec", "nodeSelector"),
        ("spec", "imagePullSecrets"),
        ("spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"),
        ("spec", "affinity", "nodeAffinity", "preferredDuringSchedulingIgnoredDuringExecution", "preference"),
        ("spec", "topologySpreadConstraints", "labelSelector"),
        *(
            ("spec", containers, "env", "valueFrom", source)
            for containers in ("containers", "initContainers", "ephemeralContainers")
            for source in ("configMapKeyRef", "fieldRef", "fileKeyRef", "resourceFieldRef", "secretKeyRef")
        ),
    }
)


def _kind(
    group: str,
    plural: str,
    kind: str,
    *columns: Column,
    namespaced: bool = False,
    short: tuple[str, ...] = (),
    categories: tuple[str, ...] = (),
    subresources: tuple[str, ...] = (),
    lists: _Lists = METADATA_LISTS,
    atoms: frozenset[tuple[str, ...]] = METADATA_ATOMS,
    model: str = "",
    name_first: bool = True,
    verbs: tuple[str, ...] = ALL_VERBS,
) -> Kind:
    return Kind(
        group=group,
        version="v1",
        plural=plural,
        singular=kind.lower(),
        kind=kind,
        namespaced=namespaced,
        short_names=short,
        categories=categories,
        subresources=subresources,
        columns=columns,
        model=model or f"V1{kind}",
        list_types=lists,
        atomic_maps=atoms,
        name_first=name_first,
        verbs=verbs,
    )


_CORE: Final = (
    _kind(
        "", "namespaces", "Namespace", Column("Status", ".status.phase", description="Active or Terminating."), AGE,
        short=("ns",), subresources=("status", "finalize"), lists={**METADATA_LISTS, **_CONDITIONS},
        verbs=("create", "delete", "get", "list", "patch", "update", "watch"),
    ),
    _kind(
        "", "nodes", "Node",
        Column("Status", "", cell=cells.node_status, description="Ready or not, and whether pods may come."),
        Column("Roles", "", cell=cells.node_roles, description="From the labels."),
        AGE,
        Column("Version", ".status.nodeInfo.kubeletVersion", description="The kubelet's version."),
        Column("Internal-IP", "", cell=cells.node_address("InternalIP"), priority=1),
        Column("External-IP", "", cell=cells.node_address("ExternalIP"), priority=1),
        Column("OS-Image", "", cell=cells.node_info("osImage"), priority=1),
        Column("Kernel-Version", "", cell=cells.node_kernel, priority=1),
        Column("Container-Runtime", "", cell=cells.node_info("containerRuntimeVersion"), priority=1),
        short=("no",), subresources=_STATUS,
        lists={**METADATA_LISTS, **_CONDITIONS, ("status", "addresses"): _by("type"), ("spec", "podCIDRs"): SET},
    ),
    _kind(
        "", "pods", "Pod",
        Column("Ready", "", cell=cells.pod_ready, description="Containers that are ready, of all."),
        Column("Status", "", cell=cells.pod_status, description="How the containers stand."),
        Column("Restarts", "", cell=cells.pod_restarts, description="How often containers were restarted."),
        AGE,
        Column("IP", "", cell=cells.pod_ip, priority=1),
        Column("Node", "", cell=at("spec", "nodeName", otherwise=cells.NONE), priority=1),
        Column("Nominated Node", "", cell=at("status", "nominatedNodeName", otherwise=cells.NONE), priority=1),
        Column("Readiness Gates", "", cell=cells.pod_gates, priority=1),
        namespaced=True, short=("po",), categories=("all",), subresources=("binding", "log", "status"),
        lists=_POD_LISTS, atoms=_POD_ATOMS,
    ),
    _kind(
        "", "configmaps", "ConfigMap",
        Column("Data", "", cell=lambda one: str(len(one.get("data") or ()) + len(one.get("binaryData") or ()))), AGE,
        namespaced=True, short=("cm",),
    ),
)  # fmt: skip

_EVENT_COLUMNS: Final = (
    Column("Last Seen", "", type="date", cell=cells.event_last),
    Column("Type", ".type"),
    Column("Reason", ".reason"),
    Column("Object", "", cell=cells.event_object),
    Column("Subobject", "", cell=at("involvedObject", "fieldPath"), priority=1),
    Column("Source", "", cell=cells.event_source, priority=1),
    Column("Message", "", cell=lambda one: str(one.get("message") or "").strip()),
    Column("First Seen", "", type="date", cell=cells.event_first, priority=1),
    Column("Count", "", cell=cells.event_count, priority=1),
    Column(NAME.name, NAME.path, format="name", description=NAME.description, priority=1),
)


def _from_new_face(cell: Column) -> Column:
    """A column of core events, for those of events.k8s.io, which name the same things differently."""
    tell = cell.cell
    return Column(
        cell.name, cell.path, cell.type, cell.format, cell.description, cell.priority,
        cell=None if tell is None else lambda one: tell(events.to_core(one)),
    )  # fmt: skip


_EVENTS: Final = (
    _kind(
        "", "events", "Event", *_EVENT_COLUMNS, namespaced=True, short=("ev",), model="CoreV1Event", name_first=False,
        atoms=METADATA_ATOMS | {("involvedObject",), ("related",)},
    ),
    replace(_kind(
        "events.k8s.io", "events", "Event", *map(_from_new_face, _EVENT_COLUMNS), namespaced=True, short=("ev",),
        model="EventsV1Event", name_first=False, atoms=METADATA_ATOMS | {("regarding",), ("related",)},
    ), stored_as="events", to_stored=events.to_core, from_stored=events.from_core),
)  # fmt: skip

_DRA: Final = (
    _kind(
        "resource.k8s.io", "resourceclaims", "ResourceClaim",
        Column("State", "", cell=cells.claim_state, description="pending, allocated, reserved or deleted."), AGE,
        namespaced=True, subresources=_STATUS, model="ResourceV1ResourceClaim",
        lists={
            **METADATA_LISTS,
            ("status", "devices"): _by("driver", "device", "pool", "shareID"),
            ("status", "devices", "conditions"): _by("type"),
            ("status", "reservedFor"): _by("uid"),
        },
        atoms=frozenset({*METADATA_ATOMS, ("status", "allocation", "nodeSelector")}),
    ),
    _kind(
        "resource.k8s.io", "resourceclaimtemplates", "ResourceClaimTemplate", AGE, namespaced=True,
        lists={**METADATA_LISTS, **_within("spec", metadata__finalizers=SET, metadata__ownerReferences=_by("uid"))},
    ),
    _kind(
        "resource.k8s.io", "resourceslices", "ResourceSlice",
        Column("Node", "", cell=at("spec", "nodeName", otherwise="<unset>")),
        Column("Driver", ".spec.driver", description="The driver that publishes it."),
        Column("Pool", ".spec.pool.name", description="The pool that its devices belong to."),
        AGE,
        atoms=frozenset({*METADATA_ATOMS, ("spec", "nodeSelector"), ("spec", "devices", "nodeSelector")}),
    ),
    _kind("resource.k8s.io", "deviceclasses", "DeviceClass", AGE),
)  # fmt: skip

_OTHERS: Final = (
    _kind(
        "apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition", _CREATED,
        short=("crd", "crds"), categories=("api-extensions",), subresources=_STATUS,
        lists={**METADATA_LISTS, **_CONDITIONS},
    ),
    _kind(
        "coordination.k8s.io", "leases", "Lease", Column("Holder", "", cell=at("spec", "holderIdentity")), AGE,
        namespaced=True,
    ),
)  # fmt: skip

BUILT_IN: Final[tuple[Kind, ...]] = (*_CORE, *_EVENTS, *_DRA, *_OTHERS)
