"""Small machines and claims for tests of the pure rooms: built by hand, so that each expectation can be read off."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dra_objects import claim_spec
from dra_objects import request as asking

from dracpu_agent.claims.checkpoint import Checkpoint
from dracpu_agent.claims.grant import ClaimRef
from dracpu_agent.claims.request import ClaimRequest, read_request
from dracpu_agent.cluster.slices.controller import SlicesState
from dracpu_agent.kubelet.registration import RegistrationStatus
from dracpu_agent.node import NodeState
from dracpu_agent.placement.container import Container, RuntimeInfo
from dracpu_agent.report.conditions import Condition, Standing
from dracpu_agent.topology.topology import Cpu, Topology
from dracpu_api.conditions import NodeCondition
from dracpu_api.cpuset import EMPTY, CpuSet
from dracpu_api.settings import Allocation, CpuNodeSpec, GroupBy, Mode, OutstandingClaim, Settings

NODE = "vm1"
SAFE_RUNTIME = RuntimeInfo("containerd", "v2.4.2", "v0.12.3", passes_cdi_devices=True, unsolicited_updates=True)
OLD_RUNTIME = RuntimeInfo("containerd", "v1.7.27", "", passes_cdi_devices=False, unsolicited_updates=False)


def machine(sockets: int = 2, cores: int = 2, threads: int = 2) -> Topology:
    """Sockets that are NUMA nodes and L3 groups, threads numbered side by side: 0-1 is the first core."""
    cpus = []
    for number in range(sockets * cores * threads):
        core, socket = number // threads, number // (cores * threads)
        cpus.append(Cpu(number, core * threads, core % cores, socket, socket, socket))
    return Topology(tuple(cpus), arch="x86_64")


def without(whole: Topology, offline: str) -> Topology:
    """What sysfs shows of a machine when these CPUs are offline: the others, cores named by what is left of them."""
    gone = CpuSet.parse(offline)
    return replace(
        whole,
        cpus=tuple(
            replace(cpu, core=(whole.cores[cpu.core] - gone).lowest) for cpu in whole.cpus if cpu.id not in gone
        ),
        offline=gone,
    )


def spec(
    mode: Mode = Mode.GROUPED,
    group_by: GroupBy = GroupBy.NUMA_NODE,
    reserved: str = "",
    revision: str = "r1",
    allocation: Allocation | None = None,
    outstanding: Sequence[OutstandingClaim] = (),
    settle_seconds: int = 0,
) -> CpuNodeSpec:
    """A CpuNode's spec."""
    settings = Settings(mode, group_by, CpuSet.parse(reserved), allocation or Allocation())
    return CpuNodeSpec("default", 1, settings, revision, tuple(outstanding), settle_seconds)


def outstanding(number: int, *devices: tuple[str, int]) -> OutstandingClaim:
    """Claim `number` as the operator lists it."""
    return OutstandingClaim(uid(number), "default", f"claim-{number}", devices)


def uid(number: int) -> str:
    """A UID as the API server makes them."""
    return f"00000000-0000-4000-8000-{number:012d}"


def share(device: str, amount: int | str, request: str = "main", number: int = 0) -> dict[str, Any]:
    """An allocation result of a grouped device."""
    return {
        "request": request,
        "driver": "dra.cpu",
        "pool": NODE,
        "device": device,
        "shareID": uid(9000 + number),
        "consumedCapacity": {"dra.cpu/cpu": str(amount)},
    }


def whole(cpu: int, request: str = "main") -> dict[str, Any]:
    """An allocation result of an individual device."""
    return {"request": request, "driver": "dra.cpu", "pool": NODE, "device": f"cpudev{cpu:03d}"}


def claim_object(
    number: int,
    results: Sequence[Mapping[str, Any]],
    config: Sequence[Mapping[str, Any]] = (),
    pods: Sequence[str] = (),
) -> dict[str, Any]:
    """A ResourceClaim as the API server keeps it, with the requests that its results are of."""
    asked = Counter(result.get("request", "") for result in results)
    return {
        "metadata": {"name": f"claim-{number}", "namespace": "default", "uid": uid(number)},
        "spec": claim_spec(*(asking(name, count=count) for name, count in asked.items())),
        "status": {
            "allocation": {"devices": {"results": list(results), "config": list(config)}},
            "reservedFor": [{"resource": "pods", "name": pod, "uid": pod} for pod in pods],
        },
    }


def ref(number: int) -> ClaimRef:
    """What the kubelet says of claim `number`."""
    return ClaimRef("default", f"claim-{number}", uid(number))


def request(number: int, *results: Mapping[str, Any], pods: Sequence[str] = ()) -> ClaimRequest:
    """What claim `number` asks."""
    return read_request(ref(number), claim_object(number, results, pods=pods), NODE)


def container(name: str, *cdi_devices: str, env: Sequence[str] = (), pod: str = "", cpus: CpuSet = EMPTY) -> Container:
    """A container whose id, name and pod are called alike."""
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


def revived(checkpoint: Checkpoint, topology: Topology | None = None) -> NodeState:
    """A node as a restarted agent finds it, before its runtime is there."""
    state = NodeState(NODE, topology or machine())
    for claim in checkpoint.claims:
        state.adopt(claim)
    state.resume(checkpoint)
    return state


def node(topology: Topology | None = None, runtime: RuntimeInfo = SAFE_RUNTIME, **settings: Any) -> NodeState:
    """A node with settings and a synchronized runtime without containers."""
    state = NodeState(NODE, topology or machine())
    state.configure(spec(**settings))
    state.containers.connected(runtime)
    state.containers.synchronize([])
    state.containers.allow_pushes()
    return state


def cdi(number: int, name: str | None = None) -> str:
    """The CDI device of a claim, or of one of its requests."""
    return f"claim-{uid(number)}" + (f"-{name}" if name else "")


def granted(state: NodeState, number: int) -> str:
    """A claim's CPUs."""
    return str(state.claims[uid(number)].cpus)


def offered(state: NodeState) -> dict[str, int | None]:
    """Device -> CPUs that it offers; None for an individual one."""
    return {device.name: device.capacity.value if device.capacity else None for device in state.devices()}


def running(state: NodeState, *containers: Container) -> None:
    """Containers that the runtime has created and stored."""
    for made in containers:
        state.containers.create(made)
        state.containers.created(made.id)


def well(**differing: Any) -> Standing:
    """Every side that the agent depends on has reported success, but for what differs."""
    standing = Standing(
        config=Condition(NodeCondition.CONFIG_APPLIED, True, "Applied"),
        registration=RegistrationStatus(True),
        slices=SlicesState(True, 1, 2, 1, None, "Published"),
    )
    return replace(standing, **differing)
