"""Carries out in-place resizes of one pod, in the kubelet's order.

What grows is announced to plugins, written to the pod's cgroup and then to its containers; what shrinks is written to
the containers first. A plugin that refuses the announcement of a growth stops it before anything has changed. If it
refuses that of a shrinking pod, the kubelet leaves the pod's cgroup as it is, and does not try again.
"""

import structlog

from dracpu_sandbox.node.cgroups import CgroupError
from dracpu_sandbox.node.containerd import HookError
from dracpu_sandbox.node.containers import Given, PodSandbox
from dracpu_sandbox.node.pod_cgroups import PodCgroups
from dracpu_sandbox.node.pod_resources import (
    Change,
    changes,
    container_of,
    given,
    given_to_pod,
    with_change,
    with_pages,
)
from dracpu_sandbox.node.runtime import SimulatedRuntime
from dracpu_sandbox.resources import JsonObject

log = structlog.get_logger("kubelet")


class Resizer:
    """The resources that a pod and its containers really have."""

    def __init__(self, runtime: SimulatedRuntime, cgroups: PodCgroups, pod: JsonObject, node_memory: int) -> None:
        self.actuated = pod  # the version of the pod whose resources are in force
        self.problem = ""  # why the last resize has failed
        self._runtime = runtime
        self._cgroups = cgroups
        self._node_memory = node_memory
        self._failed: Change | None = None  # in the pod's cgroup

    def resources(self, container: str) -> Given:
        """Returns what the kubelet asks for when it creates a container."""
        return given(self.actuated, container_of(self.actuated, container), self._node_memory)

    def shown(self, container: str, limit: int) -> JsonObject:
        """Returns the resources for the status of a container, whose limit in the runtime's record is in bytes."""
        resources = container_of(self.actuated, container).get("resources") or {}
        shown = {kind: dict(resources[kind]) for kind in ("limits", "requests") if resources.get(kind)}
        if limit > 0 and limit != self.resources(container).memory and "limits" in shown:
            shown["limits"]["memory"] = str(limit)  # kubelet: what the runtime reports, which a plugin may have changed
        return shown

    async def resize(self, pod: JsonObject, sandbox: PodSandbox) -> None:
        """Gives the pod the resources of this version; raises HookError or CgroupError, and continues when it is called
        again."""
        try:
            for change in changes(self.actuated, pod):
                goal = with_change(self.actuated, pod, change)
                await self._carry_out(change, goal, sandbox)
                self.actuated = goal
        except (HookError, CgroupError) as error:
            self.problem = str(error)
            raise
        self.problem = ""

    async def _carry_out(self, change: Change, goal: JsonObject, sandbox: PodSandbox) -> None:
        if change.in_pod and change.grows:
            await self._resize_pod(change, goal, sandbox)
        for container in self._runtime.containers_of(sandbox.uid):
            if container.running and container.name in change.containers:
                wanted = given(goal, container_of(goal, container.name), self._node_memory)
                wanted = with_pages(wanted, self._cgroups.pages)
                await self._runtime.update_container(container.id, wanted)
        if change.in_pod and not change.grows:
            try:
                await self._resize_pod(change, goal, sandbox)
            except HookError as error:
                log.warning("the pod keeps its cgroup", pod=sandbox.name, error=str(error))

    async def _resize_pod(self, change: Change, goal: JsonObject, sandbox: PodSandbox) -> None:
        if self._failed == change and self._cgroups.is_resized(sandbox, goal, change.resource):
            return
        await self._runtime.update_pod(sandbox, given_to_pod(goal, change.resource))
        self._failed = change
        self._cgroups.resize(sandbox, goal, change.resource)
        self._failed = None
