"""The status of a config, and the Events about it."""

from dataclasses import replace

import pytest
from fleets import config, cpu_node
from summaries import (
    LATER,
    MINUTES_AGO,
    NOW,
    SECONDS_AGO,
    R,
    done,
    failed,
    following,
    message,
    outcomes,
    status,
    status_and_progress,
)

from dracpu_api.objects.models import CpuDriverConfigStatus
from dracpu_operator.decide.records import Agent, CpuNode, MemoryBytes
from dracpu_operator.decide.selection import Selected
from dracpu_operator.decide.status_changes import events_about, is_same, is_urgent


def test_the_status_when_all_nodes_have_applied_the_settings() -> None:
    written = status(done("n1"), cpu_node("n2", given=R, applied=R, phase="Draining"))
    assert written["nodes"] == {"selected": 2, "applied": 2, "progressing": 0, "failed": 0, "withoutAgent": 0}
    assert written["cpus"] == {"total": 16, "reserved": 2, "exclusive": 4, "available": 10}
    assert written["observedGeneration"] == 3
    assert outcomes(written) == {
        "Accepted": ("True", "Valid"),
        "Progressing": ("False", "Complete"),
        "Available": ("True", "EnoughNodes"),
        "Degraded": ("False", "NoFailures"),
        "Conflicted": ("False", "NoConflict"),
    }


GIB = 1024**3


