"""The simulated container runtime: containerd's interface for the kubelet, based on a runtime that speaks NRI.

A container has a cgroup and a program (programs.py), and logs on which CPUs it may run. It survives a restart of the
runtime, as containerd's shims ensure, but not a reboot. The kernel may kill it when it takes memory.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from dracpu_agent.runtime.proto import nri_pb2 as nri
from dracpu_api.cpuset import CpuSet
from dracpu_sandbox.errors import SandboxError
from dracpu_sandbox.node.cdi import environment_of
from dracpu_sandbox.node.cgroups import CgroupError, CgroupTree
from dracpu_sandbox.node.containers import KILLED, Container, Given, PodSandbox
from dracpu_sandbox.node.nri_runtime import NriRuntime
from dracpu_sandbox.node.programs import Program

VERSION: Final = "v2.4.2"  # containerd
NRI_VERSION: Final = "v0.12.3"  # containerd 2.4.0 and newer have it
_T = TypeVar("_T")


class RuntimeDownError(SandboxError):
    """The runtime is not running."""


def effective_cpus(configured: str, online: CpuSet) -> CpuSet:
    """Returns where a container may run: on all online CPUs, as in cgroup v2, if none of its cpuset is online."""
    return CpuSet.parse(configured) & online or online


class _ContainerCgroups:
    """The cgroups of containers, in those of their pods."""

    def __init__(self, tree: CgroupTree) -> None:
        self._tree = tree

    def make(self, container: Container) -> None:
        """See Cgroups."""
        self._tree.make(container.cgroup, score=container.score)

    def enter(self, container: Container) -> None:
        """See Cgroups."""
        self._tree.prefer(container.cgroup, container.preferred)
        for mount in container.mounts:
            if container.pod.user_namespace and mount.type == "hugetlbfs":
                raise CgroupError(f"mounting {mount.type} at {mount.destination}: operation not permitted")

    def write(self, container: Container, file: str, text: str) -> None:
        """See Cgroups."""
        self._tree.write(container.cgroup, file, text)

    def remove(self, container: Container) -> None:
        """See Cgroups."""
        self._tree.remove(container.cgroup)


class SimulatedRuntime:
    """The container runtime of one node."""

    def __init__(self, socket: Path, cdi_dir: Path, online: Callable[[], CpuSet], cgroups: CgroupTree) -> None:
        own = _ContainerCgroups(cgroups)
        self.nri = NriRuntime(socket, version=VERSION, nri_version=NRI_VERSION, cgroups=own)
        self.nri.on_change = self.update_cpus
        self.cgroups = cgroups
        cgroups.on_kill = self._killed
        self.on_change: Callable[[str], None] = lambda pod_uid: None  # called when a container of this pod has changed
        self._cdi_dir = cdi_dir
        self._online = online
        self._up = False
        self._sandboxes: dict[str, PodSandbox] = {}  # by pod UID
        self._calls: set[asyncio.Task[Any]] = set()  # the kubelet's calls that have not completed

    # ---- the process

    async def start(self) -> None:
        """Starts to serve the NRI socket and the kubelet."""
        self.nri.socket.parent.mkdir(parents=True, exist_ok=True)
        await self.nri.start()
        self._up = True

    async def stop(self) -> None:
        """Stops the runtime; its containers continue."""
        self._up = False
        await self.nri.stop()

    async def kill_everything(self) -> None:
        """Ends all containers and pods without an event, as when the machine is switched off."""
        endings = [known.ending for known in self.nri.containers.values() if known.ending is not None]
        for task in (*self._calls, *endings):
            task.cancel()
        await asyncio.gather(*self._calls, *endings, return_exceptions=True)
        self.cgroups.clear()
        self._sandboxes.clear()
        self.nri.containers.clear()

    async def complete_calls(self) -> None:
        """Waits until all calls have completed; then the kubelet can be started again."""
        await asyncio.gather(*self._calls, return_exceptions=True)

    # ---- requests of the kubelet

    def pod(self, uid: str) -> PodSandbox | None:
        """Returns the sandbox of a pod, or None."""
        return self._sandboxes.get(uid)

    def run_pod(
        self, namespace: str, name: str, uid: str, cgroup: str = "", *, user_namespace: bool = False
    ) -> PodSandbox:
        """Creates the sandbox of a pod, whose cgroup exists."""
        self._require_up()
        self._sandboxes[uid] = PodSandbox(name, namespace, uid, cgroup or f"pod{uid}", user_namespace)
        return self._sandboxes[uid]

    def remove_pod(self, uid: str) -> None:
        """Removes the sandbox of a pod, whose containers must be removed already."""
        self._sandboxes.pop(uid, None)

    def containers_of(self, pod_uid: str) -> list[Container]:
        """Returns all containers of a pod, oldest first, including those that have ended but are not removed."""
        return [known for known in self.nri.containers.values() if known.pod.uid == pod_uid]

    async def create(
        self,
        pod: PodSandbox,
        name: str,
        *,
        env: Sequence[str],
        cdi_devices: Sequence[str],
        program: Program,
        asked: Given | None = None,
        volumes: Sequence[str] = (),
    ) -> str:
        """Creates a container; returns its id. Raises HookError, UnresolvableError, RuntimeDownError."""
        self._require_up()
        return await self._complete(self._create(pod, name, env, cdi_devices, program, asked, volumes))

    async def update_pod(self, pod: PodSandbox, asked: Given) -> None:
        """Announces new resources of a pod. Raises HookError, RuntimeDownError."""
        self._require_up()
        await self._complete(self.nri.update_pod(pod, asked))

    async def update_container(self, container_id: str, asked: Given) -> None:
        """Changes the resources of a container. Raises HookError, RuntimeDownError."""
        self._require_up()
        await self._complete(self.nri.update_container(container_id, asked=asked))

    async def start_container(self, container_id: str) -> None:
        """Starts a created container. Raises HookError."""
        self._require_up()
        await self._complete(self._start(self.nri.containers[container_id]))

    async def stop_container(self, container_id: str) -> None:
        """Ends a container at once: its simulated program could not use a grace period."""
        self._require_up()
        await self._complete(self._stop(self.nri.containers[container_id]))

    async def remove_container(self, container_id: str) -> None:
        """Removes a container that has ended, or was never started."""
        self._require_up()
        await self._complete(self.nri.remove_container(container_id))

    async def _create(
        self,
        pod: PodSandbox,
        name: str,
        env: Sequence[str],
        cdi_devices: Sequence[str],
        program: Program,
        asked: Given | None,
        volumes: Sequence[str],
    ) -> str:
        # containerd: CDI devices are injected before the hook, so that plugins see their variables.
        injected = await asyncio.to_thread(environment_of, self._cdi_dir, cdi_devices)
        made = await self.nri.create_container(
            pod,
            name,
            env=[*env, *injected],
            cdi_devices=cdi_devices,
            asked=asked,
            volumes=volumes,
            start=False,
        )
        self.nri.containers[made].program = program
        return made

    async def _start(self, container: Container) -> None:
        await self.nri.start_container(container.id)
        if container.program.seconds is not None:
            container.ending = asyncio.create_task(self._run_program(container), name=f"{container.id} runs")
        self.update_cpus()

    async def _stop(self, container: Container) -> None:
        if container.state == nri.CONTAINER_STOPPED:
            if container.ending is not None:
                await asyncio.wait((container.ending,))  # it is ending by itself, and plugins get the event
            return
        await self._kill(container, KILLED)

    async def _kill(self, container: Container, exit_code: int, reason: str = "") -> None:
        if container.ending is not None:
            container.ending.cancel()
        await self._end(container, exit_code, reason)

    def _killed(self, cgroup: str, exit_code: int, reason: str) -> None:
        """The kernel has killed a container, which is reported like any other end."""
        for container in self.nri.containers.values():
            if container.cgroup == cgroup and container.state != nri.CONTAINER_STOPPED:
                self._begin(self._kill(container, exit_code, reason))

    def _begin(self, call: Coroutine[Any, Any, _T]) -> "asyncio.Task[_T]":
        task = asyncio.create_task(call, name="runtime call")
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        return task

    async def _complete(self, call: Coroutine[Any, Any, _T]) -> _T:
        """Completes a call even if the calling kubelet is cancelled, so that plugins never see half of a call."""
        task = self._begin(call)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(
                lambda done: done.cancelled() or done.exception()
            )  # nothing waits for its result any more
            raise

    # ---- the state of containers

    def cpus_of(self, container_id: str) -> CpuSet:
        """Returns the CPUs on which a container may run."""
        return effective_cpus(self.nri.cpuset_of(container_id), self._online())

    def environment_of(self, container_id: str) -> dict[str, str]:
        """Returns the variables of a container."""
        return dict(entry.split("=", 1) for entry in self.nri.containers[container_id].env)

    def log_of(self, container_id: str) -> str:
        """Returns the output of a container."""
        return "".join(self.nri.containers[container_id].log)

    def update_cpus(self) -> None:
        """Writes the allowed CPUs into the logs of the running containers for which they have changed."""
        for container in self.nri.containers.values():
            line = f"Cpus_allowed_list:\t{self.cpus_of(container.id)}\n"
            if container.running and container.log[-1:] != [line]:
                container.log.append(line)
                self.on_change(container.pod.uid)

    async def _run_program(self, container: Container) -> None:
        await asyncio.sleep(container.program.seconds or 0)
        await self._end(container, container.program.exit_code)

    async def _end(self, container: Container, exit_code: int, reason: str = "") -> None:
        if container.state != nri.CONTAINER_STOPPED:
            container.exit_code, container.end_reason = exit_code, reason
            await self.nri.stop_container(container.id)
            self.on_change(container.pod.uid)

    def _require_up(self) -> None:
        if not self._up:
            raise RuntimeDownError("the container runtime is not running")
