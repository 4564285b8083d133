"""How many nodes change at a time, and which."""

from dataclasses import replace
from typing import Any

import pytest
from fleets import cpu_node
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from dracpu_api.conditions import Phase
from dracpu_api.objects.models import Rollout
from dracpu_operator.decide import rollout as decided
from dracpu_operator.decide.records import Agent, CpuNode
from dracpu_operator.decide.rollout import Member, budget, unavailable

UP = Agent("n", "uid", 1, ready=True, running=True, reason="Ready", message="", since="2026-01-01T00:00:00Z")
DOWN = replace(UP, ready=False, reason="NotReady")  # its process runs
ENDED = replace(UP, ready=False, running=False, reason="CrashLoopBackOff")


def fleet(*cpu_nodes: CpuNode | None) -> list[Member]:
    return [Member(f"n{number}", cpu_node) for number, cpu_node in enumerate(cpu_nodes)]


def next_nodes(rollout: Rollout, revision: str, members: list[Member], **others: Any) -> list[str]:
    """Returns the nodes to change when the config has this revision."""
    present = [
        replace(member, up_to_date=member.cpu_node is not None and member.cpu_node.given == revision)
        for member in members
    ]
    return decided.next_nodes(rollout, present, **others)


def with_agents(*pairs: tuple[CpuNode | None, Agent]) -> list[Member]:
    return [Member(f"n{number}", cpu_node, agent) for number, (cpu_node, agent) in enumerate(pairs)]


READY = cpu_node("n", given="r1", applied="r1")
UNDER_WAY = cpu_node("n", given="r2", applied="r1")
SETTLING = cpu_node("n", given="r2", applied="r1", phase="Settling")
FAILED = cpu_node("n", given="broken", applied="r1", phase="Failed")
DONE = cpu_node("n", given="r2", applied="r2")
DRAINING = cpu_node("n", given="r2", applied="r2", phase="Draining")
SILENT = cpu_node("n", given="r1", applied=None, phase=None)
STARTING = cpu_node("n", given="r1", applied=None, phase="Pending", generation=1)
RESTARTED = cpu_node("n", given="r1", applied=None, phase="Pending", generation=5)


@pytest.mark.parametrize(
    ("limit", "nodes", "expected"),
    [
        ("25%", 8, 2),
        ("25%", 9, 3),
        ("25%", 1, 1),
        ("1%", 5000, 50),
        ("100%", 7, 7),
        (3, 100, 3),
        (3, 1, 3),
        ("25%", 0, 1),
    ],
)
def test_the_budget_is_a_number_or_a_percentage_rounded_up(limit, nodes, expected) -> None:
    assert budget(Rollout(max_unavailable=limit), nodes) == expected


@pytest.mark.parametrize(
    ("cpu_node", "expected"),
    [
        (READY, False),
        (DONE, False),
        (DRAINING, False),  # has published: claims may hold on for weeks
        (UNDER_WAY, True),
        (SETTLING, True),
        (FAILED, True),
        (RESTARTED, True),
        (STARTING, False),  # first settings disturb nothing
        (SILENT, False),
    ],
)
def test_unavailable_nodes_use_the_budget(cpu_node, expected) -> None:
    assert unavailable(fleet(cpu_node)) == expected


def test_nodes_change_in_order_within_the_budget() -> None:
    rollout = Rollout(max_unavailable=2)
    assert next_nodes(rollout, "r2", fleet(READY, READY, READY)) == ["n0", "n1"]
    assert next_nodes(rollout, "r2", fleet(UNDER_WAY, READY, READY)) == ["n1"]
    assert next_nodes(rollout, "r2", fleet(UNDER_WAY, SETTLING, READY)) == []
    assert next_nodes(rollout, "r2", fleet(DONE, DRAINING, READY, READY)) == ["n2", "n3"]
    assert next_nodes(rollout, "r2", fleet(DONE, DONE, DONE)) == []


def test_first_settings_use_no_budget() -> None:
    rollout = Rollout(max_unavailable=1)
    assert next_nodes(rollout, "r2", fleet(None, None, None)) == ["n0", "n1", "n2"]
    assert next_nodes(rollout, "r2", fleet(None, SILENT, READY, READY)) == ["n0", "n1", "n2"]
    assert next_nodes(rollout, "r1", fleet(STARTING, STARTING)) == []


