"""Which nodes are to have an agent, and which agents are ready. Pure: the time is an argument.

The pods of the DaemonSet answer both. The DaemonSet may have no pod for a node because its nodeSelector, affinity or
tolerations exclude the node, or because its controller is about to create the pod: the number of nodes that the
controller counted tells the two apart. Where neither pods nor a DaemonSet were ever seen, as when the operator runs
outside of the cluster, nothing is known, and every node is taken to have an agent.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from dracpu_api.conditions import AgentReason
from dracpu_api.resources import Json
from dracpu_operator.decide.records import Agent, CpuNode, DaemonSet

_NOT_WANTED: Final = (
    "the DaemonSet of the agents has no pod for this node: its nodeSelector, affinity or tolerations exclude the node"
)
_NO_POD: Final = "the DaemonSet of the agents has not created a pod on this node"
_NO_DAEMON_SET: Final = "the DaemonSet of the agents does not exist: install the chart again"


class Agents:
    """Answers for one moment; `now` is RFC 3339 in UTC. `absent_since` is kept from one moment to the next: when the
    pod of a node was first found missing, which no object records."""

    def __init__(
        self,
        pods: Mapping[str, Agent],
        daemon_sets: Iterable[DaemonSet],
        cpu_nodes: Mapping[str, CpuNode],
        now: str,
        absent_since: dict[str, str] | None = None,
    ) -> None:
        self._pods = pods
        self._cpu_nodes = cpu_nodes
        self._now = now
        self._absent_since = {} if absent_since is None else absent_since
        for node in [node for node in self._absent_since if node in pods]:
            del self._absent_since[node]
        desired = [daemon_set.desired for daemon_set in daemon_sets]
        self._has_daemon_set = bool(desired)
        # None: the controller has not counted; it may be about to create any pod
        self._missing = None if None in desired else sum(filter(None, desired)) - len(pods)
        seen_before = any(cpu_node.reported_agent for cpu_node in cpu_nodes.values())
        self._known = self._has_daemon_set or bool(pods) or seen_before

    def is_wanted(self, node: str) -> bool:
        """True when the node has an agent, is about to get one, or when nothing is known about agents.

        While the DaemonSet is missing or has yet to create pods, a node with a CpuNode counts as one that had an agent.
        """
        if not self._known or node in self._pods:
            return True
        if self._has_daemon_set and self._missing is not None and self._missing <= 0:
            return False
        cpu_node = self._cpu_nodes.get(node)
        if cpu_node is None or cpu_node.reported_agent.get("reason") == AgentReason.NOT_WANTED:
            return False
        return cpu_node.phase is not None

    def of(self, node: str) -> Agent | None:
        """How the node's agent is; None when nothing is known about agents."""
        if not self._known:
            return None
        if node in self._pods:
            return self._since_first_down(self._pods[node])
        if not self.is_wanted(node):
            return self._absent(node, AgentReason.NOT_WANTED, _NOT_WANTED)
        if not self._has_daemon_set:
            return self._absent(node, AgentReason.NO_DAEMON_SET, _NO_DAEMON_SET)
        return self._absent(node, AgentReason.NO_POD, _NO_POD)

    def _since_first_down(self, agent: Agent) -> Agent:
        """An agent that ends soon after each start is ready in between: what counts is when this began."""
        cpu_node = self._cpu_nodes.get(agent.name)
        if agent.ready or cpu_node is None or cpu_node.reported_agent.get("ready") is not False:
            return agent
        return replace(agent, since=min(agent.since, cpu_node.reported_agent.get("since") or agent.since))

    def _absent(self, node: str, reason: AgentReason, message: str) -> Agent:
        cpu_node = self._cpu_nodes.get(node)
        reported: Json = {} if cpu_node is None else cpu_node.reported_agent
        since = reported.get("since") if reported.get("ready") is False else None
        since = min(since or self._absent_since.setdefault(node, self._now), self._now)
        return Agent(node, "", 0, ready=False, running=False, reason=reason, message=message, since=since)


UNKNOWN: Final = Agents({}, (), {}, "")  # nothing is known about agents
