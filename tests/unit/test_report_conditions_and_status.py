from dataclasses import replace

from nodes import NODE, OLD_RUNTIME, container, machine, node, outstanding, request, share, spec, uid

from dracpu_agent.node import NodeState
from dracpu_agent.report import node_status as status
from dracpu_agent.report.conditions import PATIENCE_SECONDS, Standing
from dracpu_agent.report.document import document_of, document_of_checkpoint, gauges_of, table_of
from dracpu_agent.report.node_status import Condition, status_of
from dracpu_api.settings import Mode

NUMA1 = "cpudevnuma001"


def standing():
    """All is well."""
    return Standing(
        config=Condition(status.CONFIG_APPLIED, True, "Applied"),
        kubelet=Condition(status.KUBELET_REGISTERED, True, "Registered"),
        slices=Condition(status.SLICES_PUBLISHED, True, "Published"),
    )


def phase(state, well):
    return status_of(state, well.conditions(state), "1")["phase"]


def test_the_phase_tells_where_a_node_is_on_its_way():
    state, well = node(), standing()
    assert phase(NodeState(NODE, machine()), Standing()) == "Pending"
    assert phase(state, replace(well, slices=Standing().slices)) == "Pending"
    assert phase(state, well) == "Ready"
    assert phase(state, replace(well, config=Condition(status.CONFIG_APPLIED, False, status.REFUSED))) == "Failed"
    state.reserve(request(1, share(NUMA1, 2)))
    state.configure(spec(Mode.INDIVIDUAL))
    assert phase(state, well) == "Draining"
    state.configure(spec(settle_seconds=10))
    assert phase(state, well) == "Settling"


def test_a_node_has_settled_when_its_former_devices_were_closed_for_settle_seconds():
    state, well = node(), standing()
    assert not well.has_settled(state, 0)
    state.configure(spec(Mode.INDIVIDUAL, settle_seconds=10))
    assert not well.has_settled(state, 100)
    assert not well.has_settled(state, 109.9)
    assert well.has_settled(state, 110)
    state.settled()
    state.configure(spec(settle_seconds=10))
    well.has_settled(node(), 111)
    assert not well.has_settled(state, 200)


def test_a_condition_names_the_claims_that_a_node_still_waits_for():
    state, well = node(), standing()
    state.configure(spec(Mode.INDIVIDUAL, outstanding=[outstanding(number, (NUMA1, 1)) for number in range(1, 5)]))
    (config, *_) = well.conditions(state)
    assert (config.true, config.reason) == (True, "Draining")
    assert "default/claim-1, default/claim-2, default/claim-3 and 1 more" in config.message


def test_the_applied_revision_is_shown_when_there_is_one():
    state, well = node(), standing()
    assert "appliedRevision" not in status_of(state, well.conditions(state), "1")
    assert status_of(state, well.conditions(state), "1", "r1")["appliedRevision"] == "r1"


def test_the_status_shows_every_cpu_once_and_who_holds_it():
    state = node()
    state.reserve(request(1, share(NUMA1, 2)))
    shown = status_of(state, standing().conditions(state), "1.2.3")
    assert {name: shown["cpus"][name] for name in ("reserved", "exclusive", "shared")} == {
        "reserved": "0-1",
        "exclusive": "4-5",
        "shared": "2-3,6-7",
    }
    assert shown["cpus"]["counts"] == {"reserved": 2, "exclusive": 2, "shared": 4}
    assert shown["claims"] == [{"namespace": "default", "name": "claim-1", "uid": uid(1), "cpus": "4-5"}]
    assert shown["topology"]["counts"] == {"sockets": 2, "numaNodes": 2, "l3Groups": 2, "cores": 4, "cpus": 8}
    assert shown["agentVersion"] == "1.2.3"


def test_at_most_256_claims_are_shown_and_all_are_counted():
    state = node(topology=machine(sockets=2, cores=150, threads=1), mode=Mode.GROUPED)
    for number in range(260):
        device = "cpudevnuma000" if number < 130 else NUMA1
        state.reserve(request(number, share(device, 1)))
    shown = status_of(state, standing().conditions(state), "1")
    assert (len(shown["claims"]), shown["claimsTotal"]) == (256, 260)


def test_pods_are_kept_away_only_after_the_runtime_was_away_for_a_while():
    state, well = node(), standing()
    assert well.taints(state, 100.0) == ()
    state.disconnected()
    assert well.taints(state, 100.0) == ()
    assert well.taints(state, 100.0 + PATIENCE_SECONDS - 1) == ()
    (taint,) = well.taints(state, 100.0 + PATIENCE_SECONDS)
    assert (taint.key, taint.effect) == ("dra.cpu/not-ready", "NoSchedule")
    state.synchronize([])
    assert well.taints(state, 200.0) == ()
    state.disconnected()
    assert well.taints(state, 200.0) == (), "patience begins anew"


def test_the_static_cpu_manager_keeps_pods_away_at_once_and_says_what_to_do():
    state, well = node(), replace(standing(), static_cpu_manager=True)
    assert well.taints(state, 0.0)
    condition = next(c for c in well.conditions(state) if c.type == status.KUBELET_REGISTERED)
    assert (condition.true, condition.reason) == (False, "StaticCPUManager")
    assert "cpuManagerPolicy" in condition.message


def test_conditions_say_what_is_wrong_with_the_runtime_and_the_checkpoint():
    old = node(runtime=OLD_RUNTIME)
    by_type = {c.type: c for c in standing().conditions(old)}
    assert by_type[status.RUNTIME_CONNECTED].reason == "ConnectedWithoutUpdates"
    broken = replace(standing(), state_problem="No space left on device")
    by_type = {c.type: c for c in broken.conditions(old)}
    assert not by_type[status.STATE_HEALTHY].true
    assert "No space left on device" in by_type[status.STATE_HEALTHY].message
    rebuilt = replace(standing(), state_damage="checksum")
    assert {c.type: c for c in rebuilt.conditions(old)}[status.STATE_HEALTHY].reason == "Rebuilt"


def test_claims_that_keep_cpus_reserved_over_them_are_named():
    state = node(reserved="0")
    state.reserve(request(1, share("cpudevnuma000", 1)))
    held = str(state.claims[uid(1)].cpus)
    state.configure(spec(reserved=f"0,{held}"))
    condition = standing().conditions(state)[0]
    assert (condition.true, condition.reason) == (True, "ReservedCPUsHeld")
    assert f"default/claim-1 ({held})" in condition.message
    state.release(uid(1))
    assert standing().conditions(state)[0].reason == "Applied"


def test_the_state_is_readable_as_a_table_running_or_not():
    state = node()
    state.reserve(request(1, share(NUMA1, 2)))
    state.create(container("c", f"claim-{uid(1)}"))
    text = table_of(document_of(state, standing()))
    assert "exclusive  4-5" in text
    assert "default/claim-1" in text
    assert "of them 1 on claims" in text
    assert "default/claim-1" in table_of(document_of_checkpoint(state.checkpoint()))


def test_the_gauges_count_what_can_still_be_given():
    state = node()
    state.reserve(request(1, share(NUMA1, 2)))
    state.create(container("c", f"claim-{uid(1)}"))
    state.created("c")
    state.release(uid(1))
    gauges = gauges_of(state)
    assert (gauges.allocated, gauges.available, gauges.reserved, gauges.claims, gauges.lingering) == (2, 4, 2, 1, 1)
