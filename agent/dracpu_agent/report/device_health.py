"""The health of the devices, which the kubelet shows in the status of pods.

The kubelet distinguishes devices, not shares of them: a group is unhealthy as soon as any claim misses a CPU of it. The
message names CPUs and no claims, because pods of every namespace show it.
"""

from dracpu_agent.kubelet.health import DeviceHealth
from dracpu_agent.node import NodeState
from dracpu_api.cpuset import EMPTY, CpuSet, union_by_name


def health_of(node: NodeState) -> list[DeviceHealth]:
    """Every device that is published or that a claim holds."""
    grants = [grant for claim in node.claims.values() for grant in claim.grants]
    # the devices of a frozen claim may be unknown
    held = union_by_name((grant.device, grant.cpus) for grant in grants if grant.device)
    published = {device.name: EMPTY for device in node.devices()}
    return [
        DeviceHealth(node.node_name, device, healthy=not offline, message=_message(offline) if offline else "")
        for device, cpus in (published | held).items()
        for offline in (cpus - node.topology.online,)
    ]


def _message(offline: CpuSet) -> str:
    which = f"CPUs {offline}, which claims hold, are" if len(offline) > 1 else f"CPU {offline}, which a claim holds, is"
    others = "containers run on the other CPUs of their claim, or on shared CPUs where it has no others"
    return f"{which} offline or forbidden: {others}"
