from dataclasses import replace

from nodes import NODE, OLD_RUNTIME, container, machine, node, outstanding, request, share, spec, uid, well

from dracpu_agent.claims.cpu_claim import CpuClaim
from dracpu_agent.claims.record import freeze
from dracpu_agent.cli.state import table
from dracpu_agent.cluster.slices.controller import SlicesState
from dracpu_agent.kubelet.registration import RegistrationStatus
from dracpu_agent.node import NodeState
from dracpu_agent.report.conditions import (
    Condition,
    conditions_of,
    unready,
    unregistered,
    worst_registration,
    worst_slices,
)
from dracpu_agent.report.device_health import health_of
from dracpu_agent.report.document import document_of, document_of_checkpoint, gauges_of
from dracpu_agent.report.node_status import status_of
from dracpu_api.conditions import NodeCondition, NodeReason
from dracpu_api.settings import GroupBy, Mode

NUMA1 = "cpudevnuma001"


def phase(state, standing):
    return status_of(state, conditions_of(state, standing), "1")["phase"]


def test_the_phase_shows_how_far_the_node_has_come():
    state = node()
    waiting = SlicesState(False, 0, 0, 0, "nothing is published yet", "Waiting")
    assert phase(NodeState(NODE, machine()), well(slices=waiting)) == "Pending"
    assert phase(state, well(slices=waiting)) == "Pending"
    assert phase(state, well()) == "Ready"
    assert phase(state, well(config=Condition(NodeCondition.CONFIG_APPLIED, False, NodeReason.REFUSED))) == "Failed"
    state.claims.grant(request(1, share(NUMA1, 2)))
    state.configure(spec(Mode.INDIVIDUAL))
    assert phase(state, well()) == "Draining"
    state.configure(spec(settle_seconds=10))
    assert phase(state, well()) == "Settling"


def test_a_condition_names_the_claims_that_a_node_still_waits_for():
    state = node()
    state.configure(spec(Mode.INDIVIDUAL, outstanding=[outstanding(number, (NUMA1, 1)) for number in range(1, 5)]))
    (config, *_) = conditions_of(state, well())
    assert (config.true, config.reason) == (True, "Draining")
    assert "default/claim-1, default/claim-2, default/claim-3 and 1 more" in config.message


def test_the_applied_revision_is_shown_when_there_is_one():
    state = node()
    assert "appliedRevision" not in status_of(state, conditions_of(state, well()), "1")
    assert status_of(state, conditions_of(state, well()), "1", "r1")["appliedRevision"] == "r1"


def test_the_status_shows_every_cpu_once_with_its_claim():
    state = node()
    state.claims.grant(request(1, share(NUMA1, 2)))
    shown = status_of(state, conditions_of(state, well()), "1.2.3")
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
        state.claims.grant(request(number, share(device, 1)))
    shown = status_of(state, conditions_of(state, well()), "1")
    assert (len(shown["claims"]), shown["claimsTotal"]) == (256, 260)


def test_the_static_cpu_manager_is_named_with_what_to_do():
    found = next(
        c for c in conditions_of(node(), well(static_cpu_manager=True)) if c.type == NodeCondition.KUBELET_REGISTERED
    )
    assert (found.true, found.reason) == (False, "StaticCPUManager")
    assert "cpuManagerPolicy" in found.message


def test_a_cgroup_without_the_cpuset_controller_is_named_instead_of_the_runtime():
    state = node()
    state.containers.disconnected()  # the agent does not connect
    standing = well(without_cpuset="/kubepods.slice")
    found = next(c for c in conditions_of(state, standing) if c.type == NodeCondition.RUNTIME_CONNECTED)
    assert (found.true, found.reason) == (False, "CpusetNotDelegated")
    assert "/kubepods.slice lacks the cpuset controller" in found.message
    assert unready(state, standing) == [found.message]


def test_the_kubelet_condition_shows_its_last_answer():
    def kubelet(registration):
        standing = well(registration=registration)
        found = next(c for c in conditions_of(node(), standing) if c.type == NodeCondition.KUBELET_REGISTERED)
        return found.true, found.reason, unregistered(standing)

    assert kubelet(RegistrationStatus(True)) == (True, "Registered", [])
    waiting = "the kubelet has not registered the driver yet"
    assert kubelet(None) == (False, "Waiting", [waiting])
    assert kubelet(RegistrationStatus(False, "no such version")) == (False, "Refused", ["no such version"])


def test_conditions_say_what_is_wrong_with_the_runtime_and_the_checkpoint():
    old = node(runtime=OLD_RUNTIME)
    by_type = {c.type: c for c in conditions_of(old, well())}
    assert by_type[NodeCondition.RUNTIME_CONNECTED].reason == "ConnectedWithoutUpdates"
    broken = well(checkpoint_problem="No space left on device")
    by_type = {c.type: c for c in conditions_of(old, broken)}
    assert not by_type[NodeCondition.STATE_HEALTHY].true
    assert "No space left on device" in by_type[NodeCondition.STATE_HEALTHY].message
    rebuilt = well(checkpoint_damage="checksum")
    assert {c.type: c for c in conditions_of(old, rebuilt)}[NodeCondition.STATE_HEALTHY].reason == "Rebuilt"


