"""What the operator follows by watches of its own."""

from typing import Final

import structlog

from dracpu_api.resources import CONFIGS, CPU_NODES, DAEMON_SETS, NODES, PODS, Resource
from dracpu_operator.decide.records import DaemonSet
from dracpu_operator.intervals import Intervals
from dracpu_operator.known.fleet import Fleet
from dracpu_operator.known.follow import Follower, Scope, Source
from dracpu_operator.known.read_agents import AGENT_LABELS
from dracpu_operator.known.tables import AgentPods, Table

log = structlog.get_logger()

# the kubelets of 15,000 nodes report at least every five minutes, with 12 KB each: the metadata are enough
NODE_SCOPE: Final = Scope(NODES, metadata_only=True, busy=True)
CONFIG_SCOPE: Final = Scope(CONFIGS)
CPU_NODE_SCOPE: Final = Scope(CPU_NODES)


def object_followers(fleet: Fleet, source: Source, intervals: Intervals) -> list[Follower]:
    """Follow the Nodes and the CpuNodes. kopf follows the configs."""
    return [
        Follower(source, NODE_SCOPE, fleet.node_table, intervals, on_older=fleet.outdated.set),
        Follower(source, CPU_NODE_SCOPE, fleet.cpu_node_table, intervals, on_older=fleet.outdated.set),
    ]


def agent_followers(fleet: Fleet, source: Source, intervals: Intervals, namespace: str) -> list[Follower]:
    """Follow the agents' pods and their DaemonSet. Where that is not possible, the operator works without: it then
    takes every node for one with a working agent, as its CpuNode reports."""
    if not namespace:
        log.warning(
            "the agents' pods are not followed, because the operator runs outside of a pod: give --namespace; agents "
            "that have ended are not noticed"
        )
        return []

    def follow(resource: Resource, table: Table[DaemonSet] | AgentPods) -> Follower:
        return Follower(
            source,
            Scope(resource, namespace, AGENT_LABELS, busy=True),
            table,
            intervals,
            on_older=fleet.outdated.set,
            on_refused=table.lose,
        )

    return [follow(DAEMON_SETS, fleet.agent_daemon_sets), follow(PODS, fleet.agent_pods)]
