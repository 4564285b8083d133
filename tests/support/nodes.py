"""Builds small machines, claims and nodes for tests of the pure rooms, so that expected values can be seen at once."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dra_objects import claim_spec
from dra_objects import request as device_request

from dracpu_agent.claims.checkpoint import Checkpoint
from dracpu_agent.claims.cpu_asks import CpuRequest, read_cpu_request
from dracpu_agent.claims.grant import ClaimRef
from dracpu_agent.cluster.slices.controller import SlicesState
from dracpu_agent.drivers.driver import Driver
from dracpu_agent.kubelet.registration import RegistrationStatus
from dracpu_agent.node import NodeState
from dracpu_agent.placement.container import Container, ContainerUpdate, RuntimeInfo
from dracpu_agent.placement.proof import ClaimKey
from dracpu_agent.report.conditions import Condition, Standing
from dracpu_agent.topology.topology import Cpu, Topology
from dracpu_api.conditions import NodeCondition
from dracpu_api.cpuset import EMPTY, CpuSet
from dracpu_api.settings import (
    Allocation,
    CpuNodeSpec,
    GroupBy,
    MemorySettings,
    Mode,
    OutstandingClaim,
    OutstandingDevice,
    Settings,
)

NODE = "vm1"
SAFE_RUNTIME = RuntimeInfo("containerd", "v2.4.2", "v0.12.3", passes_cdi_devices=True, unsolicited_updates=True)
OLD_RUNTIME = RuntimeInfo("containerd", "v1.7.27", "", passes_cdi_devices=False, unsolicited_updates=False)


def machine(sockets: int = 2, cores: int = 2, threads: int = 2) -> Topology:
    """Builds a topology. Each socket is one NUMA node and one L3 group; the first core has the CPUs 0 and 1."""
    cpus = []
    for number in range(sockets * cores * threads):
        core, socket = number // threads, number // (cores * threads)
        cpus.append(Cpu(number, core * threads, core % cores, socket, socket, socket))
    return Topology(tuple(cpus), arch="x86_64")


def without(whole: Topology, offline: str) -> Topology:
    """Returns the topology as sysfs shows it while CPUs are offline: each core has the id of its lowest online CPU."""
    removed = CpuSet.parse(offline)
    return replace(
        whole,
        cpus=tuple(
            replace(cpu, core=(whole.cores[cpu.core] - removed).lowest) for cpu in whole.cpus if cpu.id not in removed
        ),
        offline=removed,
    )


def spec(
    mode: Mode = Mode.GROUPED,
    group_by: GroupBy = GroupBy.NUMA_NODE,
    reserved: str = "",
    revision: str = "r1",
    allocation: Allocation | None = None,
    outstanding: Sequence[OutstandingClaim] = (),
    settle_seconds: int = 0,
    memory: MemorySettings | None = None,
) -> CpuNodeSpec:
    """Builds the spec of a CpuNode."""
    cpus = CpuSet.parse(reserved)
    settings = Settings(mode, group_by, cpus, allocation or Allocation(), memory=memory or MemorySettings())
    return CpuNodeSpec("default", 1, settings, revision, tuple(outstanding), settle_seconds)


def outstanding(number: int, *devices: tuple[str, int]) -> OutstandingClaim:
    """Builds the entry of claim `number` in the operator's list of outstanding claims."""
    given = tuple(OutstandingDevice(name, cpus) for name, cpus in devices)
    return OutstandingClaim(uid(number), "default", f"claim-{number}", given)


def uid(number: int) -> str:
    """Returns a UID in the format of the API server."""
    return f"00000000-0000-4000-8000-{number:012d}"


def share(device: str, amount: int | str, request: str = "main", number: int = 0) -> dict[str, Any]:
    """Builds an allocation result of a grouped device."""
    return {
        "request": request,
        "driver": "dra.cpu",
        "pool": NODE,
        "device": device,
        "shareID": uid(9000 + number),
        "consumedCapacity": {"dra.cpu/cpu": str(amount)},
    }


def whole(cpu: int, request: str = "main") -> dict[str, Any]:
    """Builds an allocation result of an individual device."""
    return {"request": request, "driver": "dra.cpu", "pool": NODE, "device": f"cpudev{cpu:03d}"}


