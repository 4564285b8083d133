"""The CPUs that a claim gets depend on the node's settings, its own parameters, and the CPUs that others hold."""

from typing import Any

import pytest
from machine_answers import topology_of
from nodes import NODE, claim_object, node, ref, share, whole

from dracpu_agent.allocation.errors import CpusetInUseError, NotEnoughCoresError
from dracpu_agent.claims.cpu_asks import CpuRequest, read_cpu_request
from dracpu_agent.node import NodeState
from dracpu_agent.topology.topology import Topology
from dracpu_api.cpuset import CpuSet
from dracpu_api.settings import Allocation, GroupBy, Mode, Strategy
from dracpu_sandbox.machines.presets import EPYC

MACHINE = "cpudevmachine"
EPYC_TOPOLOGY: Topology = topology_of(EPYC)  # 4 NUMA nodes of 2 L3 groups of 4 cores; CPU n and n+32 are one core


def claim(number: int, *results: dict[str, Any], **parameters: object) -> CpuRequest:
    """A claim whose parameters apply to all its requests."""
    opaque = {"apiVersion": "dra.cpu/v1alpha1", "kind": "CpuClaimParameters", **parameters}
    config = [{"source": "FromClaim", "requests": [], "opaque": {"driver": "dra.cpu", "parameters": opaque}}]
    return read_cpu_request(ref(number), claim_object(number, results, config if parameters else ()), NODE)


def cpus(state: NodeState, request: CpuRequest) -> str:
    return str(state.claims.grant(request).claim.cpus)


def test_a_claim_without_a_cpuset_is_packed_in_the_machine_device():
    state = node(EPYC_TOPOLOGY, group_by=GroupBy.MACHINE, reserved="0,32")
    assert cpus(state, claim(1, share(MACHINE, 16))) == str(EPYC_TOPOLOGY.numa_nodes[1])
    assert cpus(state, claim(2, share(MACHINE, 4))) == "1-2,33-34"


def test_a_claim_with_a_cpuset_gets_exactly_these_cpus_of_the_machine_device():
    state = node(EPYC_TOPOLOGY, group_by=GroupBy.MACHINE, reserved="0,32")
    assert cpus(state, claim(1, share(MACHINE, 3), cpuset="7,24,63")) == "7,24,63"
    with pytest.raises(CpusetInUseError, match="24 of the cpuset 23-24 is in use by"):
        state.claims.grant(claim(2, share(MACHINE, 2), cpuset="23-24"))


def test_a_claims_strategy_overrides_the_nodes():
    state = node(EPYC_TOPOLOGY)
    packed = state.claims.grant(claim(1, share("cpudevnuma001", 10))).claim.cpus
    spread = state.claims.grant(claim(2, share("cpudevnuma002", 10), strategy="distributed")).claim.cpus
    parts = [[len(found & l3) for l3 in EPYC_TOPOLOGY.l3_groups.values() if found & l3] for found in (packed, spread)]
    assert parts == [[8, 2], [5, 5]]


def test_a_claims_full_cores_override_the_nodes():
    state = node(EPYC_TOPOLOGY)
    assert cpus(state, claim(1, share("cpudevnuma001", 1))) == "8"
    with pytest.raises(NotEnoughCoresError, match="15 CPUs in whole cores requested; whole free cores: 7 with 2 CPUs"):
        state.claims.grant(claim(2, share("cpudevnuma001", 15), fullCores=True))
    assert cpus(state, claim(3, share("cpudevnuma001", 2), fullCores=True)) == "9,41"


def test_a_claim_may_override_the_nodes_full_cores_and_cache_preference():
    state = node(EPYC_TOPOLOGY, allocation=Allocation(Strategy.DISTRIBUTED, full_cores=True))
    assert cpus(state, claim(1, share("cpudevnuma001", 3), fullCores=False, strategy="packed")) == "8-9,40"
    assert cpus(state, claim(2, share("cpudevnuma001", 8), preferUncoreCache=False, strategy="packed")) == (
        "10-13,42-45"
    )


def test_whole_cores_have_no_effect_in_individual_mode():
    state = node(EPYC_TOPOLOGY, mode=Mode.INDIVIDUAL, allocation=Allocation(full_cores=True))
    assert {device.name for device in state.devices()} == {f"cpudev{cpu:03d}" for cpu in range(64) if cpu % 32}
    assert cpus(state, claim(1, whole(5))) == "5"
    assert cpus(state, claim(2, whole(37))) == "37"


def test_a_second_claim_uses_up_the_l3_group_of_the_first():
    state = node(EPYC_TOPOLOGY)
    first, second = (state.claims.grant(claim(number, share("cpudevnuma001", 4))).claim.cpus for number in (1, 2))
    assert (first | second) == EPYC_TOPOLOGY.l3_groups[2]
    assert first.isdisjoint(second)
    assert first == CpuSet.parse("8-9,40-41")
