"""When nodes that no config selects any more lose their devices."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from fleets import config, cpu_node, node
from hypothesis import given
from hypothesis import strategies as st

from dracpu_api.conditions import Phase
from dracpu_operator.decide.plan import Plan, Situation, make_plan
from dracpu_operator.decide.records import Config, CpuNode, Node
from dracpu_operator.decide.rollout import budget

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ELSEWHERE = {"matchLabels": {"pool": "elsewhere"}}


def selecting_none(**rollout: Any) -> Config:
    return config(nodeSelector=ELSEWHERE, rollout=rollout)


class Cluster:
    """Nodes whose CpuNodes are written as a plan says, with a clock."""

    def __init__(self, count: int, *configs: Config) -> None:
        self.nodes: dict[str, Node] = {f"n{number}": node(f"n{number}") for number in range(count)}
        self.cpu_nodes: dict[str, CpuNode] = {name: cpu_node(name) for name in self.nodes}
        self.configs = {config.name: config for config in configs}
        self.now = NOW

    def plan(self) -> Plan:
        return make_plan(self.nodes, self.configs, self.cpu_nodes, Situation(self.now))

    def reconcile(self) -> None:
        plan = self.plan()
        for name, at in plan.marks.items():
            self.cpu_nodes[name] = replace(self.cpu_nodes[name], remove_after=at)
        for gone in plan.removals:
            del self.cpu_nodes[gone.name]

    def after(self, seconds: float) -> None:
        """Lets time pass; the operator reconciles every second."""
        for _ in range(int(seconds)):
            self.now += timedelta(seconds=1)
            self.reconcile()

    def label(self, name: str, **labels: str) -> None:
        self.nodes[name] = node(name, **labels)

    def marked(self) -> list[str]:
        return sorted(name for name, cpu_node in self.cpu_nodes.items() if cpu_node.remove_after)


def test_an_unselected_node_keeps_its_devices_for_the_grace_time() -> None:
    cluster = Cluster(1, selecting_none())
    cluster.reconcile()
    assert cluster.cpu_nodes["n0"].remove_after == "2026-01-01T00:01:00Z"
    cluster.after(59)
    assert cluster.cpu_nodes.keys() == {"n0"}
    cluster.after(2)
    assert not cluster.cpu_nodes


def test_the_plan_says_when_the_next_grace_time_ends() -> None:
    cluster = Cluster(1, selecting_none(removalSeconds=90))
    assert cluster.plan().next_removal == NOW + timedelta(seconds=90)


def test_a_label_that_comes_back_within_the_grace_time_keeps_the_node() -> None:
    cluster = Cluster(1, selecting_none())
    cluster.reconcile()
    cluster.after(30)
    cluster.label("n0", pool="elsewhere")
    assert cluster.plan().marks == {"n0": ""}
    cluster.after(300)
    assert cluster.cpu_nodes["n0"].remove_after == ""


def test_the_time_is_written_once() -> None:
    cluster = Cluster(1, selecting_none())
    cluster.reconcile()
    cluster.after(30)
    cluster.configs = {"all": selecting_none(removalSeconds=3600)}
    assert cluster.plan().marks == {}
    cluster.after(31)
    assert not cluster.cpu_nodes


def test_a_time_that_cannot_be_read_is_replaced() -> None:
    cluster = Cluster(1, selecting_none())
    cluster.cpu_nodes["n0"] = replace(cluster.cpu_nodes["n0"], remove_after="soon")
    assert cluster.plan().marks == {"n0": "2026-01-01T00:01:00Z"}


def test_a_paused_config_loses_no_node() -> None:
    cluster = Cluster(6, selecting_none(paused=True))
    cluster.after(600)
    assert len(cluster.cpu_nodes) == 6
    assert not cluster.marked()


def test_a_mistake_in_a_node_selector_takes_a_part_of_the_nodes_per_grace_time() -> None:
    cluster = Cluster(6, selecting_none(maxUnavailable=2))
    cluster.reconcile()
    assert cluster.marked() == ["n0", "n1"]
    cluster.after(61)
    assert sorted(cluster.cpu_nodes) == ["n2", "n3", "n4", "n5"]
    cluster.after(1)
    assert cluster.marked() == ["n2", "n3"]


def test_a_deleted_config_has_the_default_grace_time_and_budget() -> None:
    cluster = Cluster(8)
    cluster.reconcile()
    assert cluster.marked() == ["n0", "n1"]
    cluster.after(59)
    assert len(cluster.cpu_nodes) == 8


def test_a_node_that_offers_nothing_yet_uses_no_budget() -> None:
    cluster = Cluster(3, selecting_none(maxUnavailable=1))
    for name in ("n0", "n1"):
        cluster.cpu_nodes[name] = cpu_node(name, applied=None, phase=None)
    cluster.reconcile()
    assert cluster.marked() == ["n0", "n1", "n2"]


def test_a_node_that_another_config_takes_over_is_not_removed() -> None:
    cluster = Cluster(1, selecting_none(), config("other"))
    plan = cluster.plan()
    assert (plan.marks, plan.removals) == ({}, ())
    assert [change.config.name for change in plan.changes] == ["other"]


def test_nodes_that_change_and_nodes_that_leave_share_the_budget_of_one_plan() -> None:
    """As when one edit narrows the nodeSelector and changes settings."""
    edited = config(nodeSelector={"matchLabels": {"pool": "a"}}, mode="individual", rollout={"maxUnavailable": 1})
    cluster = Cluster(2, edited)
    cluster.label("n0", pool="a")
    plan = cluster.plan()
    assert [change.node.name for change in plan.changes] == ["n0"]
    assert plan.marks == {}


def test_a_node_whose_grace_time_ends_when_the_budget_is_used_begins_another_one() -> None:
    """As when the budget was reduced while the rollout was paused."""
    cluster = Cluster(4, selecting_none(maxUnavailable="100%"))
    cluster.reconcile()
    cluster.configs = {"all": selecting_none(maxUnavailable=1)}
    cluster.now += timedelta(hours=5)
    plan = cluster.plan()
    assert [cpu_node.name for cpu_node in plan.removals] == ["n0"]
    assert set(plan.marks.values()) == {"2026-01-01T05:01:00Z"}
    assert sorted(plan.marks) == ["n1", "n2", "n3"]


def test_without_a_grace_time_a_node_that_has_to_wait_for_the_budget_is_not_written_all_the_time() -> None:
    edited = config(nodeSelector={"matchLabels": {"pool": "a"}}, rollout={"maxUnavailable": 1, "removalSeconds": 0})
    cluster = Cluster(2, edited)
    cluster.label("n0", pool="a")
    cluster.cpu_nodes["n0"] = cpu_node("n0", phase=Phase.FAILED)
    cluster.cpu_nodes["n1"] = replace(cluster.cpu_nodes["n1"], remove_after="2025-12-31T23:59:59Z")
    assert cluster.plan().marks == {"n1": "2026-01-01T00:01:00Z"}


@given(
    limit=st.one_of(st.integers(1, 5), st.sampled_from(["1%", "25%", "50%", "100%"])),
    pools=st.lists(st.sampled_from(["a", ""]), min_size=1, max_size=10),
    marked=st.sets(st.integers(0, 9)),
    mode=st.sampled_from(["grouped", "individual"]),
    phases=st.lists(st.sampled_from([Phase.READY, Phase.FAILED, Phase.SETTLING]), min_size=10, max_size=10),
)
def test_no_plan_uses_more_than_the_budget(limit, pools, marked, mode, phases) -> None:
    edited = config(nodeSelector={"matchLabels": {"pool": "a"}}, mode=mode, rollout={"maxUnavailable": limit})
    assert edited.wanted is not None
    cluster = Cluster(len(pools), edited)
    for number, pool in enumerate(pools):
        name = f"n{number}"
        cluster.label(name, **({"pool": pool} if pool else {}))
        mark = "2025-12-31T23:59:59Z" if number in marked and not pool else ""
        phase = phases[number] if pool else Phase.READY
        cluster.cpu_nodes[name] = replace(cpu_node(name, phase=phase), remove_after=mark)
    plan = cluster.plan()
    down = {f"n{number}" for number, pool in enumerate(pools) if pool and phases[number] is not Phase.READY}
    changed = {change.node.name for change in plan.changes}
    removed = {cpu_node.name for cpu_node in plan.removals}
    most = budget(edited.wanted.spec.rollout, len(pools))
    new = (changed | removed | set(plan.marks)) - down - {f"n{number}" for number in marked}
    assert not new or len(new | down | removed) <= most
    assert not removed or len(removed | changed | down) <= most


@given(
    count=st.integers(1, 12),
    limit=st.one_of(st.integers(1, 5), st.sampled_from(["1%", "25%", "50%", "100%"])),
    flapping=st.lists(st.tuples(st.integers(0, 11), st.booleans()), max_size=40),
)
def test_at_most_max_unavailable_nodes_lose_their_devices_per_grace_time(count, limit, flapping) -> None:
    cluster = Cluster(count, selecting_none(maxUnavailable=limit, removalSeconds=20))
    wanted = cluster.configs["all"].wanted
    assert wanted is not None
    lost: list[datetime] = []
    for number, selected in flapping + [(0, False)] * 10:
        cluster.label(f"n{number % count}", **({"pool": "elsewhere"} if selected else {}))
        for _ in range(7):
            before = len(cluster.cpu_nodes)
            cluster.after(1)
            lost += [cluster.now] * (before - len(cluster.cpu_nodes))
            recent = [at for at in lost if cluster.now - at < timedelta(seconds=20)]
            assert len(recent) <= budget(wanted.spec.rollout, count)
            assert len(cluster.marked()) <= budget(wanted.spec.rollout, count)