def test_nodes_on_which_a_config_failed_get_the_corrected_one_first() -> None:
    rollout = Rollout(max_unavailable=2)
    assert next_nodes(rollout, "broken", fleet(FAILED, FAILED, READY)) == []
    assert next_nodes(rollout, "r3", fleet(READY, FAILED, FAILED, READY)) == ["n1", "n2"]


def test_first_settings_that_failed_are_corrected_on_all_nodes_at_once() -> None:
    failed_first = cpu_node("n", given="broken", applied=None, phase="Failed", generation=1)
    members = fleet(failed_first, failed_first, failed_first)
    assert next_nodes(Rollout(max_unavailable=1), "r2", members) == ["n0", "n1", "n2"]


def test_paused_holds_back_changes_but_not_first_settings() -> None:
    rollout = Rollout(max_unavailable=5, paused=True)
    assert next_nodes(rollout, "r2", fleet(READY, FAILED, SILENT, None)) == ["n3"]


# ---- nodes without a ready agent


def test_a_node_that_was_down_before_is_not_waited_for_and_gets_its_settings_once_it_is_back() -> None:
    rollout = Rollout(max_unavailable=1)
    lost = replace(READY, was_ready=True, given_at="2026-01-01T00:00:00Z")
    before = replace(READY, was_ready=False)
    assert next_nodes(rollout, "r2", with_agents((before, DOWN), (READY, UP), (READY, UP))) == ["n1"]
    assert next_nodes(rollout, "r2", with_agents((before, DOWN), (UNDER_WAY, UP), (READY, UP))) == []
    assert next_nodes(rollout, "r2", with_agents((before, DOWN), (DONE, UP), (DONE, UP))) == []
    assert next_nodes(rollout, "r2", with_agents((before, UP), (DONE, UP), (DONE, UP))) == ["n0"]
    # an agent that was ready and is not since uses the budget: the present settings may be the reason
    assert next_nodes(rollout, "r1", with_agents((lost, DOWN), (replace(READY), UP))) == []


def test_an_agent_that_cannot_run_gets_other_settings_after_all_other_nodes() -> None:
    rollout = Rollout(max_unavailable=1)
    ended = replace(READY, was_ready=False)
    assert next_nodes(rollout, "r2", with_agents((ended, ENDED), (READY, UP))) == ["n1"]
    assert next_nodes(rollout, "r2", with_agents((ended, ENDED), (UNDER_WAY, UP))) == ["n0"]
    assert next_nodes(rollout, "r2", with_agents((ended, ENDED), (DONE, UP))) == ["n0"]


@pytest.mark.parametrize("agent", [DOWN, ENDED])
def test_settings_that_end_every_agent_reach_as_many_nodes_as_the_budget_allows(agent: Agent) -> None:
    rollout = Rollout(max_unavailable=2)
    ended = replace(DONE, was_ready=True)
    members = with_agents((ended, agent), (ended, agent), (READY, UP), (READY, UP))
    assert unavailable(members) == 2
    assert next_nodes(rollout, "r2", members) == []
    assert next_nodes(rollout, "r3", members) == ["n0", "n1"]  # corrected settings reach these at once


def test_a_node_whose_agent_was_ready_for_long_with_its_settings_is_not_waited_for() -> None:
    lost = replace(DONE, was_ready=True, given_at="2026-01-01T00:00:00Z")
    for since, counts in (("2026-01-01T00:10:00Z", True), ("2026-01-01T00:10:01Z", False)):
        members = with_agents((lost, replace(DOWN, since=since)), (READY, UP))
        assert unavailable(members) == counts
        assert next_nodes(Rollout(max_unavailable=1), "r2", members) == ([] if counts else ["n1"])
    # an agent that never applied its settings may have ended because of them, however late
    waiting = replace(UNDER_WAY, was_ready=True, given_at="2026-01-01T00:00:00Z")
    assert unavailable(with_agents((waiting, replace(DOWN, since="2026-01-02T00:00:00Z")))) == 1


def test_nodes_that_leave_use_the_budget() -> None:
    members = with_agents((READY, UP), (READY, UP), (READY, UP))
    assert next_nodes(Rollout(max_unavailable=2), "r2", members, leaving=1) == ["n0"]
    assert next_nodes(Rollout(max_unavailable=2), "r2", members, leaving=2) == []


