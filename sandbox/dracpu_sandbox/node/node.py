"""A simulated node: a machine, a container runtime, a kubelet and the real agent, in one folder.

node = SimulatedNode("xeon", XEON, kubeconfig, folder)
group.create_task(node.run())
await node.up.wait()
await node.crash_agent()
await node.start_agent()
node.cpuset_of("default", "web", "main")
"""

import asyncio
import contextlib
import contextvars
import itertools
import shutil
import uuid
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Final, NoReturn

import structlog

from dracpu_agent.host.sysfs import read_online
from dracpu_agent.kubelet.sockets import MAX_PATH_BYTES
from dracpu_api.cpuset import CpuSet
from dracpu_api.names import DRIVER
from dracpu_sandbox.client import STRATEGIC, ConflictError, KubeClient
from dracpu_sandbox.errors import SandboxError, cause
from dracpu_sandbox.events import now
from dracpu_sandbox.logs import WRITER
from dracpu_sandbox.machines.description import Machine
from dracpu_sandbox.machines.memory_files import memory_files, write_over
from dracpu_sandbox.machines.tree import shared_tree
from dracpu_sandbox.node import runtime
from dracpu_sandbox.node.agents import AgentEndedError, AgentHost, AgentKind, ProcessAgent, TaskAgent
from dracpu_sandbox.node.cgroups import CgroupTree
from dracpu_sandbox.node.containers import Container
from dracpu_sandbox.node.delays import Delays
from dracpu_sandbox.node.kubelet import Kubelet, NoContainerError
from dracpu_sandbox.node.node_object import node_of, node_status
from dracpu_sandbox.node.plugins import RegisteredPlugin
from dracpu_sandbox.node.ram import ORDINARY, Ram
from dracpu_sandbox.resources import NODES

UP_SECONDS: Final = 30.0
_STATUS_SECONDS: Final = 0.5  # short, because a user is watching

log = structlog.get_logger("node")


class NodeError(SandboxError):
    """The node cannot be started."""


