"""Settings and CpuNodes of other versions: they are neither rolled anew, nor corrected, nor removed."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from fleets import config, cpu_node, node

from dracpu_api.conditions import Phase
from dracpu_api.settings import encode_spec
from dracpu_operator.decide.plan import Plan, Situation, make_plan, spec_of
from dracpu_operator.decide.progress import Moment, progress_of
from dracpu_operator.decide.records import Config, CpuNode
from dracpu_operator.decide.summary import status_of
from dracpu_operator.decide.up_to_date import is_edited, is_up_to_date

NOW = "2026-01-02T00:00:00Z"
MOMENT = Moment(NOW, trouble_before="2026-01-01T23:00:00Z", silence_before="2026-01-01T23:00:00Z")


def given(settings: dict[str, Any], *, generation: int = 3, revision: str = "r1", **changes: Any) -> CpuNode:
    """A CpuNode that was given these settings, at this generation of the config."""
    made = cpu_node("n1", given=revision, applied=revision, settings=settings)
    assert made.spec is not None
    return replace(made, spec=replace(made.spec, config_generation=generation), **changes)


def unreadable(name: str, follows: str = "all") -> CpuNode:
    return cpu_node(name, given="r1", settings={"mode": "by-weight"}, follows=follows)


def plan(configs: list[Config], *cpu_nodes: CpuNode, nodes: int = 1) -> Plan:
    return make_plan(
        {f"n{number}": node(f"n{number}") for number in range(1, nodes + 1)},
        {config.name: config for config in configs},
        {cpu_node.name: cpu_node for cpu_node in cpu_nodes},
        Situation(datetime(2026, 1, 2, tzinfo=UTC)),
    )


def conditions(made: Plan, *cpu_nodes: CpuNode) -> dict[str, dict[str, Any]]:
    by_name = {cpu_node.name: cpu_node for cpu_node in cpu_nodes}
    selected = made.selected["all"]
    status = status_of(selected, by_name, progress_of(selected, by_name, MOMENT), MOMENT)
    return {condition["type"]: condition for condition in status["conditions"]}


def test_a_default_that_a_newer_crd_adds_to_a_config_changes_no_node() -> None:
    made = plan([config(turbo=False)], given({}))
    assert (made.changes, made.removals) == ((), ())


def test_a_field_that_an_older_crd_takes_away_from_a_config_changes_no_node() -> None:
    made = plan([config()], given({"turbo": True}))
    assert (made.changes, made.removals) == ((), ())


def test_settings_to_which_another_version_gave_another_revision_are_up_to_date() -> None:
    """Also when the config has a later generation: a priority was changed since."""
    assert is_up_to_date(given({"reservedCPUs": "0", "turbo": 1}, generation=1), config(reservedCPUs="0", turbo=1))


def test_memory_that_an_operator_without_it_has_copied_as_it_was_written_is_up_to_date() -> None:
    memory = {"enabled": True, "hugepages": ["1Gi", "2Mi"], "reserved": [{"numaNode": 0, "memory": "1024Mi"}]}
    assert is_up_to_date(given({"memory": memory}, generation=1), config(memory=memory))
    assert is_up_to_date(given({"memory": {"enabled": False}}, generation=1), config())


def test_memory_that_somebody_edits_in_a_cpu_node_is_corrected() -> None:
    wanted = config(memory={"enabled": True})
    assert wanted.wanted is not None
    assert is_edited(given({"memory": {"enabled": False}}, revision=wanted.wanted.revision), wanted)


def test_a_change_keeps_fields_of_the_spec_that_a_newer_operator_has_written() -> None:
    newer = given({"mode": "individual"})
    assert newer.spec is not None
    newer = replace(newer, spec=replace(newer.spec, unknown={"drainSeconds": 7, "config": {"uid": "u"}}))
    (change,) = plan([config()], newer).changes
    written = encode_spec(spec_of(change, {}))
    assert written["drainSeconds"] == 7
    assert written["config"] == {"name": "all", "generation": 3, "uid": "u"}


def test_an_unknown_setting_that_a_user_changes_is_rolled_out() -> None:
    made = plan([config(turbo=True)], given({}, generation=2))
    assert [change.node.name for change in made.changes] == ["n1"]


def test_a_known_setting_that_differs_is_rolled_out_whatever_the_generation() -> None:
    assert not is_up_to_date(given({"mode": "individual"}), config())


def test_another_config_with_the_same_generation_is_another_config() -> None:
    settings = given({"turbo": True})
    assert settings.spec is not None
    other = replace(settings, spec=replace(settings.spec, config_name="other"))
    assert not is_up_to_date(other, config())
    assert not is_up_to_date(replace(given({}), spec=replace(settings.spec, config_name="other")), config(turbo=True))


def test_a_config_that_was_deleted_and_made_again_is_rolled_out() -> None:
    """Its generation may be the one that the deleted config had."""
    before, after = "2025-12-31T23:59:59Z", "2026-01-01T00:00:01Z"
    assert not is_up_to_date(given({}, given_at=before), config(turbo=True))
    assert is_up_to_date(given({}, given_at=after), config(turbo=True))


def test_unknown_settings_alone_are_not_corrected() -> None:
    wanted = config(turbo=True)
    assert wanted.wanted is not None
    pruned = given({}, generation=1, revision=wanted.wanted.revision)
    assert is_up_to_date(pruned, wanted)
    assert not is_edited(pruned, wanted)
    assert plan([wanted], pruned).changes == ()
    edited = given({"mode": "individual"}, revision=wanted.wanted.revision)
    assert [change.node.name for change in plan([wanted], edited).changes] == ["n1"]


@pytest.mark.parametrize(
    "configs",
    [
        [config()],
        [config(reservedCPUs="1")],
        [config(mode="by-weight")],
        [config(nodeSelector={"matchLabels": {"a": "b"}})],
        [config("other", priority=5)],
        [],
    ],
    ids=["unchanged", "changed", "cannot be decoded", "selects others", "deleted", "none"],
)
def test_a_cpu_node_that_cannot_be_decoded_is_left_as_it_is(configs: list[Config]) -> None:
    made = plan(configs, unreadable("n1"))
    assert (made.changes, made.removals) == ((), ())


def test_a_cpu_node_that_cannot_be_decoded_stays_even_when_it_names_no_config_and_its_node_is_new() -> None:
    nameless = replace(unreadable("n1"), config_name="", owner="uid-of-a-former-node")
    assert plan([config()], nameless) == plan([config()], nodes=0)


def test_frozen_nodes_count_for_the_config_that_they_name_and_are_not_given_to_another() -> None:
    made = plan([config(), config("other", priority=5)], unreadable("n1"))
    assert [node.name for node in made.selected["all"].nodes] == ["n1"]
    assert made.selected["other"].nodes == []


def test_frozen_nodes_do_not_use_the_budget() -> None:
    ready = cpu_node("n2", given="r1", applied="r1")
    made = plan([config(rollout={"maxUnavailable": 1})], unreadable("n1"), ready, nodes=2)
    assert [change.node.name for change in made.changes] == ["n2"]


def test_the_config_reports_which_nodes_are_frozen_and_why() -> None:
    frozen = unreadable("n1")
    degraded = conditions(plan([config()], frozen), frozen)["Degraded"]
    assert (degraded["status"], degraded["reason"]) == ("True", "NodesFrozen")
    assert "n1: spec.settings.mode must be one of grouped, individual" in degraded["message"]


def test_a_frozen_node_whose_agent_cannot_decode_its_settings_either_is_reported_once() -> None:
    frozen = replace(unreadable("n1"), phase=Phase.FAILED, failure="spec.settings.mode must be one of grouped")
    degraded = conditions(plan([config()], frozen), frozen)["Degraded"]
    assert degraded["reason"] == "NodesFrozen"
    assert "kept the last good settings" not in degraded["message"]


def test_a_config_that_cannot_be_decoded_keeps_frozen_nodes_and_others() -> None:
    made = plan([config(mode="by-weight")], unreadable("n1"), cpu_node("n2", given="r1"), nodes=2)
    assert {node.name for node in made.selected["all"].nodes} == {"n1", "n2"}
    assert (made.changes, made.removals) == ((), ())


def test_a_node_whose_agent_ignores_a_setting_is_progressing() -> None:
    wanted = config(turbo=True).wanted
    assert wanted is not None
    ignoring = given({"turbo": True}, revision=wanted.revision, ignored=("settings.turbo",))
    progressing = conditions(plan([config(turbo=True)], ignoring), ignoring)["Progressing"]
    assert progressing["status"] == "True"
    assert progressing["message"].startswith("0 of 1 node applied")
    assert "ignore settings.turbo: upgrade the agents: n1" in progressing["message"]