def claim_object(
    number: int,
    results: Sequence[Mapping[str, Any]],
    config: Sequence[Mapping[str, Any]] = (),
    pods: Sequence[str] = (),
) -> dict[str, Any]:
    """Builds an allocated ResourceClaim whose spec has the requests that its results name."""
    counts = Counter(result.get("request", "") for result in results)
    return {
        "metadata": {"name": f"claim-{number}", "namespace": "default", "uid": uid(number)},
        "spec": claim_spec(*(device_request(name, count=count) for name, count in counts.items())),
        "status": {
            "allocation": {"devices": {"results": list(results), "config": list(config)}},
            "reservedFor": [{"resource": "pods", "name": pod, "uid": pod} for pod in pods],
        },
    }


def ref(number: int) -> ClaimRef:
    """Builds the reference to claim `number` that the kubelet sends."""
    return ClaimRef("default", f"claim-{number}", uid(number))


def key(number: int) -> ClaimKey:
    """Returns the key of claim `number` among the claims of all drivers."""
    return ClaimKey("dra.cpu", uid(number))


def request(number: int, *results: Mapping[str, Any], pods: Sequence[str] = ()) -> CpuRequest:
    """Returns what the agent reads from claim `number` with these allocation results."""
    return read_cpu_request(ref(number), claim_object(number, results, pods=pods), NODE)


def container(name: str, *cdi_devices: str, env: Sequence[str] = (), pod: str = "", cpus: CpuSet = EMPTY) -> Container:
    """Builds a container; its id, its name and, unless `pod` is given, its pod's name and UID are equal."""
    return Container(
        id=name,
        name=name,
        namespace="default",
        pod_name=pod or name,
        pod_uid=pod or name,
        cdi_devices=tuple(f"dra.k8s.io/cpu={device}" for device in cdi_devices),
        env=tuple(env),
        cpus=cpus,
    )


def revived(
    checkpoint: Checkpoint, topology: Topology | None = None, others: Sequence[Driver[Any, Any]] = ()
) -> NodeState:
    """Builds the state of a node after the agent has restarted from a checkpoint and before a runtime is connected."""
    state = NodeState(NODE, topology or machine(), others)
    for claim in checkpoint.claims:
        state.adopt(claim)
    state.resume(checkpoint)
    return state


def node(topology: Topology | None = None, runtime: RuntimeInfo = SAFE_RUNTIME, **settings: Any) -> NodeState:
    """Builds the state of a node that has settings and a synchronized runtime without containers."""
    state = NodeState(NODE, topology or machine())
    state.configure(spec(**settings))
    state.containers.connected(runtime)
    state.containers.synchronize([])
    state.containers.allow_pushes()
    return state


def cdi(number: int, name: str | None = None) -> str:
    """Returns the name of the CDI device of a claim, or of one of its requests."""
    return f"claim-{uid(number)}" + (f"-{name}" if name else "")


def granted(state: NodeState, number: int) -> str:
    """Returns the CPUs that are granted to a claim."""
    return str(state.claims[uid(number)].cpus)


def offered(state: NodeState) -> dict[str, int | None]:
    """Returns the number of CPUs that each device offers, by name; None for an individual device."""
    return {device.name: device.capacity.value if device.capacity else None for device in state.devices()}


def running(state: NodeState, *containers: Container) -> None:
    """Reports containers to the state as created and started, as the runtime does."""
    for item in containers:
        state.containers.create(item)
        started(state, item)


def started(state: NodeState, created: Container) -> None:
    """Reports a container to the state as stored and started."""
    state.containers.created(created.id)
    state.containers.check_start(created)
    state.containers.started(created)


def pending_push(state: NodeState) -> ContainerUpdate:
    """Returns the update that the runtime should be sent now."""
    update = state.containers.next_push()
    assert update is not None
    return update


def well(**differing: Any) -> Standing:
    """Builds a standing in which everything that the agent depends on has reported success, except `differing`."""
    standing = Standing(
        config=Condition(NodeCondition.CONFIG_APPLIED, True, "Applied"),
        registration=RegistrationStatus(True),
        slices=SlicesState(True, 1, 2, 1, None, "Published"),
    )
    return replace(standing, **differing)