def test_claims_that_keep_cpus_reserved_over_them_are_named():
    state = node(reserved="0")
    state.claims.grant(request(1, share("cpudevnuma000", 1)))
    held = str(state.claims[uid(1)].cpus)
    state.configure(spec(reserved=f"0,{held}"))
    condition = conditions_of(state, well())[0]
    assert (condition.true, condition.reason) == (True, "ReservedCPUsHeld")
    assert f"default/claim-1 ({held})" in condition.message
    state.claims.release(uid(1))
    assert conditions_of(state, well())[0].reason == "Applied"


def test_cpus_that_no_group_contains_are_named():
    cpus = tuple(replace(cpu, l3=-1) if cpu.id >= 6 else cpu for cpu in machine().cpus)
    (config, *_) = conditions_of(node(replace(machine(), cpus=cpus), group_by=GroupBy.L3_CACHE), well())
    assert (config.true, config.reason) == (True, "CPUsNotGrouped")
    assert "CPUs 6-7" in config.message


def test_the_state_prints_as_a_table_for_a_running_and_a_stopped_agent():
    state = node()
    state.claims.grant(request(1, share(NUMA1, 2)))
    state.containers.create(container("c", f"claim-{uid(1)}"))
    text = table(document_of(state, conditions_of(state, well())))
    assert "exclusive  4-5" in text
    assert "default/claim-1" in text
    assert "of them 1 on claims" in text
    assert "default/claim-1" in table(document_of_checkpoint(state.checkpoint()))


def test_an_agent_of_cpus_alone_names_claims_of_memory_with_what_to_do():
    state = node()
    grant = {"kind": "memory", "numaNode": 0, "memoryKind": "memory", "bytes": 1024}
    record = {"namespace": "default", "name": "claim-1", "grants": [grant]}
    state.adopt(freeze(CpuClaim, uid(1), record, "a grant has no CPUs"))
    (health,) = [item for item in conditions_of(state, well()) if item.type == NodeCondition.STATE_HEALTHY]
    assert (health.true, health.reason) == (True, "ClaimsFrozen")
    assert "install the chart with agent.memory.enabled=true" in health.message
    assert "default/claim-1" in health.message
    assert "delete the pods" not in health.message


def test_frozen_claims_are_named_with_what_to_do():
    state = node()
    state.adopt(
        freeze(CpuClaim, uid(1), {"namespace": "default", "name": "claim-1", "cpus": "4-5"}, "a grant has no CPUs")
    )
    state.adopt(freeze(CpuClaim, uid(2), None, "its CDI file is empty"))
    state.adopt(freeze(CpuClaim, "#3", 7, "it is a number"))
    conditions = conditions_of(state, well())
    (health,) = [condition for condition in conditions if condition.type == NodeCondition.STATE_HEALTHY]
    assert (health.true, health.reason) == (True, "ClaimsFrozen")
    assert f"default/claim-1 (CPUs 4-5), UID {uid(2)} (CPUs unknown), UID #3 (CPUs unknown)" in health.message
    assert "install the newer version again, or delete the pods that use them" in health.message
    assert phase(state, well()) == "Ready"
    assert [shown["state"] for shown in document_of(state, conditions)["claims"]] == ["frozen"] * 3
    assert {health.device for health in health_of(state, state.claims)} == {"cpudevnuma000", NUMA1}


def test_the_gauges_count_the_cpus_that_can_still_be_granted():
    state = node()
    state.claims.grant(request(1, share(NUMA1, 2)))
    state.containers.create(container("c", f"claim-{uid(1)}"))
    state.containers.created("c")
    state.claims.release(uid(1))
    gauges = gauges_of(state)
    assert (gauges.allocated, gauges.available, gauges.reserved) == (2, 4, 2)


def test_slices_of_one_driver_that_are_not_published_are_shown_before_dropped_fields_of_another():
    published = SlicesState(True, 1, 2, 1, None, "Published")
    dropped = replace(published, error="the gate is off", reason="FieldsDropped")
    waiting = SlicesState(False, 0, 0, 0, "nothing is published yet", "Waiting")
    assert worst_slices({"dra.cpu": published}) is published
    assert worst_slices({"dra.cpu": dropped, "dra.memory": published}) is dropped
    shown = worst_slices({"dra.cpu": dropped, "dra.memory": waiting})
    assert (shown.published, shown.error) == (False, "driver dra.memory: nothing is published yet")


def test_a_refused_registration_is_shown_before_a_missing_one():
    done, refused = RegistrationStatus(True), RegistrationStatus(False, "no common version")
    assert worst_registration({"dra.cpu": done, "dra.memory": None}) is None
    assert worst_registration({"dra.cpu": done, "dra.memory": done}) == done
    assert worst_registration({"dra.cpu": refused}) == refused
    shown = worst_registration({"dra.cpu": refused, "dra.memory": None})
    assert shown == RegistrationStatus(False, "driver dra.cpu: no common version")
