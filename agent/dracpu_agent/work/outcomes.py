"""Shows how work on claims, containers and the machine has ended: metrics, Events, and the status of claims."""

from collections.abc import Sequence
from typing import Any

import structlog

from dracpu_agent.claims.grant import ClaimRef
from dracpu_agent.claims.held import HeldClaim
from dracpu_agent.cluster.device_status import DeviceStatusWriter
from dracpu_agent.cluster.events import Events, Subject
from dracpu_agent.cluster.slices.controller import SliceController, SlicesState
from dracpu_agent.drivers.holding import Holding
from dracpu_agent.kubelet.registration import RegistrationStatus
from dracpu_agent.node import NodeState
from dracpu_agent.observe.metrics import DriverMetrics, Metrics
from dracpu_agent.report.conditions import name_claims, name_offline
from dracpu_agent.topology.topology import Topology
from dracpu_agent.work.changes import Changes
from dracpu_api.cpuset import EMPTY, union
from dracpu_api.events import Severity

log = structlog.get_logger("agent")


class ClaimOutcomes:
    """The callbacks of the parts that deal with one driver's claims and slices."""

    def __init__(
        self,
        node: NodeState,
        holding: Holding[Any, Any],
        metrics: DriverMetrics,
        events: Events,
        device_status: DeviceStatusWriter,
        changes: Changes,
    ) -> None:
        self._node = node
        self._holding = holding
        self._metrics = metrics
        self._events = events
        self._device_status = device_status
        self._changes = changes

    def recovered(self) -> None:
        """The agent has taken over the claims of an earlier agent, which may have ended before it wrote a status."""
        for claim in self._holding.values():
            if not claim.lingering and claim.frozen is None:  # a lingering claim is usually deallocated
                self._device_status.repeat(claim.ref, claim.grants)

    def prepared(self, claim: HeldClaim[Any], seconds: float) -> None:
        """A claim is ready: its owner sees what it was granted, after the kubelet has its answer."""
        self._metrics.claim_prepared(seconds, claim.size)
        self._device_status.set(claim.ref, claim.grants)

    def prepare_failed(self, ref: ClaimRef, reason: str) -> None:
        """A claim could not be prepared; the kubelet shows the reason on the pod."""
        self._metrics.prepare_failed()

    def unprepared(self, ref: ClaimRef, error: str) -> None:
        """A claim has ended, or could not be ended when there is an error."""
        self._metrics.claim_unprepared("error" if error else "success")
        self._device_status.forget(ref.uid)

    def released_by_audit(self, claim: HeldClaim[Any], reason: str) -> None:
        """The audit has released a claim that the kubelet has forgotten."""
        log.warning("claim released by the audit", claim=str(claim.ref), uid=claim.ref.uid, reason=reason)
        note = f"claim {claim.ref} ({claim.ref.uid}) gave back {claim.content}: {reason}"
        self._emit("Warning", "ClaimReleased", "Audit", note)

    def cdi_files_repaired(self, claims: Sequence[ClaimRef]) -> None:
        """CDI files of prepared claims were missing or altered and have been written again."""
        for _ in claims:
            self._metrics.cdi_repaired("success")
        named = name_claims(claims)
        log.warning("CDI files were missing or altered, and were written again", claims=named)
        note = f"CDI files were missing or altered, and were written again, of claims {named}"
        self._emit("Normal", "CDIFilesRepaired", "Repair", note)

    def registered(self, status: RegistrationStatus, slices: SliceController) -> None:
        """The kubelet has registered the driver, or has refused it."""
        self._metrics.set_kubelet_registered(status.registered)
        if status.registered:
            slices.check_now()  # kubelet: deletes all slices of the node when it starts
        else:
            log.error("the kubelet refused the driver", driver=self._holding.name, error=status.error)
        self._changes.report()

    def slices_changed(self, state: SlicesState) -> None:
        """The slices were published, or could not be."""
        self._metrics.set_slices(published=state.published, failed=state.error is not None)
        self._changes.report()

    def _emit(self, severity: Severity, reason: str, action: str, note: str) -> None:
        self._events.emit(Subject.cpu_node(self._node.node_name), severity, reason, action, note)


class Outcomes:
    """The callbacks of the parts that deal with the node as a whole."""

    def __init__(self, node: NodeState, metrics: Metrics, events: Events) -> None:
        self._node = node
        self._metrics = metrics
        self._events = events

    def checkpoint_written(self, seconds: float, problem: str) -> None:
        """A checkpoint is on the disk, or could not be written when there is a problem."""
        self._metrics.checkpoint_written(seconds, "error" if problem else "success")

    def pushed(self, applied: bool) -> None:
        """The runtime has answered an update of a container that it did not ask for."""
        self._metrics.pool_pushed("success" if applied else "error")

    def replug(self, topology: Topology) -> bool:
        """Takes over the machine as it was read anew; False when nothing has changed. Warns when claims miss CPUs."""
        before = self._node.cpus.offline()
        if not self._node.replug(topology):
            return False
        lost = {uid: cpus for uid, cpus in self._node.cpus.offline().items() if not cpus <= before.get(uid, EMPTY)}
        if lost:
            log.warning("claims can no longer use some of their CPUs", claims=len(lost), cpus=str(union(lost.values())))
            note = f"CPUs of claims went offline or were forbidden: {name_offline(self._node, lost)}"
            self._events.emit(Subject.cpu_node(self._node.node_name), "Warning", "CPUsOffline", "Hotplug", note)
        return True
