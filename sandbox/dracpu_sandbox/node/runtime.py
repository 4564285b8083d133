"""The simulated container runtime: what the kubelet asks of containerd, over a runtime that speaks NRI.

A container has a cpuset and a program (programs.py), and logs on which CPUs it may run. It survives a restart of the
runtime, as it does under containerd's shims; a reboot it does not.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from dracpu_agent.runtime.proto import nri_pb2 as nri
from dracpu_api.cpuset import CpuSet
from dracpu_sandbox.errors import SandboxError
from dracpu_sandbox.node.cdi import environment_of
from dracpu_sandbox.node.containers import Container, PodSandbox
from dracpu_sandbox.node.nri_runtime import NriRuntime
from dracpu_sandbox.node.programs import Program

VERSION: Final = "v2.4.2"  # containerd
NRI_VERSION: Final = "v0.12.3"  # containerd 2.4.0 and newer have it
KILLED: Final = 137  # the exit code of a container that was killed


_T = TypeVar("_T")


class RuntimeDownError(SandboxError):
    """The runtime is down."""


def effective_cpus(configured: str, online: CpuSet) -> CpuSet:
    """Where a container may run: cgroup v2 gives a cpuset without any online CPU the parent's."""
    return CpuSet.parse(configured) & online or online


class SimulatedRuntime:
    """One node's runtime, from `start` to `stop`."""

    def __init__(self, socket: Path, cdi_dir: Path, online: Callable[[], CpuSet]) -> None:
        self.nri = NriRuntime(socket, version=VERSION, nri_version=NRI_VERSION)
        self.nri.on_change = self.look_at_cpus
        self.on_change: Callable[[str], None] = lambda pod_uid: None  # a container of this pod has changed
        self._cdi_dir = cdi_dir
        self._online = online
        self._up = False
        self._sandboxes: dict[str, PodSandbox] = {}  # by pod UID
        self._calls: set[asyncio.Task[Any]] = set()  # of the kubelet, at hand

    # ---- the process

    async def start(self) -> None:
        """Serves the NRI socket and the kubelet."""
        self.nri.socket.parent.mkdir(parents=True, exist_ok=True)
        await self.nri.start()
        self._up = True

    async def stop(self) -> None:
        """Stops the runtime; its containers run on."""
        self._up = False
        await self.nri.stop()

    async def kill_everything(self) -> None:
        """The machine goes down: containers and pods end without any notice."""
        endings = [known.ending for known in self.nri.containers.values() if known.ending is not None]
        for task in (*self._calls, *endings):
            task.cancel()
        await asyncio.gather(*self._calls, *endings, return_exceptions=True)
        self._sandboxes.clear()
        self.nri.containers.clear()

    async def settle(self) -> None:
        """Waits until all calls are complete, before the kubelet is started again."""
        await asyncio.gather(*self._calls, return_exceptions=True)

    # ---- what the kubelet asks for

    def pod(self, uid: str) -> PodSandbox | None:
        """The sandbox of a pod, when it has one."""
        return self._sandboxes.get(uid)

    def run_pod(self, namespace: str, name: str, uid: str) -> PodSandbox:
        """Makes a sandbox."""
        self._require_up()
        self._sandboxes[uid] = PodSandbox(name, namespace, uid)
        return self._sandboxes[uid]

    def remove_pod(self, uid: str) -> None:
        """Its containers are removed already."""
        self._sandboxes.pop(uid, None)

    def containers_of(self, pod_uid: str) -> list[Container]:
        """All containers of a pod, oldest first; those that have ended stay until they are removed."""
        return [known for known in self.nri.containers.values() if known.pod.uid == pod_uid]

    async def create(
        self, pod: PodSandbox, name: str, *, env: Sequence[str], cdi_devices: Sequence[str], program: Program
    ) -> str:
        """Creates a container; its id. Raises HookError, UnresolvableError, RuntimeDownError."""
        self._require_up()
        return await self._to_the_end(self._create(pod, name, env, cdi_devices, program))

    async def start_container(self, container_id: str) -> None:
        """Starts a created container. Raises HookError."""
        self._require_up()
        await self._to_the_end(self._start(self.nri.containers[container_id]))

    async def stop_container(self, container_id: str) -> None:
        """Ends a container at once: nothing in it could use a grace period."""
        self._require_up()
        await self._to_the_end(self._stop(self.nri.containers[container_id]))

    async def remove_container(self, container_id: str) -> None:
        """Forgets a container that has ended, or was never started."""
        self._require_up()
        await self._to_the_end(self.nri.remove_container(container_id))

    async def _create(
        self, pod: PodSandbox, name: str, env: Sequence[str], cdi_devices: Sequence[str], program: Program
    ) -> str:
        # containerd: CDI devices are injected before the hook, so that plugins see their environment.
        injected = await asyncio.to_thread(environment_of, self._cdi_dir, cdi_devices)
        made = await self.nri.create_container(pod, name, env=[*env, *injected], cdi_devices=cdi_devices, start=False)
        self.nri.containers[made].program = program
        return made

    async def _start(self, container: Container) -> None:
        await self.nri.start_container(container.id)
        if container.program.seconds is not None:
            container.ending = asyncio.create_task(self._play(container), name=f"{container.id} plays")
        self.look_at_cpus()

    async def _stop(self, container: Container) -> None:
        if container.state == nri.CONTAINER_STOPPED:
            if container.ending is not None:
                await asyncio.wait((container.ending,))  # it ends by itself at this moment, and plugins get the event
            return
        if container.ending is not None:
            container.ending.cancel()
        await self._end(container, KILLED)

    async def _to_the_end(self, call: Coroutine[Any, Any, _T]) -> _T:
        """Completes a call even if the kubelet that made it is cancelled, so that plugins see no half of it."""
        task = asyncio.create_task(call, name="runtime call")
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(
                lambda done: done.cancelled() or done.exception()
            )  # nobody waits for its result any more
            raise

    # ---- what can be seen of containers

    def cpus_of(self, container_id: str) -> CpuSet:
        """The CPUs that a container may run on."""
        return effective_cpus(self.nri.cpuset_of(container_id), self._online())

    def environment_of(self, container_id: str) -> dict[str, str]:
        """The variables of a container."""
        return dict(entry.split("=", 1) for entry in self.nri.containers[container_id].env)

    def log_of(self, container_id: str) -> str:
        """What a container has written."""
        return "".join(self.nri.containers[container_id].log)

    def look_at_cpus(self) -> None:
        """Running containers notice on which CPUs they may run now, and write it into their logs."""
        for container in self.nri.containers.values():
            line = f"Cpus_allowed_list:\t{self.cpus_of(container.id)}\n"
            if container.running and container.log[-1:] != [line]:
                container.log.append(line)
                self.on_change(container.pod.uid)

    async def _play(self, container: Container) -> None:
        await asyncio.sleep(container.program.seconds or 0)
        await self._end(container, container.program.exit_code)

    async def _end(self, container: Container, exit_code: int) -> None:
        if container.state != nri.CONTAINER_STOPPED:
            container.exit_code = exit_code
            await self.nri.stop_container(container.id)
            self.on_change(container.pod.uid)

    def _require_up(self) -> None:
        if not self._up:
            raise RuntimeDownError("the container runtime is down: it does not answer on its socket")
