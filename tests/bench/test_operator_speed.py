"""Measures what a reconcile computes when nothing has changed: the plan, what agents' pods show, and all statuses.
Asserts no times."""

from dataclasses import replace
from datetime import UTC, datetime
from time import process_time

import pytest
from fleets import config, cpu_node, node

from dracpu_operator.decide.agent_reports import report_of
from dracpu_operator.decide.agents import Agents
from dracpu_operator.decide.plan import Memory, Situation, make_plan
from dracpu_operator.decide.progress import Moment, progress_of
from dracpu_operator.decide.records import Agent, Config, CpuNode, DaemonSet, Node
from dracpu_operator.decide.summary import status_of
from dracpu_operator.decide.times import TIME_FORMAT

CALLS = 10
NOW = "2026-06-01T00:00:00Z"


@pytest.mark.parametrize("nodes", [5_000, 15_000])
@pytest.mark.parametrize("configs", [1, 20])
def test_a_reconcile(nodes: int, configs: int) -> None:
    fleet = Fleet(nodes, configs)
    fleet.reconcile()
    took = []
    for _ in range(CALLS):
        began = process_time()
        fleet.reconcile()
        took.append(process_time() - began)
    print(f"\n{nodes:6} nodes, {configs:2} configs: {min(took) * 1e3:6.1f} ms of a processor")


class Fleet:
    """Nodes of which all have the present settings and a ready agent; each of the configs selects as many."""

    def __init__(self, nodes: int, configs: int) -> None:
        names = [f"node-{number:05}" for number in range(nodes)]
        pools = {name: f"pool-{number % configs}" for number, name in enumerate(names)}
        self.configs: dict[str, Config] = {
            pool: config(pool, nodeSelector={"matchLabels": {"pool": pool}}) for pool in set(pools.values())
        }
        self.nodes: dict[str, Node] = {name: node(name, pool=pools[name]) for name in names}
        self.cpu_nodes: dict[str, CpuNode] = {name: self._cpu_node(name, pools[name]) for name in names}
        self.pods = {
            name: Agent(name, f"pod-{name}", 1, ready=True, running=True, reason="Ready", message="", since=NOW)
            for name in names
        }
        self.daemon_sets = [DaemonSet("agents", "uid", 1, nodes)]
        self.memory = Memory()

    def _cpu_node(self, name: str, pool: str) -> CpuNode:
        wanted = self.configs[pool].wanted
        assert wanted is not None
        made = cpu_node(name, given=wanted.revision, applied=wanted.revision, follows=pool)
        return replace(made, reported_agent={"ready": True, "reason": "Ready", "message": "", "since": NOW})

    def reconcile(self) -> None:
        """Does what the Reconciler does when nothing has to be written."""
        now = datetime.now(UTC)
        agents = Agents(self.pods, self.daemon_sets, self.cpu_nodes, now.strftime(TIME_FORMAT))
        plan = make_plan(self.nodes, self.configs, self.cpu_nodes, Situation(now, agents, memory=self.memory))
        assert not plan.changes
        for name, cpu_node_ in self.cpu_nodes.items():
            report_of(cpu_node_, agents.of(name))
        moment = Moment(NOW, trouble_before=NOW, silence_before=NOW)
        for selected in plan.selected.values():
            progress = progress_of(selected, self.cpu_nodes, moment, agents, {}, self.memory.members)
            status_of(selected, self.cpu_nodes, progress, moment)
