"""Which CpuNodes are created, changed and removed."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from fleets import config, cpu_node, node
from hypothesis import given
from node_specs import specs

from dracpu_api.objects.models import CpuNode as CpuNodeModel
from dracpu_api.settings import OutstandingClaim, OutstandingDevice, encode_spec
from dracpu_operator.decide.agents import Agents
from dracpu_operator.decide.plan import Change, Plan, Situation, make_plan, spec_of, with_current_claims
from dracpu_operator.decide.records import Agent, Config, CpuNode, DaemonSet, Node

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GROUPED = OutstandingClaim("u1", "default", "grouped", (OutstandingDevice("cpudevnuma000", 2),))
SINGLE = OutstandingClaim("u2", "default", "single", (OutstandingDevice("cpudev003", 1),))


def plan_of(*parts: Node | Config | CpuNode, situation: Situation | None = None) -> Plan:
    nodes, configs, cpu_nodes = (
        {record.name: record for record in parts if isinstance(record, kind)} for kind in (Node, Config, CpuNode)
    )
    return make_plan(nodes, configs, cpu_nodes, situation or Situation(NOW))  # type: ignore[arg-type]  # one table a kind


def revision(of: Config) -> str:
    assert of.wanted is not None
    return of.wanted.revision


def changed(plan: Plan) -> list[tuple[str, str]]:
    return [(change.node.name, change.config.name) for change in plan.changes]


def settled(name: str, config: Config, **others: Any) -> CpuNode:
    return cpu_node(name, given=revision(config), applied=revision(config), follows=config.name, **others)


def test_nothing_is_written_when_all_nodes_have_their_settings() -> None:
    plan = plan_of(node("n1"), config(), settled("n1", config()))
    assert (plan.changes, plan.removals) == ((), ())


def test_a_node_without_a_cpu_node_gets_one() -> None:
    assert changed(plan_of(node("n1"), node("n2"), config())) == [("n1", "all"), ("n2", "all")]


def test_the_cpu_node_of_an_unselected_node_is_removed_unless_the_operator_did_not_create_it() -> None:
    past = "2025-12-31T23:59:00Z"
    own = replace(cpu_node("n1"), remove_after=past)
    by_hand = replace(cpu_node("n2", owner=None), remove_after=past)
    plan = plan_of(node("n1"), node("n2"), own, by_hand, cpu_node("n3"))
    assert plan.removals == (own,)


def test_the_cpu_node_of_a_former_node_is_removed_before_a_new_one_is_created() -> None:
    stale = settled("n1", config(), owner="former")
    plan = plan_of(node("n1"), config(), stale)
    assert plan.removals == (stale,)
    assert plan.changes == ()


def test_a_move_to_a_config_with_equal_settings_uses_no_budget() -> None:
    a, b = config("a", rollout={"paused": True}), config("b", priority=-1)
    plan = plan_of(node("n1"), node("n2"), a, b, settled("n1", b), settled("n2", b))
    assert changed(plan) == [("n1", "a"), ("n2", "a")]
    assert all(change.keeps_devices for change in plan.changes)


def test_a_cpu_node_that_was_written_by_hand_is_taken_over_when_a_config_selects_its_node() -> None:
    assert changed(plan_of(node("n1"), config(), settled("n1", config(), owner=None))) == [("n1", "all")]


def test_nodes_of_a_config_that_is_not_valid_keep_their_settings() -> None:
    broken, other = config("broken", reservedCPUs="3-1"), config("other", priority=-1, mode="individual")
    plan = plan_of(node("n1"), node("n2"), broken, other, cpu_node("n1", follows="broken"))
    assert changed(plan) == [("n2", "other")]
    assert plan.removals == ()
    assert [node.name for node in plan.selected["broken"].nodes] == ["n1"]


def test_a_config_that_is_not_valid_has_a_status_also_when_no_node_follows_it() -> None:
    plan = plan_of(node("n1"), config(), settled("n1", config()), config("bad", mode="unheard of"))
    assert set(plan.selected) == {"all", "bad"}


def test_edited_settings_are_corrected_without_using_the_budget() -> None:
    edited = settled("n1", config(), settings={"mode": "individual"})
    paused = config(rollout={"paused": True})
    assert changed(plan_of(node("n1"), paused, edited)) == [("n1", "all")]
    (change,) = plan_of(node("n1"), paused, edited).changes
    assert not change.keeps_devices


def listed(change: Change, *claims: OutstandingClaim) -> tuple[OutstandingClaim, ...]:
    return spec_of(change, {"n1": claims}).outstanding


def test_outstanding_claims_are_written_with_a_change_of_devices_and_with_a_first_cpu_node() -> None:
    individual, reserved = config(mode="individual"), config(reservedCPUs="1")
    before = cpu_node("n1")
    assert listed(Change(node("n1"), individual, before), GROUPED) == (GROUPED,)
    assert listed(Change(node("n1"), individual, None), GROUPED) == (GROUPED,)
    assert listed(Change(node("n1"), reserved, before), SINGLE) == ()
    assert Change(node("n1"), reserved, before).keeps_devices


@pytest.mark.parametrize(
    ("before", "after", "keeps_devices"),
    [
        ({}, {"memory": {"enabled": True}}, False),
        ({"memory": {"enabled": True}}, {}, False),
        ({"memory": {"enabled": True}}, {"memory": {"enabled": True, "publish": "WithCPUs"}}, False),
        ({}, {"memory": {"publish": "WithCPUs"}}, True),
        ({"mode": "individual", "memory": {"enabled": True}},) * 2 + (True,),
        (
            {"mode": "individual", "memory": {"enabled": True}},
            {"mode": "individual", "memory": {"enabled": True, "publish": "WithCPUs"}},
            True,
        ),
        ({"memory": {"enabled": True}}, {"memory": {"enabled": True, "hugepages": []}}, True),
    ],
)
def test_memory_that_is_published_otherwise_or_no_more_changes_the_devices(before, after, keeps_devices) -> None:
    change = Change(node("n1"), config(**after), cpu_node("n1", settings=before))
    assert change.keeps_devices is keeps_devices


def test_a_change_that_keeps_the_devices_keeps_the_list() -> None:
    draining = cpu_node("n1", phase="Draining", settings={"mode": "individual"}, outstanding=(GROUPED,))
    change = Change(node("n1"), config(mode="individual", reservedCPUs="1"), draining)
    assert listed(change, SINGLE) == (GROUPED,)


@pytest.mark.parametrize(
    "current",
    [
        cpu_node("n1", given="r2", applied="r1", phase="Ready", settings={"mode": "individual"}),
        cpu_node("n1", given="r2", applied="r1", phase="Failed", settings={"mode": "individual"}),
        cpu_node("n1", given="r2", applied=None, phase=None, settings={"mode": "individual"}),
    ],
    ids=["away", "failed", "silent"],
)
def test_claims_are_listed_when_it_is_not_known_which_devices_are_published(current) -> None:
    change = Change(node("n1"), config(mode="individual", reservedCPUs="1"), current)
    assert listed(change, GROUPED) == (GROUPED,)


def test_a_change_that_is_undone_before_the_agent_has_seen_it_lists_no_claims() -> None:
    unseen = cpu_node("n1", given="r2", applied="r1", settings={"mode": "individual"}, outstanding=(GROUPED,))
    assert listed(Change(node("n1"), config(), unseen), GROUPED) == ()


def test_a_change_that_is_undone_while_the_node_drains_lists_all_its_claims() -> None:
    draining = cpu_node("n1", phase="Draining", settings={"mode": "individual"}, outstanding=(GROUPED,))
    assert listed(Change(node("n1"), config(), draining), GROUPED, SINGLE) == (GROUPED, SINGLE)


INDIVIDUAL = {"mode": "individual"}


def new_list(cpu_node: CpuNode, *claims: OutstandingClaim) -> tuple[OutstandingClaim, ...] | None:
    spec = with_current_claims(cpu_node, {"n1": claims})
    return None if spec is None else spec.outstanding


def test_the_list_follows_the_claims() -> None:
    draining = cpu_node("n1", phase="Draining", settings=INDIVIDUAL, outstanding=(GROUPED,))
    assert new_list(draining, GROUPED) is None
    assert new_list(draining) == ()
    assert new_list(cpu_node("n1", phase="Settling", settings=INDIVIDUAL), GROUPED) == (GROUPED,)
    assert new_list(cpu_node("n1", phase="Settling", settings=INDIVIDUAL), SINGLE) is None


def test_the_phase_that_an_agent_reports_does_not_empty_the_list() -> None:
    """The report may be older than the change: after a change and its undoing, the revision is the same again."""
    for phase in ("Ready", None):
        draining = cpu_node("n1", phase=phase, settings=INDIVIDUAL, outstanding=(GROUPED,))
        assert new_list(draining, GROUPED) is None
        assert new_list(draining) == ()


@given(specs)
def test_every_spec_fits_the_schema(spec) -> None:
    CpuNodeModel.model_validate({"spec": encode_spec(spec)}, by_alias=True, by_name=False)


def test_corrections_that_end_agents_too_reach_no_further_node() -> None:
    """Each correction reaches the nodes that are down already; these use the budget until their agents are back."""
    nodes = [node(f"n{number}") for number in range(4)]
    present = {of.name: replace(settled(of.name, config()), was_ready=True) for of in nodes}
    ready = Agent("", "u", 1, ready=True, running=True, reason="Ready", message="", since="2026-01-01T00:00:00Z")
    pods = {of.name: replace(ready, name=of.name) for of in nodes}
    for mode, cpus in (("individual", "0"), ("individual", "1"), ("grouped", "1")):
        ending = config(mode=mode, reservedCPUs=cpus, rollout={"maxUnavailable": 1})
        for _ in nodes:
            agents = Agents(pods, [DaemonSet("agent", "u", 1, len(nodes))], present, "2026-01-01T00:00:00Z")
            for change in plan_of(*nodes, ending, *present.values(), situation=Situation(NOW, agents)).changes:
                name = change.node.name
                given = cpu_node(name, given=revision(ending), applied=present[name].applied, generation=9)
                present[name] = replace(given, was_ready=change.was_ready, given_at="2026-01-01T00:00:00Z")
                pods[name] = replace(pods[name], ready=False, running=False, reason="CrashLoopBackOff")
        assert present["n0"].given == revision(ending)
        assert [name for name, pod in pods.items() if not pod.ready] == ["n0"]