def test_memory_is_summed_exactly_by_kind_with_ordinary_memory_first() -> None:
    pages = MemoryBytes("hugepages_2Mi", total=GIB, reserved=0, promised=GIB // 4, available=3 * GIB // 4)
    memory = MemoryBytes("memory", total=12 * GIB + 1024, reserved=GIB, promised=2 * GIB, available=9 * GIB + 1024)
    written = status(
        replace(done("n1"), memory=(pages, memory)), replace(done("n2"), memory=(memory,)), done("n3"), nodes=4
    )
    assert written["memory"] == [
        {"kind": "memory", "total": "25165826Ki", "reserved": "2Gi", "promised": "4Gi", "available": "18874370Ki"},
        {"kind": "hugepages_2Mi", "total": "1Gi", "reserved": "0", "promised": "256Mi", "available": "768Mi"},
    ]
    CpuDriverConfigStatus.model_validate(written, by_alias=True, by_name=False)


def test_memory_is_absent_while_no_node_reports_any() -> None:
    assert "memory" not in status(done("n1"), nodes=2)


def test_a_change_of_memory_changes_the_status_and_is_not_urgent() -> None:
    memory = MemoryBytes("memory", total=GIB, reserved=0, promised=0, available=GIB)
    before = status(done("n1"))
    offering = status(replace(done("n1"), memory=(memory,)), before=before)
    assert not is_same(offering, before)
    assert not is_urgent(offering, before)
    assert not is_urgent(before, offering)
    promised = status(replace(done("n1"), memory=(memory._replace(promised=1),)), before=offering)
    assert not is_same(promised, offering)
    assert not is_urgent(promised, offering)


def test_nodes_are_counted_by_how_far_they_are() -> None:
    settling = cpu_node("n2", given=R, applied="r0", phase="Settling")
    waiting = cpu_node("n3", given="r0", applied="r0")
    written = status(done("n1"), settling, waiting, failed("n4"), nodes=5)
    assert written["nodes"] == {"selected": 5, "applied": 1, "progressing": 3, "failed": 1, "withoutAgent": 0}


@pytest.mark.parametrize(
    ("cpu_nodes", "spec", "expected"),
    [
        ([done("n1"), cpu_node("n2", given=R, applied="r0")], {}, ("True", "RollingOut")),
        ([done("n1"), cpu_node("n2", given="r0", applied="r0")], {"rollout": {"paused": True}}, ("False", "Paused")),
        (
            [failed("n1"), cpu_node("n2", given="r0", applied="r0")],
            {"rollout": {"maxUnavailable": 1}},
            ("False", "Stopped"),
        ),
        ([failed("n1"), done("n2")], {}, ("False", "Incomplete")),
        ([], {}, ("False", "NoNodes")),
        ([done("n1")], {"reservedCPUs": "x"}, ("False", "NotAccepted")),
    ],
)
def test_progressing_has_the_reason_why_the_rollout_proceeds_or_does_not(cpu_nodes, spec, expected) -> None:
    assert outcomes(status(*cpu_nodes, **spec))["Progressing"] == expected


def test_degraded_names_the_first_few_nodes_and_why() -> None:
    written = status(*(failed(f"n{number}", f"reason {number}") for number in range(5)))
    assert outcomes(written)["Degraded"] == ("True", "NodesFailed")
    assert "n0: reason 0; n1: reason 1; n2: reason 2; and 2 more" in message(written, "Degraded")


RUNTIME = ("the container runtime is not connected", MINUTES_AGO)


def troubled(name: str, **troubles: tuple[str, str]) -> CpuNode:
    return cpu_node(name, given=R, applied=R, troubles=troubles)


@pytest.mark.parametrize("kind", ["RuntimeConnected", "KubeletRegistered", "StateHealthy", "SlicesPublished"])
def test_a_node_that_cannot_serve_claims_is_named_with_its_agents_message(kind) -> None:
    written = status(done("n1"), troubled("n2", **{kind: ("it hurts", MINUTES_AGO)}))
    assert outcomes(written)["Degraded"] == ("True", "NodesInTrouble")
    assert message(written, "Degraded") == "1 node cannot serve claims: n2: it hurts"
    assert written["nodes"] == {"selected": 2, "applied": 2, "progressing": 0, "failed": 0, "withoutAgent": 0}


def test_troubles_and_failures_are_reported_together() -> None:
    both = troubled("n1", RuntimeConnected=RUNTIME, StateHealthy=("the disk is full", MINUTES_AGO))
    written = status(both, failed("n2"))
    assert outcomes(written)["Degraded"] == ("True", "NodesFailed")
    assert message(written, "Degraded") == (
        "1 node failed and kept the last good settings: n2: no CPU 400; 1 node cannot serve claims: "
        "n1: the container runtime is not connected, the disk is full"
    )


def test_only_the_first_nodes_in_trouble_are_named() -> None:
    written = status(*(troubled(f"n{number}", RuntimeConnected=RUNTIME) for number in range(5)))
    assert message(written, "Degraded").endswith("; and 2 more")
    assert message(written, "Degraded").count("not connected") == 3


def test_recent_trouble_is_not_reported_yet() -> None:
    restarting = troubled("n1", RuntimeConnected=("restarting", SECONDS_AGO))
    written, progress = status_and_progress(following(restarting), {"n1": restarting})
    assert outcomes(written)["Degraded"] == ("False", "NoFailures")
    assert outcomes(written)["Available"][0] == "True"
    assert progress.has_recent_trouble


def test_trouble_without_a_time_is_reported_at_once() -> None:
    assert outcomes(status(troubled("n1", RuntimeConnected=("away", ""))))["Degraded"][0] == "True"


def test_an_agent_that_never_reported_has_more_time() -> None:
    new = cpu_node("n1", given=R, applied=None, phase=None, created=MINUTES_AGO)
    assert outcomes(status(new))["Degraded"][0] == "False"
    old = cpu_node("n1", given=R, applied=None, phase=None, created="2025-12-31T23:50:00Z")
    assert outcomes(status(old))["Degraded"] == ("True", "NodesInTrouble")
    assert "n1: its agent has not reported yet" in message(status(old), "Degraded")


def test_nodes_in_lasting_trouble_do_not_count_as_available() -> None:
    nodes = [done("n1"), troubled("n2", RuntimeConnected=RUNTIME), troubled("n3", RuntimeConnected=RUNTIME)]
    written = status(*nodes, rollout={"maxUnavailable": 1})
    assert outcomes(written)["Available"] == ("False", "TooFewNodes")
    assert "1 of 3 nodes offer CPUs" in message(written, "Available")


@pytest.mark.parametrize("kind", ["Tidy", "PagesSharedWithKubelet", "NotCounted", "MemoryQoSOwner"])
def test_conditions_that_claims_do_not_depend_on_are_not_reported(kind) -> None:
    written = status(troubled("n1", **{kind: ("no", MINUTES_AGO)}))
    assert outcomes(written)["Degraded"][0] == "False"
    assert message(written, "Available") == "1 of 1 node offer CPUs"


NOT_SERVED = ("this agent serves CPUs alone", MINUTES_AGO)


def test_nodes_that_cannot_serve_memory_are_named_and_offer_cpus() -> None:
    written = status(done("n1"), troubled("n2", MemoryReady=NOT_SERVED), troubled("n3", MemoryReady=NOT_SERVED))
    assert outcomes(written)["Degraded"] == ("True", "MemoryNotReady")
    assert message(written, "Degraded") == (
        "2 nodes cannot serve all claims of memory: n2: this agent serves CPUs alone; n3: this agent serves CPUs alone"
    )
    assert outcomes(written)["Available"] == ("True", "EnoughNodes")
    assert message(written, "Available") == "3 of 3 nodes offer CPUs"
    assert written["nodes"] == {"selected": 3, "applied": 3, "progressing": 0, "failed": 0, "withoutAgent": 0}


def test_a_node_that_serves_no_claims_at_all_is_named_for_that_alone() -> None:
    both = troubled("n1", RuntimeConnected=RUNTIME, MemoryReady=NOT_SERVED)
    assert message(status(both), "Degraded") == "1 node cannot serve claims: n1: the container runtime is not connected"


def test_recent_trouble_with_memory_is_not_reported_yet() -> None:
    starting = troubled("n1", MemoryReady=("starting", SECONDS_AGO))
    written, progress = status_and_progress(following(starting), {"n1": starting})
    assert outcomes(written)["Degraded"] == ("False", "NoFailures")
    assert progress.has_recent_trouble


def test_nodes_that_are_changing_are_named() -> None:
    written = status(done("n1"), *(cpu_node(f"slow{number}", given=R, applied="r0") for number in range(4)))
    assert message(written, "Progressing").endswith("; changing now: slow0; slow1; slow2; and 1 more")


def test_accepted_names_what_to_correct_in_a_config_that_is_not_valid() -> None:
    written = status(done("n1"), reservedCPUs="3-1")
    assert outcomes(written)["Accepted"] == ("False", "Invalid")
    assert "spec.reservedCPUs: a range is reversed" in message(written, "Accepted")


@pytest.mark.parametrize(
    ("serving", "nodes", "limit", "expected"),
    [(4, 4, 1, "True"), (3, 4, 1, "True"), (2, 4, 1, "False"), (0, 1, 1, "False"), (0, 0, 1, "False")],
)
def test_available_means_that_no_more_than_max_unavailable_are_missing(serving, nodes, limit, expected) -> None:
    written = status(*(done(f"n{n}") for n in range(serving)), nodes=nodes, rollout={"maxUnavailable": limit})
    assert outcomes(written)["Available"][0] == expected


def test_a_conflict_names_the_winner_and_the_nodes() -> None:
    selected = Selected(config("loser"), lost={"winner": ["n1", "n2", "n3", "n4"]})
    written, _ = status_and_progress(selected, {})
    assert outcomes(written)["Conflicted"] == ("True", "SamePriority")
    assert "4 nodes (n1; n2; n3; and 1 more) lost to winner" in message(written, "Conflicted")


def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    first = status(done("n1"))
    second = status(failed("n1"), now=LATER, before=first)
    times = {condition["type"]: condition["lastTransitionTime"] for condition in second["conditions"]}
    assert times["Degraded"] == LATER
    assert times["Accepted"] == NOW


def test_statuses_are_compared_without_the_order_of_their_conditions() -> None:
    first = status(done("n1"))
    stored = {**first, "conditions": first["conditions"][::-1]}
    assert is_same(status(done("n1"), now=LATER, before=stored), stored)
    assert not is_same(status(done("n1"), nodes=2, before=stored), stored)


def test_changes_of_conditions_are_urgent_and_changes_of_counts_are_not() -> None:
    rolling = status(done("n1"), cpu_node("n2", given=R, applied="r0"), nodes=9)
    further = status(done("n1"), done("n2"), nodes=9, before=rolling)
    assert not is_urgent(further, rolling)
    assert is_urgent(status(done("n1"), done("n2"), before=rolling), rolling)
    assert is_urgent({**rolling, "observedGeneration": 4}, rolling)
    assert is_urgent(rolling, {})


def test_there_are_events_about_transitions_and_at_first_about_problems_only() -> None:
    well = status(done("n1"))
    assert events_about(well, {}) == []
    bad = status(failed("n1"), before=well)
    assert [(event.severity, event.reason) for event in events_about(bad, well)] == [
        ("Normal", "Incomplete"),
        ("Warning", "NodesFailed"),
    ]
    assert events_about(bad, bad) == []
    assert [event.severity for event in events_about(bad, {})] == ["Warning"]


def test_the_status_fits_the_schema() -> None:
    written = status(done("n1"), failed("n2"), nodes=4)
    CpuDriverConfigStatus.model_validate(written, by_alias=True, by_name=False)


# ---- nodes without a ready agent, and other nodes that cannot be changed


def agent(name: str, *, ready: bool = True, since: str = MINUTES_AGO) -> Agent:
    reason, message = ("Ready", "") if ready else ("CrashLoopBackOff", "back-off 5m0s restarting failed container")
    return Agent(name, f"pod-{name}", 1, ready=ready, running=ready, reason=reason, message=message, since=since)


def test_a_node_whose_agent_is_not_ready_for_longer_than_a_restart_offers_no_cpus_and_is_named() -> None:
    agents = {"n1": agent("n1"), "n2": agent("n2", ready=False)}
    written = status(done("n1"), done("n2"), agents=agents, rollout={"maxUnavailable": 1})
    assert outcomes(written)["Degraded"] == ("True", "AgentsNotReady")
    assert message(written, "Degraded") == (
        "no agent is ready on 1 node: n2: CrashLoopBackOff: back-off 5m0s restarting failed container"
    )
    assert message(written, "Available") == "1 of 2 nodes offer CPUs"


def test_an_agent_that_restarts_is_not_reported_at_once() -> None:
    agents = {"n1": agent("n1", ready=False, since=SECONDS_AGO)}
    written = status(done("n1"), agents=agents)
    assert outcomes(written)["Degraded"] == ("False", "NoFailures")
    assert message(written, "Available") == "1 of 1 node offer CPUs"


def test_a_rollout_ends_although_a_node_without_a_ready_agent_waits_for_its_settings() -> None:
    agents = {"n1": agent("n1"), "n2": agent("n2", ready=False)}
    written = status(done("n1"), replace(cpu_node("n2", given="r0", applied="r0"), was_ready=True), agents=agents)
    assert outcomes(written)["Progressing"] == ("False", "Incomplete")


def test_a_rollout_stops_when_settings_have_ended_as_many_agents_as_may_be_unavailable() -> None:
    agents = {"n1": agent("n1", ready=False), "n2": agent("n2")}
    ended = replace(cpu_node("n1", given=R, applied=R), was_ready=True)
    written = status(ended, cpu_node("n2", given="r0", applied="r0"), agents=agents, rollout={"maxUnavailable": 1})
    assert outcomes(written)["Progressing"] == ("False", "Stopped")
    assert "n1: CrashLoopBackOff" in message(written, "Degraded")


def test_a_ready_agent_that_does_not_answer_its_settings_is_named() -> None:
    silent = replace(cpu_node("n1", given=R, applied="r0"), given_at=MINUTES_AGO)
    written = status(silent, done("n2"), agents={"n1": agent("n1"), "n2": agent("n2")})
    assert outcomes(written)["Degraded"] == ("True", "AgentsNotReady")
    assert f"n1: since {MINUTES_AGO}" in message(written, "Degraded")
    assert outcomes(written)["Progressing"] == ("False", "Incomplete")


def test_a_node_whose_agent_ignores_a_setting_is_progressing() -> None:
    older = replace(done("n1"), ignored=("settings.turbo",))
    written = status(older, done("n2"))
    assert written["nodes"]["progressing"] == 1
    assert outcomes(written)["Progressing"] == ("True", "SettingsIgnored")
    assert "settings.turbo: upgrade the agents: n1" in message(written, "Progressing")


def test_a_node_whose_cpu_node_is_refused_is_named_with_the_api_servers_words() -> None:
    written = status(done("n1"), nodes=2, refused={"more0": "PATCH: Forbidden: admission webhook denied"})
    assert outcomes(written)["Degraded"] == ("True", "NodesRefused")
    assert "more0: PATCH: Forbidden: admission webhook denied" in message(written, "Degraded")


def test_nodes_that_leave_are_named_with_their_time() -> None:
    selected = following(done("n1"))
    selected.leaving.append(replace(done("n2"), remove_after="2026-01-01T00:00:30Z"))
    written, _ = status_and_progress(selected, {"n1": done("n1")})
    assert outcomes(written)["Degraded"] == ("True", "NodesLeaving")
    assert "n2: after 2026-01-01T00:00:30Z" in message(written, "Degraded")


def test_while_paused_nodes_that_leave_keep_their_devices() -> None:
    selected = following(done("n1"), rollout={"paused": True})
    selected.leaving.append(replace(done("n2"), remove_after="2025-01-01T00:00:30Z"))
    written, _ = status_and_progress(selected, {"n1": done("n1")})
    assert "keep their devices while rollout.paused is true: n2:" in message(written, "Degraded")


def test_a_refused_write_about_a_node_that_leaves_is_named() -> None:
    selected = following(done("n1"))
    selected.leaving.append(done("n2"))
    written, _ = status_and_progress(selected, {"n1": done("n1")}, refused={"n2": "PATCH: Forbidden: denied"})
    assert "n2: PATCH: Forbidden: denied" in message(written, "Degraded")


def test_a_message_is_not_longer_than_the_api_server_accepts() -> None:
    written = status(done("n1"), refused={"n1": "x" * 40_000})
    assert len(message(written, "Degraded")) == 32_768


def test_nodes_that_are_to_have_no_agent_have_a_count_of_their_own() -> None:
    selected = following(done("n1"))
    selected.without_agent.extend(["n2", "n3"])
    written, _ = status_and_progress(selected, {"n1": done("n1")})
    assert (written["nodes"]["selected"], written["nodes"]["withoutAgent"]) == (1, 2)
    assert outcomes(written)["Degraded"] == ("False", "NoFailures")
