"""Answers the kubelet's probes."""

from collections.abc import Callable

from dracpu_agent.node import NodeState
from dracpu_agent.report.conditions import Standing, unready, unregistered


class Probes:
    """Computes every answer when it is requested."""

    def __init__(self, node: NodeState, standing: Callable[[], Standing]) -> None:
        self._node = node
        self._standing = standing

    def live(self) -> list[str]:
        """Reasons to restart the agent: none, since a task that fails ends the process."""
        return []

    def ready(self) -> list[str]:
        """Why no claim can be prepared."""
        standing = self._standing()
        return unregistered(standing) + unready(self._node, standing)
