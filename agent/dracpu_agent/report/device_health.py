"""The health of the devices, which the kubelet shows in the status of pods.

The kubelet distinguishes devices, not shares of them: a device is unhealthy for every claim that has a share of it.
"""

from collections.abc import Sequence
from typing import Any

from dracpu_agent.drivers.holding import Holding
from dracpu_agent.kubelet.health import DeviceHealth
from dracpu_agent.node import NodeState


def health_of(node: NodeState, holding: Holding[Any, Any]) -> list[DeviceHealth]:
    """Every device of a driver that is published or that a claim holds."""
    problems = holding.driver.problems()
    published = [device.name for device in holding.driver.devices(node.taints)]
    # the devices of a frozen claim may be unknown
    held = [grant.device for claim in holding.values() for grant in claim.grants if grant.device]
    return [
        DeviceHealth(node.node_name, device, healthy=device not in problems, message=problems.get(device, ""))
        for device in dict.fromkeys([*published, *held])
    ]


class HealthOfDriver:
    """The devices of one driver, for the kubelet's health stream."""

    def __init__(self, node: NodeState, holding: Holding[Any, Any]) -> None:
        self._node = node
        self._holding = holding

    def snapshot(self) -> Sequence[DeviceHealth]:
        """The health of every device."""
        return health_of(self._node, self._holding)
