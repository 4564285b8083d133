"""The CpuNode's conditions name CPUs that are offline, unreadable or not described."""

from dataclasses import replace

from nodes import machine, node, request, share, well, without

from dracpu_agent.node import NodeState
from dracpu_agent.report.conditions import Condition, Standing, conditions_of
from dracpu_agent.report.node_status import TopologyDescription, status_of, topology_of
from dracpu_api.conditions import NodeCondition
from dracpu_api.cpuset import CpuSet

NUMA1 = "cpudevnuma001"


def condition(state: NodeState, standing: Standing) -> Condition:
    return next(found for found in conditions_of(state, standing) if found.type == NodeCondition.STATE_HEALTHY)


def test_claims_that_miss_cpus_are_named_and_the_state_stays_healthy():
    state, standing = node(topology=machine(cores=4)), well()
    for number in range(1, 5):
        state.claims.grant(request(number, share(NUMA1, 2)))
    assert condition(state, standing).reason == "Healthy"
    state.replug(without(machine(cores=4), "8,10,12-14"))
    said = condition(state, standing)
    assert (said.true, said.reason) == (True, "CPUsOffline")
    assert "default/claim-1 (8), default/claim-2 (10), default/claim-3 (12-13) and 1 more" in said.message
    state.replug(machine(cores=4))
    assert condition(state, standing).reason == "Healthy"


def test_the_state_condition_lists_all_remarks_the_worst_first():
    state = node(topology=replace(machine(), incomplete={9: "firmware"}))
    standing = well(machine_problem="/sys is gone", checkpoint_damage="its checksum does not match")
    said = condition(state, standing)
    assert (said.true, said.reason) == (True, "MachineUnreadable")
    for part in ("/sys is gone", "its checksum does not match", "CPU 9 (firmware)"):
        assert part in said.message
    said = condition(state, replace(standing, checkpoint_problem="disk full"))
    assert (said.true, said.reason) == (False, "WriteFailed")
    assert condition(state, well()).reason == "CPUsIncomplete"


def test_cpus_that_the_kernel_does_not_balance_are_named_if_containers_without_claims_may_run_there():
    isolated = replace(machine(), isolated=CpuSet.parse("2-7"))
    said = condition(node(topology=isolated, reserved="0-1"), well())
    assert (said.true, said.reason) == (True, "CPUsIsolated")
    assert "CPUs 2-7 (isolcpus)" in said.message
    assert "CPUs 6-7 (isolcpus)" in condition(node(topology=isolated, reserved="2-5"), well()).message
    assert condition(node(topology=isolated, reserved="2-7"), well()).reason == "Healthy"


def test_the_message_about_isolated_cpus_does_not_change_with_each_claim():
    state = node(topology=replace(machine(), isolated=CpuSet.parse("2-7")), reserved="0-1")
    before = condition(state, well())
    state.claims.grant(request(1, share(NUMA1, 2)))
    assert condition(state, well()) == before


def test_topology_and_counts_follow_the_machine():
    state, standing = node(), well()
    state.replug(without(machine(), "4-7"))
    shown = status_of(state, conditions_of(state, standing), "1")["topology"]
    assert shown["counts"] == {"sockets": 1, "numaNodes": 1, "l3Groups": 1, "cores": 2, "cpus": 4}
    assert [row["cores"] for row in shown["layout"]] == ["0-1 2-3"]


def test_the_description_of_the_topology_follows_the_machine():
    state = node()
    description = TopologyDescription(state)
    assert description.current() == topology_of(machine())
    state.replug(without(machine(), "4-7"))
    assert description.current()["counts"]["cpus"] == 4
    state.replug(machine())
    assert description.current() == topology_of(machine())
