"""What is remembered from one reconcile to the next changes no decision and no status; and how long reconciles rest."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeVar

import pytest
from fleets import config, cpu_node, node
from hypothesis import given
from hypothesis import strategies as st

from dracpu_operator.decide.agents import Agents
from dracpu_operator.decide.pace import Pace
from dracpu_operator.decide.plan import Memory, Situation, make_plan
from dracpu_operator.decide.progress import Moment, progress_of
from dracpu_operator.decide.records import Agent, CpuNode, DaemonSet, Node

T = TypeVar("T", Node, CpuNode, Agent)
NAMES = ("n1", "n2", "n3", "n4")
NOW = datetime(2026, 6, 1, tzinfo=UTC)
MOMENT = Moment("2026-06-01T00:00:00Z", "2026-05-01T00:00:00Z", "2026-05-01T00:00:00Z", "2026-05-01T00:00:00Z")
CONFIGS = (
    config("all"),
    config("all", status={"observedGeneration": 3}),  # equal, as after a write of its status
    config("all", mode="individual"),
    config("all", mode="unheard of"),
    config("some", nodeSelector={"matchLabels": {"pool": "a"}}, priority=1),
    config("some", nodeSelector={"matchLabels": {"pool": "b"}}, reservedCPUs="0"),
)
REVISIONS = tuple(found.wanted.revision for found in CONFIGS if found.wanted is not None)

configs = st.lists(st.sampled_from(CONFIGS), min_size=1, max_size=2, unique_by=lambda found: found.name)
nodes = st.builds(
    lambda name, uid, pool: node(name, uid=uid, **({"pool": pool} if pool else {})),
    st.sampled_from(NAMES),
    st.sampled_from(["", "", "", "another"]),
    st.sampled_from(["", "a", "b"]),
)
agents = st.builds(
    lambda name, ready, since: Agent(
        name, f"pod-{name}", 1, ready=ready, running=ready, reason="Reason", message="words", since=since
    ),
    st.sampled_from(NAMES),
    st.booleans(),
    st.sampled_from(["2026-01-01T00:00:00Z", "2026-05-31T23:59:50Z"]),
)
cpu_nodes = st.builds(
    lambda name, given, applied, phase, follows, ignored, changed, trouble: replace(
        cpu_node(
            name,
            given=given,
            applied=given if applied else None,
            phase=phase,
            follows=follows,
            settings={"reservedCPUs": "7"} if changed else None,
            troubles={trouble: ("words", "2026-01-01T00:00:00Z")} if changed else None,
        ),
        ignored=("settings.turbo",) if ignored else (),
        given_at="2026-05-31T23:59:50Z",
        was_ready=True,
    ),
    st.sampled_from(NAMES),
    st.sampled_from(REVISIONS),
    st.booleans(),
    st.sampled_from([None, "Pending", "Settling", "Draining", "Ready", "Failed"]),
    st.sampled_from(["all", "some", "deleted"]),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["StateHealthy", "MemoryReady"]),
)


def change(data: st.DataObject, table: dict[str, T], records: st.SearchStrategy[T]) -> None:
    """Removes a record and replaces others."""
    if data.draw(st.booleans()):
        table.pop(data.draw(st.sampled_from(NAMES)), None)
    table.update({found.name: found for found in data.draw(st.lists(records, max_size=2))})


@given(st.data())
def test_a_plan_and_its_statuses_do_not_depend_on_what_is_remembered(data: st.DataObject) -> None:
    memory = Memory()
    known_nodes: dict[str, Node] = {name: node(name) for name in NAMES}
    known_cpu_nodes: dict[str, CpuNode] = {
        name: cpu_node(name, given=REVISIONS[0], applied=REVISIONS[0]) for name in NAMES
    }
    known_agents: dict[str, Agent] = {}
    for _ in range(4):
        change(data, known_nodes, nodes)
        change(data, known_cpu_nodes, cpu_nodes)
        change(data, known_agents, agents)
        known_configs = {found.name: found for found in data.draw(configs)}
        daemon_sets = data.draw(st.sampled_from([[], [DaemonSet("agents", "uid", 1, len(known_agents))]]))
        now = Agents(known_agents, daemon_sets, known_cpu_nodes, MOMENT.now)
        remembering = Situation(NOW, now, memory=memory)
        plan = make_plan(known_nodes, known_configs, known_cpu_nodes, remembering)
        assert plan == make_plan(known_nodes, known_configs, known_cpu_nodes, Situation(NOW, now))
        for selected in plan.selected.values():
            counted = progress_of(selected, known_cpu_nodes, MOMENT, now, {}, memory.members)
            assert counted == progress_of(selected, known_cpu_nodes, MOMENT, now)
            # a refused node is looked at in detail even if it is settled, and is counted in the same way
            refused = dict.fromkeys(NAMES, "words")
            assert counted == replace(progress_of(selected, known_cpu_nodes, MOMENT, now, refused), refused=())


def test_a_reconcile_follows_the_first_change_after_a_short_while() -> None:
    assert Pace(0.2).pause(now=0) == 0.2


def test_reconciles_rest_nine_times_as_long_as_they_compute() -> None:
    pace = Pace(0.2)
    pace.computed(0.02)
    pace.computed(0.03)
    pace.ended(now=100)
    assert pace.pause(now=100) == pytest.approx(0.45)
    assert pace.pause(now=100.4) == 0.2
    pace.ended(now=200)
    assert pace.pause(now=200) == 0.2


def test_a_long_reconcile_delays_the_next_one_by_less_than_a_second() -> None:
    pace = Pace(0.2)
    pace.computed(5)
    pace.ended(now=100)
    assert pace.pause(now=100) < 1


def test_a_node_whose_label_changes_follows_another_config() -> None:
    memory = Memory()
    by_name = {found.name: found for found in (CONFIGS[0], CONFIGS[4])}
    for labels, follows in (({}, "all"), ({"pool": "a"}, "some"), ({"pool": "b"}, "all")):
        plan = make_plan({"n1": node("n1", **labels)}, by_name, {}, Situation(NOW, memory=memory))
        assert [change.config.name for change in plan.changes] == [follows]
