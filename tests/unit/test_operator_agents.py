"""Which nodes are to have an agent, what is reported about it, and when."""

from dataclasses import replace
from datetime import UTC, datetime

from fleets import config, cpu_node, node

from dracpu_operator.decide.agent_reports import report_of
from dracpu_operator.decide.agents import UNKNOWN, Agents
from dracpu_operator.decide.plan import Plan, Situation, make_plan
from dracpu_operator.decide.records import Agent, CpuNode, DaemonSet

NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"
NODES = {name: node(name) for name in ("n1", "n2", "n3")}
CONFIGS = {"all": config()}


def pod(name: str, *, ready: bool = True, reason: str = "Ready", since: str = NOW) -> Agent:
    return Agent(name, f"pod-{name}", 1, ready=ready, running=ready, reason=reason, message="words", since=since)


def daemon_set(desired: int | None) -> list[DaemonSet]:
    return [DaemonSet("dracpu-agent", "uid", 1, desired)]


def plan(agents: Agents, **cpu_nodes: CpuNode) -> Plan:
    return make_plan(NODES, CONFIGS, cpu_nodes, Situation(datetime(2026, 1, 1, tzinfo=UTC), agents))


def created(plan: Plan) -> list[str]:
    return [change.node.name for change in plan.changes]


def test_every_node_gets_a_cpu_node_when_nothing_is_known_about_agents() -> None:
    assert created(plan(UNKNOWN)) == ["n1", "n2", "n3"]


def test_a_node_on_which_the_daemon_set_wants_no_agent_is_not_selected_and_gets_no_cpu_node() -> None:
    decided = plan(Agents({"n1": pod("n1")}, daemon_set(1), {}, NOW))
    assert created(decided) == ["n1"]
    assert [node.name for node in decided.selected["all"].nodes] == ["n1"]
    assert decided.selected["all"].without_agent == ["n2", "n3"]


def test_a_node_gets_its_cpu_node_once_its_pod_is_there() -> None:
    assert created(plan(Agents({}, daemon_set(3), {}, NOW))) == []
    assert created(plan(Agents({}, daemon_set(None), {}, NOW))) == []
    assert created(plan(Agents({"n2": pod("n2", ready=False)}, daemon_set(3), {}, NOW))) == ["n2"]


def test_no_cpu_node_is_removed_because_no_agent_is_seen() -> None:
    known = {name: replace(cpu_node(name), reported_agent={"ready": True, "reason": "Ready"}) for name in NODES}
    for agents in (
        Agents({}, (), known, NOW),
        Agents({}, daemon_set(0), known, NOW),
        Agents({}, daemon_set(3), known, NOW),
    ):
        decided = plan(agents, **known)
        assert (decided.removals, decided.marks) == ((), {})


def test_while_the_daemon_set_is_missing_nodes_keep_their_state_and_no_other_node_gets_a_cpu_node() -> None:
    known = {"n1": replace(cpu_node("n1"), reported_agent={"ready": True, "reason": "Ready"})}
    agents = Agents({}, (), known, NOW)
    assert plan(agents, **known).selected["all"].without_agent == ["n2", "n3"]
    missing = agents.of("n1")
    assert missing is not None
    assert (missing.ready, missing.reason) == (False, "NoDaemonSet")


def test_a_pod_that_is_being_replaced_changes_nothing_for_nodes_that_are_to_have_no_agent() -> None:
    outside = replace(cpu_node("n2"), reported_agent={"ready": False, "reason": "NotWanted", "since": NOW})
    known = {"n1": cpu_node("n1"), "n2": outside}
    agents = Agents({"n3": pod("n3")}, daemon_set(2), known, NOW)  # the pod of n1 is about to be created
    assert (agents.is_wanted("n1"), agents.is_wanted("n2")) == (True, False)


def test_a_missing_pod_is_dated_from_when_it_was_first_found_missing() -> None:
    since: dict[str, str] = {}
    known = {"n1": cpu_node("n1")}
    for now in (NOW, LATER):
        missing = Agents({}, daemon_set(1), known, now, since).of("n1")
        assert missing is not None
        assert missing.since == NOW
    Agents({"n1": pod("n1")}, daemon_set(1), known, LATER, since)
    again = Agents({}, daemon_set(1), known, LATER, since).of("n1")
    assert again is not None
    assert again.since == LATER


# ---- status.agent


REPORTED = replace(cpu_node("n1"), reported_agent={"ready": True, "reason": "Ready", "message": "", "since": NOW})


def test_the_first_report_is_due_at_once_for_a_ready_agent_and_makes_no_event() -> None:
    report = report_of(cpu_node("n1"), pod("n1"))
    assert report is not None
    assert report.agent == {"ready": True, "reason": "Ready", "message": "words", "since": NOW}
    assert report.due == datetime(2026, 1, 1, tzinfo=UTC)
    assert report.event is None


def test_an_agent_that_is_not_ready_is_reported_when_that_lasts_longer_than_a_restart_with_an_event() -> None:
    report = report_of(REPORTED, pod("n1", ready=False, reason="CrashLoopBackOff"))
    assert report is not None
    assert report.due == datetime(2026, 1, 1, 0, 0, 10, tzinfo=UTC)
    assert report.event is not None
    assert (report.event.severity, report.event.reason) == ("Warning", "AgentNotReady")
    assert "CrashLoopBackOff: words" in report.event.note


def test_nothing_is_reported_while_the_report_is_right() -> None:
    assert report_of(REPORTED, pod("n1", since=LATER)) is None
    assert report_of(cpu_node("n1"), None) is None


def test_a_report_is_removed_at_once_when_nothing_is_known_about_agents_any_more() -> None:
    report = report_of(REPORTED, None)
    assert report is not None
    assert (report.agent, report.event) == (None, None)
    assert report.due < datetime.fromisoformat(NOW)


def test_an_agent_that_is_ready_again_makes_an_event() -> None:
    down = replace(REPORTED, reported_agent={"ready": False, "reason": "NoPod"})
    report = report_of(down, pod("n1"))
    assert report is not None
    assert report.event is not None
    assert (report.event.severity, report.event.reason) == ("Normal", "AgentReady")
    assert report.due == datetime(2026, 1, 1, 0, 0, 30, tzinfo=UTC)


def test_a_report_whose_time_cannot_be_used_is_replaced() -> None:
    """Somebody else has written it."""
    report = report_of(replace(REPORTED, reported_agent={**REPORTED.reported_agent, "since": ""}), pod("n1"))
    assert report is not None
    assert report.agent == {"ready": True, "reason": "Ready", "message": "words", "since": NOW}


def test_a_missing_pod_is_missing_since_now_when_a_later_time_was_reported() -> None:
    reported = replace(REPORTED, reported_agent={"ready": False, "reason": "NoPod", "since": "2999-01-01T00:00:00Z"})
    absent = Agents({}, daemon_set(1), {"n1": reported}, NOW).of("n1")
    assert absent is not None
    assert absent.since == NOW


def test_an_agent_that_ends_soon_after_each_start_is_down_since_its_first_end() -> None:
    down = replace(REPORTED, reported_agent={"ready": False, "reason": "Error", "since": NOW})
    ended = Agents({"n1": pod("n1", ready=False, since=LATER)}, daemon_set(1), {"n1": down}, LATER).of("n1")
    assert ended is not None
    assert ended.since == NOW
    started = Agents({"n1": pod("n1", since=LATER)}, daemon_set(1), {"n1": down}, LATER).of("n1")
    assert started is not None
    assert started.since == LATER
