"""The records of everything that the operator knows, fed by watches, by lists and by the answers to own writes.

When the API server's data was restored from a backup, versions begin again below those that were seen, and watches from
a version of before may stay silent for days: then nothing here can be trusted, and `outdated` is set.
"""

import asyncio
import time
from collections.abc import Callable

from dracpu_api.resources import Json
from dracpu_operator.decide.records import Agent, Config, CpuNode, DaemonSet, Node
from dracpu_operator.known.read import read_config, read_cpu_node, read_node
from dracpu_operator.known.read_agents import read_agent, read_daemon_set
from dracpu_operator.known.tables import AgentPods, NodeTable, Table


class Fleet:
    """All tables. `changed` is set when a record changes in a field that decisions look at, `inputs_changed` when it is
    the record of a Node or a config, and `outdated` when everything has to be listed by a new process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.changed = asyncio.Event()
        self.inputs_changed = asyncio.Event()
        self.outdated = asyncio.Event()
        self.lists_configs = False  # the configs are to be listed again: a watch may have shown them incompletely
        self.to_read_again: set[str] = set()  # CpuNodes to read again: it is not known whether a write was carried out
        self.node_table = NodeTable(read_node, self._input_changed, self.outdated, clock)
        self.config_table = Table(read_config, self._input_changed, self.outdated, is_custom=True)
        self.cpu_node_table = Table(read_cpu_node, self.changed.set, self.outdated, is_custom=True)
        self.agent_pods = AgentPods(read_agent, self.changed.set, self.outdated)
        self.agent_daemon_sets = Table(read_daemon_set, self.changed.set, self.outdated)

    @property
    def nodes(self) -> dict[str, Node]:
        """The Nodes by name."""
        return self.node_table.records

    @property
    def configs(self) -> dict[str, Config]:
        """The CpuDriverConfigs by name."""
        return self.config_table.records

    @property
    def cpu_nodes(self) -> dict[str, CpuNode]:
        """The CpuNodes by name."""
        return self.cpu_node_table.records

    @property
    def agents(self) -> dict[str, Agent]:
        """The agents by the name of their node."""
        return self.agent_pods.by_node

    @property
    def daemon_sets(self) -> dict[str, DaemonSet]:
        """The DaemonSets of the agents."""
        return self.agent_daemon_sets.records

    @property
    def follows_agents(self) -> bool:
        """Whether the agents' pods and their DaemonSet are known; else nothing can be concluded from a missing pod."""
        return self.agent_pods.complete and self.agent_daemon_sets.complete

    def store_config(self, raw: Json, *, watched: bool = False) -> None:
        """Records a CpuDriverConfig that exists; `watched`: a watch has shown it."""
        self.config_table.store(raw, watched=watched)

    def list_configs_again(self) -> None:
        """Requests a list of the configs with the next reconcile."""
        self.lists_configs = True
        self.changed.set()

    def store_cpu_node(self, raw: Json) -> None:
        """Records a CpuNode that exists."""
        self.cpu_node_table.store(raw)

    def remove_cpu_node(self, name: str, uid: str) -> None:
        """Removes a CpuNode that is gone."""
        self.cpu_node_table.remove(name, uid)

    def compare(self, version: int, known: int) -> None:
        """Compares a version in an answer with one that was seen before the request."""
        if version < known:
            self.outdated.set()

    def seconds_since_seen(self, node: str) -> float:
        """How long ago a watch or a list last showed the Node."""
        return self.node_table.seconds_since_seen(node)

    def _input_changed(self) -> None:
        self.changed.set()
        self.inputs_changed.set()
