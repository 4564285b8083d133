"""What is written, given what is known."""

from typing import Any

import pytest
from fleets import config, cpu_node, node
from hypothesis import given
from node_specs import specs

from dracpu_api.objects.models import CpuNode as CpuNodeModel
from dracpu_api.settings import OutstandingClaim, encode_spec
from dracpu_operator.decide.plan import Change, Plan, make_plan, spec_of, with_current_claims
from dracpu_operator.decide.records import Config, CpuNode, Node

GROUPED = OutstandingClaim("u1", "default", "grouped", (("cpudevnuma000", 2),))
SINGLE = OutstandingClaim("u2", "default", "single", (("cpudev003", 1),))


def plan_of(*parts: Node | Config | CpuNode) -> Plan:
    tables: list[dict[str, Any]] = [
        {one.name: one for one in parts if isinstance(one, kind)} for kind in (Node, Config, CpuNode)
    ]
    return make_plan(*tables)


def revision(one: Config) -> str:
    assert one.wanted is not None
    return one.wanted.revision


def changed(plan: Plan) -> list[tuple[str, str]]:
    return [(change.node.name, change.config.name) for change in plan.changes]


def right(name: str, one: Config, **others: Any) -> CpuNode:
    return cpu_node(name, given=revision(one), applied=revision(one), follows=one.name, **others)


def test_nothing_is_written_where_all_is_as_it_should_be() -> None:
    plan = plan_of(node("n1"), config(), right("n1", config()))
    assert (plan.changes, plan.removals) == ((), ())


def test_a_node_without_a_cpu_node_gets_one() -> None:
    assert changed(plan_of(node("n1"), node("n2"), config())) == [("n1", "all"), ("n2", "all")]


def test_a_node_that_no_config_selects_loses_its_cpu_node_but_nobody_elses() -> None:
    own, by_hand, orphan = cpu_node("n1"), cpu_node("n2", owner=None), cpu_node("n3")
    plan = plan_of(node("n1"), node("n2"), own, by_hand, orphan)
    assert plan.removals == (own,)


def test_the_cpu_node_of_a_former_node_goes_before_a_new_one_is_made() -> None:
    stale = right("n1", config(), owner="former")
    plan = plan_of(node("n1"), config(), stale)
    assert plan.removals == (stale,)
    assert plan.changes == ()


def test_a_node_that_moves_between_configs_of_equal_settings_is_told_without_budget() -> None:
    a, b = config("a", rollout={"paused": True}), config("b", priority=-1)
    plan = plan_of(node("n1"), node("n2"), a, b, right("n1", b), right("n2", b))
    assert changed(plan) == [("n1", "a"), ("n2", "a")]
    assert all(change.keeps_devices for change in plan.changes)


def test_a_cpu_node_written_by_hand_is_taken_over_by_a_config_that_selects_its_node() -> None:
    assert changed(plan_of(node("n1"), config(), right("n1", config(), owner=None))) == [("n1", "all")]


def test_the_nodes_of_a_config_that_cannot_be_understood_stay_as_they_are() -> None:
    broken, other = config("broken", reservedCPUs="3-1"), config("other", priority=-1, mode="individual")
    plan = plan_of(node("n1"), node("n2"), broken, other, cpu_node("n1", follows="broken"))
    assert changed(plan) == [("n2", "other")]
    assert plan.removals == ()
    assert [one.name for one in plan.selected["broken"].nodes] == ["n1"]


def test_settings_that_somebody_has_edited_are_put_right_without_budget() -> None:
    edited = right("n1", config(), settings={"mode": "individual"})
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
def test_settings_that_were_given_and_not_applied_do_not_tell_which_devices_there_are(current) -> None:
    change = Change(node("n1"), config(mode="individual", reservedCPUs="1"), current)
    assert listed(change, GROUPED) == (GROUPED,)


def test_what_is_changed_back_before_any_agent_saw_it_leaves_nothing_behind() -> None:
    unseen = cpu_node("n1", given="r2", applied="r1", settings={"mode": "individual"}, outstanding=(GROUPED,))
    assert listed(Change(node("n1"), config(), unseen), GROUPED) == ()


def test_what_is_changed_back_while_the_node_drains_names_all_its_claims() -> None:
    draining = cpu_node("n1", phase="Draining", settings={"mode": "individual"}, outstanding=(GROUPED,))
    assert listed(Change(node("n1"), config(), draining), GROUPED, SINGLE) == (GROUPED, SINGLE)


INDIVIDUAL = {"mode": "individual"}


def respecced(one: CpuNode, *claims: OutstandingClaim) -> tuple[OutstandingClaim, ...] | None:
    spec = with_current_claims(one, {"n1": claims})
    return None if spec is None else spec.outstanding


def test_the_list_follows_the_claims() -> None:
    draining = cpu_node("n1", phase="Draining", settings=INDIVIDUAL, outstanding=(GROUPED,))
    assert respecced(draining, GROUPED) is None
    assert respecced(draining) == ()
    assert respecced(cpu_node("n1", phase="Settling", settings=INDIVIDUAL), GROUPED) == (GROUPED,)
    assert respecced(cpu_node("n1", phase="Settling", settings=INDIVIDUAL), SINGLE) is None


def test_an_agent_that_says_ready_does_not_empty_the_list_and_neither_does_one_that_is_silent() -> None:
    """It may have said so before it heard of the change: given there and back, the revision is the former one."""
    for phase in ("Ready", None):
        one = cpu_node("n1", phase=phase, settings=INDIVIDUAL, outstanding=(GROUPED,))
        assert respecced(one, GROUPED) is None
        assert respecced(one) == ()


@given(specs)
def test_whatever_is_written_fits_the_schema(spec) -> None:
    CpuNodeModel.model_validate({"spec": encode_spec(spec)}, by_alias=True, by_name=False)
