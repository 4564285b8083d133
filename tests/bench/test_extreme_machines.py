"""Measures the agent on machines of up to 8,192 CPUs: its part of the runtime's calls, and its memory with one device
for each CPU. Claims hold every second CPU, so that cpusets are as long as they can be. Asserts no times or sizes."""

import asyncio
from collections.abc import Callable, Iterator
from time import perf_counter

import pytest
import structlog
from agent_process import agent, memory, peak_memory
from fake_api import FakeApi
from fake_kubelet import FakeKubelet, kubelet_root
from google.protobuf.message import Message
from nodes import NODE, OLD_RUNTIME, SAFE_RUNTIME, cdi, machine, request, spec, uid, whole

from dracpu_agent.node import NodeState
from dracpu_agent.placement.container import RuntimeInfo
from dracpu_agent.placement.proof import ClaimKey
from dracpu_agent.runtime.hooks import SERVICE, Hooks
from dracpu_agent.runtime.proto import nri_pb2 as nri
from dracpu_agent.runtime.ttrpc import Call, StatusError
from dracpu_agent.work.pinning import Pinning
from dracpu_api.cpuset import CpuSet
from dracpu_api.names import CPUS
from dracpu_api.settings import Mode, encode_spec
from dracpu_sandbox.machines.description import Machine, uniform
from dracpu_sandbox.machines.tree import directory, write_tree
from dracpu_sandbox.node.nri_runtime import NriRuntime

DEVICES_PER_CLAIM = 32  # the API server's limit


@pytest.fixture(autouse=True)
def _only_errors_are_logged() -> Iterator[None]:
    with structlog.testing.capture_logs():
        yield


def container(name: str, *devices: str) -> nri.Container:
    """Builds a running container as the runtime describes it, with an id as long as the runtime's."""
    message = nri.Container(id=name.rjust(64, "0"), pod_sandbox_id=name, name="main", state=nri.CONTAINER_RUNNING)
    message.CDI_devices.extend(nri.CDIDevice(name=f"dra.k8s.io/cpu={device}") for device in devices)
    return message


async def reads_no_claim(_: ClaimKey) -> None:
    """Stands for reading a claim again, which no container here needs."""


async def reads_no_cgroup(_pod_uid: str, _container_id: str) -> CpuSet | None:
    """Stands for reading a cgroup, which no start here needs."""
    return None


class Node:
    """A node in individual mode, and the agent's end of NRI."""

    def __init__(self, cpus: int, runtime: RuntimeInfo) -> None:
        self.state = NodeState(NODE, machine(sockets=2, cores=cpus // 4))
        self.state.configure(spec(mode=Mode.INDIVIDUAL))
        self.state.containers.connected(runtime)
        pinning = Pinning(self.state, reads_no_claim, lambda _: None, reads_no_cgroup)
        self._hooks = Hooks(pinning, pinning.synchronized)

    async def call(self, title: str, method: str, message: Message) -> None:
        """Prints the time of a call, and the size of its answer."""
        begun = perf_counter()
        try:
            reply = await self._hooks.answer(
                Call(SERVICE, method, message.SerializeToString(), asyncio.get_running_loop().time(), 1e6)
            )
            result = f"{len(reply.payload) / 2**20:.2f} MiB"
            if reply.sent is not None:
                reply.sent()
        except StatusError:
            result = "refused"
        print(f"  {title:<42}{(perf_counter() - begun) * 1e3:>9.1f} ms  {result}")

    def push_all(self) -> str:
        """Confirms pushes until no push is due."""
        pushes = 0
        while update := self.state.containers.next_push():
            self.state.containers.pushed(update, applied=True)
            pushes += 1
        return f"{pushes} pushes"

    def step(self, title: str, step: Callable[[], object]) -> None:
        """Prints the time of a step."""
        begun = perf_counter()
        result = step()
        print(f"  {title:<42}{(perf_counter() - begun) * 1e3:>9.1f} ms  {result if isinstance(result, str) else ''}")


@pytest.mark.parametrize(("cpus", "containers"), [(128, 200), (128, 500), (2048, 1000), (8192, 2000)])
@pytest.mark.parametrize("runtime", [SAFE_RUNTIME, OLD_RUNTIME], ids=["pushes", "no pushes"])
async def test_time_of_hooks(cpus: int, containers: int, runtime: RuntimeInfo) -> None:
    print(f"\n{cpus} CPUs, {containers} containers, {runtime.name} {runtime.version}")
    node = Node(cpus, runtime)
    odd = range(3, cpus, 2)
    *held, last = [odd[at : at + DEVICES_PER_CLAIM] for at in range(0, len(odd), DEVICES_PER_CLAIM)]
    for number, ids in enumerate(held):
        node.state.claims.grant(request(number, *(whole(cpu) for cpu in ids)))
    shared = [container(f"{number}") for number in range(containers)]
    await node.call("Synchronize, no container has a cpuset", "Synchronize", nri.SynchronizeRequest(containers=shared))
    node.step("pushes that follow", node.push_all)

    number = len(held)
    node.step("grant", lambda: node.state.claims.grant(request(number, *(whole(cpu) for cpu in last), pods=["p"])))
    pinned = container("pinned", cdi(number))
    pinned.env.append(f"{CPUS.variable(uid(number), None)}={node.state.claims[uid(number)].cpus}")
    create = nri.CreateContainerRequest(container=pinned, pod=nri.PodSandbox(uid="p", namespace="default"))
    stop = nri.StopContainerRequest(container=pinned)
    await node.call("CreateContainer with the claim", "CreateContainer", create)
    await node.call("StopContainer", "StopContainer", stop)
    node.step("pushes that follow", node.push_all)
    await node.call("CreateContainer again", "CreateContainer", create)
    new = nri.CreateContainerRequest(container=container("new"))
    await node.call("CreateContainer without a claim", "CreateContainer", new)
    await node.call("StopContainer with the claim", "StopContainer", stop)
    node.step("release", lambda: node.state.claims.release(uid(number)))
    node.step("pushes that follow", node.push_all)


@pytest.mark.parametrize("cpus", [128, 512, 2048, 8192])
async def test_memory_with_a_device_for_each_cpu(cpus: int) -> None:
    described = Machine(f"{cpus} CPUs", sockets=2, cores=uniform(cpus // 2), numa_nodes=8, l3_groups=16)
    with directory() as files, kubelet_root() as root:
        sysfs, procfs = write_tree(described, files)
        async with FakeApi() as api, NriRuntime(root / "nri.sock") as runtime, FakeKubelet(root) as kubelet:
            api.add("nodes", {"metadata": {"name": NODE}})
            api.add("cpunodes", {"metadata": {"name": NODE}, "spec": encode_spec(spec(mode=Mode.INDIVIDUAL))})
            async with agent(root, api, sysfs, procfs) as process:
                await kubelet.register("dra.cpu")
                await runtime.synchronized()
                await api.until(lambda: published(api) >= cpus - 2, 120)
                print(f"\n{described.name:<10} devices published   {memory(process.pid)}")
                fewer = encode_spec(spec(mode=Mode.INDIVIDUAL, reserved="0-7", revision="r2"))
                api.edit("cpunodes", NODE, lambda stored: stored.update(spec=fewer))
                await api.until(lambda: published(api) == cpus - 8, 120)
                await api.until_idle(1.0)
                print(
                    f"{described.name:<10} all written anew    {memory(process.pid)}, peak {peak_memory(process.pid)}"
                )


def published(api: FakeApi) -> int:
    """How many devices the slices have."""
    return sum(len(stored["spec"].get("devices", ())) for stored in api.all("resourceslices"))
