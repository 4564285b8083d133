"""CPUs outside of the cpuset of the cgroup of all pods are neither offered nor shared, and come back with it."""

from dataclasses import replace

import pytest
from nodes import machine, node, request, share, spec, well

from dracpu_agent.errors import ClaimError
from dracpu_agent.report.conditions import conditions_of
from dracpu_agent.topology.topology import TopologyError
from dracpu_agent.topology.usable import outdated, restricted
from dracpu_api.conditions import NodeCondition
from dracpu_api.cpuset import EMPTY, CpuSet
from dracpu_api.settings import Mode

NUMA0, NUMA1 = "cpudevnuma000", "cpudevnuma001"


def cpus(text):
    return CpuSet.parse(text)


def state_condition(state):
    return next(found for found in conditions_of(state, well()) if found.type == NodeCondition.STATE_HEALTHY)


@pytest.mark.parametrize("pods", [None, cpus("0-7"), cpus("0-63")])
def test_a_machine_that_pods_can_use_completely_stays_as_it_is(pods):
    assert restricted(machine(), pods) == machine()


def test_a_core_that_pods_can_use_in_part_is_named_by_its_lowest_usable_thread():
    usable = restricted(
        replace(machine(), pcie_roots={"pci0000:00": cpus("0-3"), "pci0000:01": cpus("4")}), cpus("1-3,5")
    )
    assert (usable.online, usable.forbidden) == (cpus("1-3,5"), cpus("0,4,6-7"))
    assert usable.cores == {1: cpus("1"), 2: cpus("2-3"), 5: cpus("5")}
    assert usable.pcie_roots == {"pci0000:00": cpus("1-3")}
    assert usable.present == cpus("0-7")


def test_pods_that_can_use_no_cpu_are_an_error():
    with pytest.raises(TopologyError, match=r"cpuset 8-9, which has none of the CPUs 0-7"):
        restricted(machine(), cpus("8-9"))


def test_the_machine_is_outdated_when_pods_can_use_other_cpus():
    known = restricted(replace(machine(), incomplete={8: "firmware"}), cpus("0-5,8"))
    assert not outdated(known, cpus("0-8"), cpus("0-5,8"))
    assert not outdated(known, cpus("0-8"), cpus("0-5")), "a CPU that is not described is not offered anyway"
    assert outdated(known, cpus("0-8"), cpus("0-6"))
    assert outdated(known, cpus("0-8"), None)
    assert outdated(known, cpus("0-7"), cpus("0-5"))
    assert outdated(machine(), cpus("0-7"), cpus("0-5"))
    assert not outdated(machine(), cpus("0-7"), None)


def test_forbidden_cpus_are_neither_offered_nor_shared():
    state = node(topology=restricted(machine(), cpus("0-5")), reserved="0")
    assert {device.name: device.capacity for device in state.devices()}.keys() == {NUMA0, NUMA1}
    assert state.division.shared == cpus("1-5")
    assert state.claims.grant(request(1, share(NUMA1, 2))).claim.cpus == cpus("4-5")
    with pytest.raises(ClaimError):
        state.claims.grant(request(2, share(NUMA1, 1)))


def test_forbidden_cpus_are_not_published_in_individual_mode():
    state = node(topology=restricted(machine(), cpus("0-5")), reserved="0", mode=Mode.INDIVIDUAL)
    assert {device.name for device in state.devices()} == {f"cpudev{cpu:03d}" for cpu in range(1, 6)}


def test_where_all_reserved_cpus_are_forbidden_a_usable_core_is_withheld_for_containers_without_claims():
    state = node(topology=restricted(machine(), cpus("2-7")), reserved="0-1")
    assert state.cpus.reserved == cpus("0-3")
    state.configure(spec(reserved="0-2"))
    assert state.cpus.reserved == cpus("0-2")


def test_a_claim_keeps_cpus_that_are_forbidden_later_and_is_named():
    state = node(reserved="0")
    state.claims.grant(request(1, share(NUMA1, 2)))
    state.replug(restricted(machine(), cpus("0-4")))
    said = state_condition(state)
    assert (said.true, said.reason) == (True, "CPUsOffline")
    assert "default/claim-1 (5)" in said.message
    assert "CPUs 5-7 are not offered" in said.message
    state.replug(machine())
    assert state_condition(state).reason == "Healthy"
    assert state.division.exclusive == cpus("4-5")


def test_the_condition_names_forbidden_cpus():
    said = state_condition(node(topology=restricted(machine(), cpus("0-5"))))
    assert (said.true, said.reason) == (True, "CPUsForbidden")
    assert "CPUs 6-7 are not offered" in said.message
    assert restricted(machine(), None).forbidden == EMPTY