def test_a_node_that_is_blocked_leaves_its_place_to_another() -> None:
    members = with_agents((READY, UP), (READY, UP), (None, UP))
    assert next_nodes(Rollout(max_unavailable=1), "r2", members, blocked={"n0", "n2"}) == ["n1"]


def test_a_node_that_was_refused_comes_after_the_others() -> None:
    members = with_agents((READY, UP), (READY, UP), (READY, UP))
    assert next_nodes(Rollout(max_unavailable=1), "r2", members, refused={"n0"}) == ["n1"]
    assert next_nodes(Rollout(max_unavailable=3), "r2", members, refused={"n0"}) == ["n1", "n2", "n0"]


class RollingOut(RuleBasedStateMachine):
    """Edits, reports of agents, failures, ends and returns of agents, and restarts of the operator in any order."""

    @initialize(count=st.integers(1, 12), limit=st.one_of(st.integers(1, 4), st.sampled_from(["10%", "34%", "100%"])))
    def install(self, count, limit) -> None:
        self.rollout = Rollout(max_unavailable=limit)
        self.wanted = "r0"
        self.nodes = {f"n{number:02}": cpu_node("n", given="r0", applied="r0") for number in range(count)}
        self.agents = dict.fromkeys(self.nodes, UP)
        self.ended: set[str] = set()  # nodes whose agents ended because of their settings, and have not come back

    @rule(revision=st.sampled_from(["r1", "r2", "broken1", "broken2"]))
    def edit(self, revision) -> None:
        self.wanted = revision

    @rule()
    def roll(self) -> None:
        before = self.disturbed()
        members = {member.name: member for member in self.members()}
        for name in next_nodes(self.rollout, self.wanted, self.members()):
            node = self.nodes[name]
            assert node.spec is not None
            spec = replace(node.spec, revision=self.wanted)
            was_ready = self.agents[name].ready or members[name].went_down
            self.nodes[name] = replace(node, spec=spec, generation=node.generation + 1, was_ready=was_ready)
        assert self.disturbed() <= max(before, budget(self.rollout, len(self.nodes)))

    @rule(data=st.data(), agent=st.sampled_from([UP, DOWN, ENDED]))
    def change_agent(self, data, agent) -> None:
        """An agent ends or returns, which no budget can prevent, but never as many as to exceed it."""
        name = data.draw(st.sampled_from(sorted(self.nodes)))
        before = self.agents[name]
        self.agents[name] = agent
        if self.disturbed() > budget(self.rollout, len(self.nodes)):
            self.agents[name] = before
        elif agent.ready:
            self.ended.discard(name)

    @rule()
    def end_all_agents_with_the_present_settings(self) -> None:
        for name, node in self.nodes.items():
            if node.given == self.wanted and self.wanted.startswith("broken") and self.agents[name].ready:
                self.agents[name] = ENDED
                self.ended.add(name)

    @rule(data=st.data())
    def answer(self, data) -> None:
        name = data.draw(st.sampled_from(sorted(self.nodes)))
        node = self.nodes[name]
        if not self.agents[name].ready:
            return
        if str(node.given).startswith("broken"):
            self.nodes[name] = replace(node, phase=Phase.FAILED)
        else:
            settles = [] if node.arrived else [Phase.SETTLING]
            phase = data.draw(st.sampled_from([Phase.READY, Phase.DRAINING, *settles]))
            applied = node.applied if phase is Phase.SETTLING else node.given
            self.nodes[name] = replace(node, phase=phase, applied=applied)

    @invariant()
    def never_more_than_the_budget(self) -> None:
        if hasattr(self, "nodes"):
            assert self.disturbed() <= budget(self.rollout, len(self.nodes))
            assert len(self.ended) <= budget(self.rollout, len(self.nodes))

    def teardown(self) -> None:
        """Once the settings are right and agents answer, every rollout comes to its end."""
        if not hasattr(self, "nodes"):
            return
        self.wanted = "right"
        self.agents = dict.fromkeys(self.nodes, UP)
        for _ in range(2 * len(self.nodes) + 2):
            self.roll()
            self.nodes = {
                name: replace(node, phase=Phase.READY, applied=node.given) for name, node in self.nodes.items()
            }
        assert {node.applied for node in self.nodes.values()} == {self.wanted}

    def members(self) -> list[Member]:
        return [Member(name, node, self.agents[name]) for name, node in self.nodes.items()]

    def disturbed(self) -> int:
        return unavailable(self.members())


TestRollingOut = RollingOut.TestCase
