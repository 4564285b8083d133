"""The requests that change CpuNodes. Each answer is recorded at once, so that the next reconcile knows what was written
even when the watch has not shown it yet."""

from typing import Final

import structlog

from dracpu_api.errors import NotFoundError
from dracpu_api.events import Event
from dracpu_api.names import (
    ANNOTATION_AGENT_WAS_READY,
    ANNOTATION_DEVICES_CHANGED_AT,
    ANNOTATION_GIVEN_AT,
    ANNOTATION_REMOVE_AFTER,
)
from dracpu_api.resources import CPU_NODES, NODES, Json, resource_version
from dracpu_api.settings import CpuNodeSpec, encode_spec
from dracpu_operator.api.cluster import FIELD_MANAGER, Cluster
from dracpu_operator.api.events import Events
from dracpu_operator.api.jobs import Job
from dracpu_operator.api.refusals import Refusals
from dracpu_operator.decide.plan import Change
from dracpu_operator.decide.records import CpuNode, Node
from dracpu_operator.known.fleet import Fleet
from dracpu_operator.metrics import Request

log = structlog.get_logger()

_LABELS: Final = {"app.kubernetes.io/managed-by": FIELD_MANAGER}


class CpuNodeWriter:
    """Makes jobs; `JobRunner` runs them."""

    def __init__(self, fleet: Fleet, cluster: Cluster, events: Events, refusals: Refusals) -> None:
        self._fleet = fleet
        self._cluster = cluster
        self._events = events
        self._refusals = refusals

    def change(self, change: Change, spec: CpuNodeSpec, now: str) -> Job:
        """The job that gives a node the settings of a config; `now` is RFC 3339 in UTC."""
        annotations = {ANNOTATION_GIVEN_AT: now, **_devices_changed_at(change, now)}
        if change.was_ready is not None:
            annotations[ANNOTATION_AGENT_WAS_READY] = "true" if change.was_ready else "false"
        kind: Request = "create" if change.current is None else "change"
        return self._apply(change.node, spec, annotations, change.current, kind)

    def update_outstanding(self, node: Node, spec: CpuNodeSpec, current: CpuNode) -> Job:
        """The job that replaces the list of outstanding claims of a CpuNode."""
        annotations = {}
        if current.given_at:
            annotations[ANNOTATION_GIVEN_AT] = current.given_at
        if current.devices_changed_at:
            annotations[ANNOTATION_DEVICES_CHANGED_AT] = current.devices_changed_at
        if current.was_ready is not None:
            annotations[ANNOTATION_AGENT_WAS_READY] = "true" if current.was_ready else "false"
        return self._apply(node, spec, annotations, current, "outstanding")

    def mark(self, cpu_node: CpuNode, remove_after: str) -> Job:
        """The job that stores the time after which a CpuNode is deleted; "" removes the time."""

        async def send() -> None:
            annotations = {ANNOTATION_REMOVE_AFTER: remove_after or None}
            patch = {"metadata": {"uid": cpu_node.uid, "annotations": annotations}}
            self._fleet.store_cpu_node(await self._cluster.merge(CPU_NODES, cpu_node.name, patch))
            await self._events.about_cpu_node(cpu_node, removal_event(remove_after))

        return Job(cpu_node.name, "mark", send)

    def _apply(self, node: Node, spec: CpuNodeSpec, annotations: Json, current: CpuNode | None, kind: Request) -> Job:
        async def send() -> None:
            answer = await _apply(self._cluster, node, spec, annotations, None if current is None else current.uid)
            if current is not None:
                self._fleet.compare(resource_version(answer), current.version)
            self._fleet.store_cpu_node(answer)
            log.debug("spec written", node=node.name, config=spec.config_name, revision=spec.revision, kind=kind)

        return Job(node.name, kind, send)

    def remove(self, cpu_node: CpuNode) -> Job:
        """The job that deletes a CpuNode."""

        async def send() -> None:
            try:
                await self._cluster.delete(CPU_NODES, cpu_node.name, cpu_node.uid)
            except NotFoundError:
                log.debug("the CpuNode was gone already", node=cpu_node.name)
            self._fleet.remove_cpu_node(cpu_node.name, cpu_node.uid)

        return Job(cpu_node.name, "delete", send)

    def read_again(self, name: str) -> Job:
        """The job that reads a CpuNode, after a write of which it is not known whether it was carried out."""

        async def send() -> None:
            known = self._fleet.cpu_nodes.get(name)
            try:
                stored = await self._cluster.read(CPU_NODES, name)
            except NotFoundError:
                if known is not None:
                    self._fleet.remove_cpu_node(name, known.uid)
            else:
                self._fleet.store_cpu_node(stored)
                if known is not None and known.uid != stored["metadata"]["uid"]:  # the refusal was about the other one
                    self._refusals.remove(name)

        return Job(name, "read", send)


def removal_event(remove_after: str) -> Event:
    """The Event about a CpuNode whose time of deletion was stored, or removed ("")."""
    if not remove_after:
        return Event("Normal", "RemovalCancelled", "Remove", "a config selects the node again: it keeps its devices")
    note = (
        f"no config selects the node any more: its devices are withdrawn after {remove_after}, unless its labels or a "
        "nodeSelector change until then"
    )
    return Event("Warning", "RemovalPending", "Remove", note)


def _devices_changed_at(change: Change, now: str) -> dict[str, str]:
    if not change.keeps_devices:
        return {ANNOTATION_DEVICES_CHANGED_AT: now}
    # a field that is applied no longer is removed
    assert change.current is not None
    before = change.current.devices_changed_at or change.current.given_at  # a former version did not store it
    return {ANNOTATION_DEVICES_CHANGED_AT: before} if before else {}


async def _apply(cluster: Cluster, node: Node, spec: CpuNodeSpec, annotations: Json, uid: str | None) -> Json:
    """Creates a node's CpuNode (`uid` None), or changes the one with that UID."""
    owner = {"apiVersion": NODES.api_version, "kind": NODES.kind, "name": node.name, "uid": node.uid}
    metadata = {"name": node.name, "labels": _LABELS, "annotations": annotations, "ownerReferences": [owner]}
    if uid is not None:
        metadata["uid"] = uid
    fields = encode_spec(spec)
    applied = await cluster.apply(CPU_NODES, {"metadata": metadata, "spec": fields})
    if len(applied["spec"].get("outstanding") or ()) <= len(spec.outstanding):
        return applied
    # server-side apply keeps the list's entries that another manager has added, and nobody might ever remove them
    patch = {"metadata": {"uid": applied["metadata"]["uid"]}, "spec": {"outstanding": fields["outstanding"]}}
    return await cluster.merge(CPU_NODES, node.name, patch)