@dataclass(eq=False)
class SimulatedNode:
    """One node of the cluster whose kubeconfig is given."""

    name: str
    machine: Machine
    kubeconfig: Path
    root: Path
    _: KW_ONLY
    agent: AgentKind = "task"
    agent_log: Path | None = None
    serves_memory: bool = True  # False for agents of a version that does not know the option
    on_agent: Callable[[str, bool], object] = lambda node, ready: None
    delays: Delays = field(default_factory=Delays)

    def __post_init__(self) -> None:
        self._run = self.root / "run"  # a tmpfs on real nodes: empty after a reboot
        self._var = self.root / "kubelet"
        self._log = self.agent_log or self.root / "agent.log"
        self._ram = Ram(self.machine.memory)
        self._cgroups = CgroupTree(self.root / "cgroup", self._ram)
        self._runtime = runtime.SimulatedRuntime(
            self._run / "nri.sock", self._run / "cdi", lambda: self._online, self._cgroups
        )
        self._tree = Path()  # the files of the machine, without those about its memory
        self._versions = itertools.count(1)  # of the folder with all files of the machine
        self._boot_id = ""
        self._online = CpuSet()
        self._host: AgentHost = self._make_host(self.agent)
        self._kubelet: Kubelet | None = None
        self._client: KubeClient | None = None
        self._group: asyncio.TaskGroup | None = None
        self._context: contextvars.Context | None = None  # carries the name of the node's log file to restarted parts
        self._kubelet_task: asyncio.Task[None] | None = None
        self._agent_task: asyncio.Task[None] | None = None
        self.agent_starts = 0  # how often the agent was started
        self.up = asyncio.Event()

    async def run(self) -> NoReturn:
        """Runs until it is cancelled, and stops all its parts then. Raises errors that stop the node."""
        longest = self._var / "plugins_registry" / f"{DRIVER}-reg.sock"
        if len(bytes(longest)) > MAX_PATH_BYTES:
            raise NodeError(f"the path {self.root} is too long for unix sockets: use a shorter folder")
        await self._write_machine()
        try:
            async with KubeClient.from_kubeconfig(self.kubeconfig) as client, asyncio.TaskGroup() as group:
                self._client, self._group = client, group
                self._kubelet = Kubelet(
                    self.name, self._var, client, self._runtime, self.delays, lambda: self._present_machine
                )
                self._context = contextvars.copy_context()
                await self._boot()
                await self.start_agent()
                self.up.set()
                await asyncio.Event().wait()
            raise AssertionError("a node ends only when it is cancelled")
        except BaseExceptionGroup as failures:
            refused, others = failures.split(SandboxError)
            if refused is None or others is not None:
                raise
            raise cause(refused) from None
        finally:
            await self._runtime.stop()
            await self._runtime.kill_everything()

    # ---- actions of stories and tests

    async def start_agent(self) -> None:
        """Starts a new agent; returns when the kubelet has registered it and the runtime has synchronized it."""
        assert self._group is not None
        assert self._kubelet is not None
        if self._agent_task is not None:
            raise NodeError(f"the agent of {self.name} is already running")
        former = self._kubelet.plugins.expect_driver(DRIVER)
        assert self._context is not None
        context = self._context.copy()
        context.run(WRITER.set, self._log.stem)
        self._agent_task = self._group.create_task(self._supervise_agent(), name=f"{self.name} agent", context=context)
        await self._agent_is_up(former)
        self.on_agent(self.name, True)

    async def stop_agent(self) -> None:
        """Stops the agent with SIGTERM, without a restart."""
        await self._end_agent(brutal=False)

    async def crash_agent(self) -> None:
        """Stops the agent with SIGKILL, if it is a separate process, without a restart."""
        await self._end_agent(brutal=True)

    async def restart_kubelet(self) -> None:
        """Stops the kubelet and starts it again; returns when the agent is registered again."""
        await self._end_kubelet()
        await self._register_node()
        self._start_kubelet()
        if self._agent_task is not None:
            await self._agent_is_up()

    async def restart_runtime(self) -> None:
        """Restarts containerd, whose containers keep running. Returns when the agent is synchronized again."""
        await self._runtime.stop()
        await self._runtime.start()
        if self._agent_task is not None:
            await self._agent_is_up()

    async def reboot(self) -> None:
        """Deletes containers and /run, keeps the files of kubelet and agent, and starts everything again."""
        had_agent = self._agent_task is not None
        await self._end_agent(brutal=True)
        await self._end_kubelet()
        await self._runtime.stop()
        await self._runtime.kill_everything()
        self._boot_id = ""
        await asyncio.to_thread(shutil.rmtree, self._run)
        await self._write_machine()
        await self._boot()
        if had_agent:
            await self.start_agent()

    async def set_offline(self, cpus: CpuSet) -> None:
        """Sets exactly these CPUs of the machine offline."""
        self.machine = replace(self.machine, offline=cpus)
        await self._write_machine()
        self._runtime.update_cpus()
        self._host.read_machine_again()

    def set_pages(self, numa: int, page: int, count: int) -> None:
        """Sets how many hugepages of a size in bytes a NUMA node has, as a write to nr_hugepages does: there may become
        fewer, pages in use become surplus pages, and the kubelet finds the new number at its next start."""
        self._ram.set_pages(page, numa, count)
        self._write_memory()

    async def take(
        self, namespace: str, pod: str, container: str, size: int, *, page: int = ORDINARY, touch: bool = True
    ) -> None:
        """Lets a container take memory: bytes of ordinary memory, or of pages of a size, which it may only reserve.

        Raises NoMemoryError if it gets no pages. A container that the kernel kills has ended when this returns.
        """
        self._cgroups.take(self._cgroup(namespace, pod, container), page, size, touch=touch)
        await self._runtime.complete_calls()

    async def touch(self, namespace: str, pod: str, container: str, size: int, *, page: int) -> None:
        """Lets a container touch pages that it has reserved; if it may not, it has ended when this returns."""
        self._cgroups.touch(self._cgroup(namespace, pod, container), page, size)
        await self._runtime.complete_calls()

    @property
    def nri_socket(self) -> Path:
        """The socket to which the runtime's plugins connect."""
        return self._runtime.nri.socket

    @property
    def cgroups(self) -> Path:
        """The folder that stands for /sys/fs/cgroup."""
        return self._cgroups.root

    def cgroup_of(self, namespace: str, pod: str, container: str) -> Path:
        """Returns the folder of a container's cgroup, which is in that of its pod; raises NoContainerError."""
        return self._cgroups.root / self._cgroup(namespace, pod, container)

    def _cgroup(self, namespace: str, pod: str, container: str) -> str:
        found = self.container_of(namespace, pod, container)
        if not found.running:
            raise NoContainerError(f"container {container} of pod {namespace}/{pod} is not running")
        return found.cgroup

    async def kill_container(self, namespace: str, pod: str, container: str) -> None:
        """Kills a container with SIGKILL; the kubelet starts it again. Raises NoContainerError."""
        await self._runtime.stop_container(self._container(namespace, pod, container))

    def cpuset_of(self, namespace: str, pod: str, container: str) -> str:
        """Returns the CPUs on which a container may run; raises NoContainerError."""
        return str(self._runtime.cpus_of(self._container(namespace, pod, container)))

    def container_of(self, namespace: str, pod: str, container: str) -> Container:
        """Returns a container as the runtime has it; raises NoContainerError."""
        return self._runtime.nri.containers[self._container(namespace, pod, container)]

    def environment_of(self, namespace: str, pod: str, container: str) -> dict[str, str]:
        """Returns the variables of a container, including those from CDI devices; raises NoContainerError."""
        return self._runtime.environment_of(self._container(namespace, pod, container))

    def logs(self, namespace: str, pod: str, container: str) -> str:
        """Returns the output of a container; raises NoContainerError."""
        return self._runtime.log_of(self._container(namespace, pod, container))

    def _container(self, namespace: str, pod: str, container: str) -> str:
        if self._kubelet is None or self._kubelet_task is None:
            raise NoContainerError(f"the kubelet of {self.name} is not running")
        container_id = self._kubelet.container_of(namespace, pod, container)
        if container_id not in self._runtime.nri.containers:
            raise NoContainerError(f"container {container} of pod {namespace}/{pod} was removed")
        return container_id

    # ---- parts of the node

    async def _boot(self) -> None:
        self._run.mkdir(parents=True, exist_ok=True)
        self._var.mkdir(parents=True, exist_ok=True)
        await self._register_node()
        await self._runtime.start()
        self._start_kubelet()

    async def _register_node(self) -> None:
        assert self._client is not None
        with contextlib.suppress(ConflictError):  # the Node exists since the kubelet's first start
            await self._client.create(NODES, node_of(self.name, self.machine))
        self._boot_id = self._boot_id or str(uuid.uuid4())
        version = f"{self._runtime.nri.name}://{self._runtime.nri.version.removeprefix('v')}"
        status = node_status(self.name, self._present_machine, version, self._boot_id, now())
        await self._client.patch(NODES, self.name, {"status": status}, subresource="status", kind=STRATEGIC)

    def _start_kubelet(self) -> None:
        assert self._group is not None
        assert self._client is not None
        assert self._kubelet is not None
        self._kubelet.plugins.expect_driver(DRIVER)
        self._kubelet_task = self._group.create_task(
            self._kubelet.run(), name=f"{self.name} kubelet", context=self._context
        )

    async def _end_kubelet(self) -> None:
        if self._kubelet_task is not None:
            await _cancel(self._kubelet_task)
            await self._runtime.complete_calls()
        self._kubelet_task = None

    async def _end_agent(self, *, brutal: bool) -> None:
        if self._agent_task is None:
            return
        self._host.brutal = brutal
        await _cancel(self._agent_task)
        self._agent_task = None
        self.on_agent(self.name, False)
        if self._kubelet is not None:
            self._kubelet.plugins.check_now()

    async def _supervise_agent(self) -> None:
        self._host.brutal = False
        while True:
            self.agent_starts += 1
            try:
                await self._host.serve()
            except AgentEndedError as error:
                log.error(
                    "agent has exited", node=self.name, error=str(error), restart_seconds=self.delays.agent_restart
                )
            await asyncio.sleep(self.delays.agent_restart)

    async def _agent_is_up(self, former: RegisteredPlugin | None = None) -> None:
        assert self._kubelet is not None
        try:
            async with asyncio.timeout(UP_SECONDS):
                await self._kubelet.plugins.registered(DRIVER, former)
                await self._runtime.nri.synchronized()
        except TimeoutError as error:
            raise NodeError(
                f"the agent of {self.name} is not registered after {UP_SECONDS:g} s: see its log"
            ) from error

    def _make_host(self, kind: AgentKind) -> AgentHost:
        options = {
            "node-name": self.name,
            "kubeconfig": self.kubeconfig,
            "kubelet-root": self._var,
            "sysfs-root": self.root / "machine/sys",
            "procfs-root": self.root / "machine/proc",
            "cdi-dir": self._run / "cdi",
            "nri-socket": self._run / "nri.sock",
            "state-dir": self.root / "agent",
            "http-address": "127.0.0.1:0",
            "status-interval": _STATUS_SECONDS,
            **({"memory-cgroups": self._cgroups.root} if self.serves_memory else {}),
        }
        arguments = [f"--{name}={value}" for name, value in options.items()]
        return TaskAgent(arguments) if kind == "task" else ProcessAgent(arguments, self._log)

    @property
    def _present_machine(self) -> Machine:
        """The machine with its memory as it is now."""
        return replace(self.machine, memory=self._ram.banks())

    async def _write_machine(self) -> None:
        """Replaces the machine's files at once: a reader gets either the old machine or the new one."""
        bare = replace(self.machine, memory=())
        tree = await asyncio.to_thread(shared_tree, bare, self.root.parent / "machines")
        self.root.mkdir(parents=True, exist_ok=True)
        self._tree = tree.resolve()
        self._cgroups.on_use = self._write_memory
        self._write_memory()
        self._online = read_online(self.root / "machine/sys")

    def _write_memory(self) -> None:
        """Replaces the files about the machine's memory; a reader of the former ones can continue for one more time."""
        link, fresh, number = self.root / "machine", self.root / "machine.new", next(self._versions)
        made = self.root / f"machine-{number}"
        write_over(self._tree, made, dict(memory_files(self._present_machine)))
        fresh.symlink_to(made.name)
        fresh.replace(link)
        shutil.rmtree(self.root / f"machine-{number - 2}", ignore_errors=True)


async def _cancel(task: "asyncio.Task[None]") -> None:
    """Cancels a task and waits for its end; raises the error with which it fails."""
    task.cancel()
    await asyncio.wait((task,))
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error
