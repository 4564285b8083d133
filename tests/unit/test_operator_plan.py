"""What is written, given what is known."""

from typing import Any

from fleets import config, cpu_node, node
from hypothesis import given
from node_specs import specs

from dracpu_api.models import CpuNode as CpuNodeModel
from dracpu_api.settings import OutstandingClaim, encode_spec
from dracpu_operator.model import Config, CpuNode, Node
from dracpu_operator.plan import Change, Plan, changing_devices, make_plan, respec, spec_of

CLAIM = OutstandingClaim("u1", "default", "c", (("cpudevnuma000", 2),))


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
    assert not any(change.changes_devices for change in plan.changes)


def test_a_cpu_node_written_by_hand_is_taken_over_by_a_config_that_selects_its_node() -> None:
    assert changed(plan_of(node("n1"), config(), right("n1", config(), owner=None))) == [("n1", "all")]


def test_the_nodes_of_a_config_that_cannot_be_understood_stay_as_they_are() -> None:
    broken, other = config("broken", reservedCPUs="3-1"), config("other", priority=-1, mode="individual")
    plan = plan_of(node("n1"), node("n2"), broken, other, cpu_node("n1", follows="broken"))
    assert changed(plan) == [("n2", "other")]
    assert plan.removals == ()
    assert [one.name for one in plan.selected["broken"].nodes] == ["n1"]


def test_outstanding_claims_are_written_with_a_change_of_devices_and_with_a_first_cpu_node() -> None:
    claims = {"n1": (CLAIM,)}
    individual, grouped = config(mode="individual"), config(reservedCPUs="1")
    before = cpu_node("n1")
    assert spec_of(Change(node("n1"), individual, before), claims).outstanding == (CLAIM,)
    assert spec_of(Change(node("n1"), individual, None), claims).outstanding == (CLAIM,)
    assert spec_of(Change(node("n1"), grouped, before), claims).outstanding == ()
    assert not Change(node("n1"), grouped, before).changes_devices


def test_a_change_that_keeps_the_devices_keeps_the_list() -> None:
    draining = cpu_node("n1", phase="Draining", settings={"mode": "individual"}, outstanding=(CLAIM,))
    change = Change(node("n1"), config(mode="individual", reservedCPUs="1"), draining)
    assert spec_of(change, {}).outstanding == (CLAIM,)


def test_the_list_is_kept_true_while_devices_change_and_emptied_when_the_node_is_ready() -> None:
    individual = {"mode": "individual"}
    draining = cpu_node("n1", phase="Draining", settings=individual, outstanding=(CLAIM,))
    assert respec(draining, {"n1": (CLAIM,)}) is None
    assert respec(draining, None) is None
    ended = respec(draining, {})
    assert ended is not None
    assert ended.outstanding == ()
    late = respec(cpu_node("n1", phase="Settling", settings=individual), {"n1": (CLAIM,)})
    assert late is not None
    assert late.outstanding == (CLAIM,)
    ready = respec(cpu_node("n1", phase="Ready", settings=individual, outstanding=(CLAIM,)), None)
    assert ready is not None
    assert ready.outstanding == ()


def test_a_node_that_has_not_heard_of_the_change_yet_is_not_done_with_it() -> None:
    waiting = cpu_node("n1", given="r2", applied="r1", settings={"mode": "individual"}, outstanding=(CLAIM,))
    assert respec(waiting, None) is None


def test_only_nodes_that_change_their_devices_have_their_claims_listed() -> None:
    followed = [
        cpu_node("settling", phase="Settling"),
        cpu_node("draining", phase="Draining", outstanding=(CLAIM,)),
    ]
    others = [
        cpu_node("ready"),
        cpu_node("held", phase="Draining"),
        cpu_node("by-hand", owner=None, phase="Settling"),
    ]
    assert changing_devices([*followed, *others]) == followed


@given(specs)
def test_whatever_is_written_fits_the_schema(spec) -> None:
    CpuNodeModel.model_validate({"spec": encode_spec(spec)}, by_alias=True, by_name=False)
