"""Devices of CPUs that offer memory, too: what they offer, and what claims and containers get of both together."""

import json
import subprocess
import sys
from typing import Any

import pytest
from memory_beside_cpus import (
    DEVICES,
    GI,
    MEMORY_0,
    MI,
    NUMA_0,
    NUMA_1,
    WITH_CPUS,
    beside,
    cpus_with,
    driver_of,
    inventory,
    memory_driver,
    memory_settings,
    node,
    of_memory,
    prepared,
    prepared_cpus,
    some,
)
from nodes import NODE, claim_object, machine, ref, request, revived, share, spec, uid, well
from recorded_answers import lines

from dracpu_agent.cdi import spec as cdi_spec
from dracpu_agent.claims import checkpoint
from dracpu_agent.claims.cpu_asks import read_cpu_request
from dracpu_agent.claims.cpu_claim import CpuClaim
from dracpu_agent.claims.memory_granting import asks_for_pages
from dracpu_agent.claims.memory_sizes import MemorySizes
from dracpu_agent.claims.record import RecordError, decode_claim, encode_claim, freeze
from dracpu_agent.cluster.slices.render import render_device
from dracpu_agent.errors import ClaimError, NotReadyError
from dracpu_agent.memory.kinds import MEMORY, Kind, Place
from dracpu_agent.memory.pages_left import PagesLook
from dracpu_agent.node import NodeState
from dracpu_agent.report.conditions import conditions_of
from dracpu_agent.report.node_status import status_of
from dracpu_api.settings import GroupBy, Mode
from dracpu_sandbox.apiserver.kinds.semantics.policies import check_policy

SMALL = Kind(2 * MI)
POD = "pod-1"


# ---- devices


def test_the_device_of_cpus_of_a_numa_node_offers_its_memory_and_there_is_no_device_of_memory() -> None:
    state = node()
    assert beside(state) == {
        NUMA_0: {"memory": GI, "hugepages_2Mi": 32 * MI, "hugepages_1Gi": GI},
        NUMA_1: {"memory": GI},
    }
    assert of_memory(state) == {}
    assert not driver_of(state).offers


@pytest.mark.parametrize(
    ("mode", "group_by"),
    [(Mode.INDIVIDUAL, GroupBy.NUMA_NODE)] + [(Mode.GROUPED, by) for by in GroupBy if by is not GroupBy.NUMA_NODE],
)
def test_in_other_modes_and_groupings_memory_has_devices_of_its_own(mode: Mode, group_by: GroupBy) -> None:
    state = node(spec(mode, group_by, memory=memory_settings()))
    assert not any(beside(state).values())
    assert of_memory(state)[MEMORY_0] == GI


def test_capacities_have_the_form_that_a_real_api_server_has_stored() -> None:
    (recorded,) = [case for case in lines("builtin") if case["what"] == "CPUs with memory and hugepages"]
    (stored,) = recorded["answer"]["stored"]["spec"]["devices"]
    state = node(driver=memory_driver(inventory(small=512)))
    rendered = render_device(state.devices()[0])
    for name in ("dra.cpu/hugepages_2Mi", "dra.cpu/hugepages_1Gi"):
        assert rendered["capacity"][name] == stored["capacity"][name]
    assert rendered["capacity"]["dra.cpu/memory"] == {
        "value": "1Gi",
        "requestPolicy": {"default": "0", "validRange": {"min": "0", "step": "16Mi"}},
    }
    assert rendered["allowMultipleAllocations"] is True


@pytest.mark.parametrize("memory", [GI, GI + 4096, 16 * MI, 16 * MI + 4096])
def test_the_api_server_accepts_the_policy_of_every_amount(memory: int) -> None:
    state = node(driver=memory_driver(inventory(small=1, large=1, memory=memory)))
    (device,) = [render_device(device) for device in state.devices() if device.name == NUMA_0]
    assert len(device["capacity"]) == 4
    for name, capacity in device["capacity"].items():
        assert list(check_policy(capacity, name, is_shared=True)) == []


def test_what_is_left_of_less_than_one_step_is_not_offered() -> None:
    state = node(driver=memory_driver(inventory(small=0, large=0, memory=40 * MI)))
    assert beside(state)[NUMA_0] == {"memory": 40 * MI}
    prepared(state, 1, some(MEMORY_0, 32 * MI))  # a claim of the former devices
    assert beside(state) == {NUMA_0: {}, NUMA_1: {"memory": 40 * MI}}


def test_numa_nodes_without_a_device_of_cpus_offer_no_memory() -> None:
    assert set(beside(node(spec(reserved="0-3", memory=memory_settings())))) == {NUMA_1}


# ---- claims


def test_one_request_takes_cpus_and_memory_of_one_numa_node() -> None:
    state = node()
    claim = prepared_cpus(state, 1, cpus_with(NUMA_0, 2, memory="512Mi", hugepages_2Mi="4Mi"), pods=[POD])
    assert (str(claim.cpus), claim.content) == (
        "2-3",
        "CPUs 2-3 and 512Mi of memory on NUMA node 0, 4Mi of hugepages_2Mi on NUMA node 0",
    )
    assert claim.grants[0].data() == {"cpuset": "2-3", "numaNode": 0, "memory": "512Mi", "hugepages_2Mi": "4Mi"}
    (device,) = claim.cdi_devices()
    assert (device.name, dict(device.variables)) == (
        f"dra.k8s.io/cpu=claim-{uid(1)}",
        {
            f"DRA_CPUSET_{uid(1)}": "2-3",
            f"DRAMEMORY_{uid(1)}_memory": "numanode:0,size:512Mi",
            f"DRAMEMORY_{uid(1)}_hugepages_2Mi": "numanode:0,size:4Mi",
            f"DRAMEMORY_{uid(1)}_NUMANodes": "0",
        },
    )
    assert dict(driver_of(state).promised()) == {Place(0, MEMORY): 512 * MI, Place(0, SMALL): 4 * MI}


def test_each_of_several_requests_has_variables_of_its_own() -> None:
    claim = prepared_cpus(
        node(), 1, cpus_with(NUMA_0, 1, "first-one", memory="512Mi"), cpus_with(NUMA_1, 1, "b", number=1)
    )
    variables = {device.name: dict(device.variables) for device in claim.cdi_devices()}
    assert variables == {
        f"dra.k8s.io/cpu=claim-{uid(1)}-first-one": {
            f"DRA_CPUSET_{uid(1)}_first_one": "2",
            f"DRAMEMORY_{uid(1)}_first_one_memory": "numanode:0,size:512Mi",
            f"DRAMEMORY_{uid(1)}_first_one_NUMANodes": "0",
        },
        f"dra.k8s.io/cpu=claim-{uid(1)}-b": {f"DRA_CPUSET_{uid(1)}_b": "4"},
    }


def test_a_claim_without_memory_is_the_claim_of_cpus_that_it_was() -> None:
    state = node()
    claim = prepared_cpus(state, 1, cpus_with(NUMA_0, 2))
    assert claim.memory is None
    assert claim.digest == request(1, share(NUMA_0, 2)).digest
    assert set(encode_claim(claim)["grants"][0]) == {"kind", "request", "pool", "device", "shareID", "cpus"}
    assert driver_of(state).promised() == {}


def test_another_amount_of_memory_is_another_allocation() -> None:
    digests = {request(1, cpus_with(memory=memory)).digest for memory in ("0", "512Mi", "1Gi", "1024Mi")}
    assert len(digests) == 3


@pytest.mark.parametrize(
    ("result", "why"),
    [
        (cpus_with(memory="2Gi"), "of memory on NUMA node 0 it asks for 2Gi, and 1Gi are not promised to others"),
        (cpus_with(NUMA_1, hugepages_2Mi="2Mi"), "does not offer hugepages_2Mi on NUMA node 1"),
        (cpus_with(hugepages_2Mi="3Mi"), "3Mi of hugepages_2Mi on NUMA node 0, which is not a whole number of pages"),
        (cpus_with(memory="1Mi"), "with which no container can start: request at least 16Mi"),
        (cpus_with(memory="1.5"), "it asks for 1.5 of dra.cpu/memory: request a whole number of bytes"),
        (cpus_with(memory="-1Mi"), "it asks for -1Mi of dra.cpu/memory: request a whole number of bytes"),
        (cpus_with("cpudevsocket000", memory="64Mi"), "device cpudevsocket000 offers no memory"),
    ],
)
def test_memory_that_is_not_there_is_refused_and_no_cpu_is_taken(result: dict[str, Any], why: str) -> None:
    state = node()
    with pytest.raises(ClaimError, match=why):
        prepared(state, 1, result)
    assert not state.division.exclusive
    assert driver_of(state).promised() == {}


def test_cpus_that_are_not_there_take_no_memory() -> None:
    state = node()
    with pytest.raises(ClaimError, match="free"):
        prepared(state, 1, cpus_with(NUMA_0, 3, memory="512Mi"))
    assert driver_of(state).promised() == {}


def test_claims_of_both_drivers_are_promised_from_the_same_memory() -> None:
    state = node()
    prepared(state, 1, some(MEMORY_0, 768 * MI))
    with pytest.raises(ClaimError, match="it asks for 512Mi, and 256Mi are not promised"):
        prepared(state, 2, cpus_with(memory="512Mi"))
    prepared(state, 2, cpus_with(memory="256Mi"))
    with pytest.raises(ClaimError, match="it asks for 16Mi, and 0 are not promised"):
        prepared(state, 3, some(MEMORY_0, 16 * MI))
    state.claims.release(uid(2))
    prepared(state, 3, some(MEMORY_0, 16 * MI))


def test_a_claim_has_memory_through_one_kind_of_device() -> None:
    for results in (
        [some(MEMORY_0, 64 * MI), cpus_with(memory="64Mi")],
        [cpus_with(memory="64Mi"), some(MEMORY_0, MI)],
    ):
        state = node()
        prepared(state, 1, results[0])
        with pytest.raises(ClaimError, match="was given devices of memory and memory of devices of CPUs"):
            prepared(state, 1, results[1])


def test_memory_serves_one_pod_and_cpus_alone_serve_several() -> None:
    state = node()
    with pytest.raises(ClaimError, match="memory serves one pod, and this claim is reserved for 2"):
        prepared(state, 1, cpus_with(memory="64Mi"), pods=["pod-1", "pod-2"])
    prepared(state, 1, cpus_with(), pods=["pod-1", "pod-2"])


def test_pages_that_pods_without_claims_may_take_are_not_promised() -> None:
    state = node()
    driver = driver_of(state)
    driver.pages = PagesLook(driver.inventory, used={}, others={2 * MI: 24 * MI})
    with pytest.raises(NotReadyError, match="of hugepages_2Mi on NUMA node 0 it asks for 16Mi, and 8Mi are left"):
        prepared(state, 1, cpus_with(hugepages_2Mi="16Mi"))
    prepared(state, 1, cpus_with(hugepages_2Mi="8Mi"))


def test_pages_are_read_before_a_claim_of_some_and_not_before_others() -> None:
    results = [cpus_with(), cpus_with(memory="64Mi"), cpus_with(memory="64Mi", hugepages_1Gi="1Gi")]
    assert [asks_for_pages(request(1, result).asks[0]) for result in results] == [False, False, True]


def test_memory_that_cannot_be_limited_is_not_offered() -> None:
    state = node()
    driver_of(state).pages_can_be_limited = False
    assert beside(state)[NUMA_0] == {"memory": GI}
    driver_of(state).memory_can_be_limited = False
    assert beside(state) == {NUMA_0: {}, NUMA_1: {}}


def test_an_agent_that_serves_cpus_alone_refuses_memory_with_words() -> None:
    state = NodeState(NODE, machine())
    state.configure(WITH_CPUS)
    assert beside(state) == {NUMA_0: {}, NUMA_1: {}}
    with pytest.raises(ClaimError, match=f"it asks for memory of device {NUMA_0}, and this node's agent serves CPUs"):
        prepared(state, 1, cpus_with(memory="64Mi"))
    prepared(state, 1, cpus_with())


def test_an_agent_that_serves_cpus_alone_loads_hardly_any_module_of_memory() -> None:
    code = "import sys, dracpu_agent.app; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(found.stdout.split())
    assert "dracpu_agent.claims.cpu_claim" in loaded
    rooms = tuple(f"dracpu_agent.{name}" for name in ("memory", "claims.memory", "drivers.mem", "work.memory"))
    of_memory = {name for name in loaded if name.startswith(rooms)}
    assert of_memory == {"dracpu_agent.memory", "dracpu_agent.memory.existing"}


def test_a_claim_that_is_prepared_again_has_the_same_memory() -> None:
    state = node()
    claim = prepared_cpus(state, 1, cpus_with(memory="1Gi"))
    assert prepared_cpus(state, 1, cpus_with(memory="1024Mi")) is claim
    again = prepared_cpus(state, 1, cpus_with(memory="512Mi"))  # another allocation
    assert again.memory == MemorySizes.of({Place(0, MEMORY): 512 * MI})


def test_parameters_of_memory_that_would_have_no_effect_are_refused() -> None:
    opaque = {"driver": "dra.memory", "parameters": {"kind": "MemoryClaimParameters", "binding": "Preferred"}}
    for requests, refused in (([], True), (["main"], True), (["other"], False)):
        config = [{"source": "FromClaim", "requests": requests, "opaque": opaque}]
        claim = claim_object(1, [cpus_with(memory="64Mi")], config)
        if refused:
            with pytest.raises(ClaimError, match="parameters of the driver dra.memory have no effect on memory of"):
                read_cpu_request(ref(1), claim, NODE)
        else:
            read_cpu_request(ref(1), claim, NODE)
        read_cpu_request(ref(1), claim_object(1, [cpus_with()], config), NODE)


# ---- records


def test_memory_survives_a_restart_with_the_cpus() -> None:
    state = node()
    claim = prepared_cpus(state, 1, cpus_with(NUMA_0, 2, memory="512Mi", hugepages_2Mi="4Mi"))
    saved = checkpoint.encode(state.checkpoint())
    again = revived(checkpoint.decode(saved, state.claim_kinds()), machine(), [memory_driver()])
    assert again.claims[uid(1)] == claim
    assert again.holdings["dra.memory"].driver.status() == driver_of(state).status()


def test_an_agent_that_serves_cpus_alone_keeps_the_memory_of_a_claim() -> None:
    state = node()
    prepared(state, 1, cpus_with(memory="512Mi"))
    saved = checkpoint.decode(checkpoint.encode(state.checkpoint()))
    alone = revived(saved)
    assert granted_record(alone) == granted_record(state)


def granted_record(state: NodeState) -> Any:
    return encode_claim(state.claims[uid(1)])["grants"]


def test_a_record_of_memory_that_cannot_be_decoded_freezes_the_claim_with_all_that_can_be_found() -> None:
    claim = prepared_cpus(node(), 1, cpus_with(NUMA_0, 2, memory="512Mi", hugepages_2Mi="4Mi"))
    record = encode_claim(claim)
    record["grants"][0]["memory"][0]["memoryKind"] = "hugepages_3XB"
    with pytest.raises(RecordError, match="hugepages_3XB"):
        decode_claim(CpuClaim, record)
    frozen = freeze(CpuClaim, uid(1), record, "why")
    assert frozen.memory is not None
    assert (str(frozen.cpus), len(frozen.memory.items)) == ("2-3", 1)
    for devices, others in ((tuple(claim.cdi_devices()), ()), ((), claim.grants)):
        frozen = freeze(CpuClaim, uid(1), record, "why", devices, others)
        assert (str(frozen.cpus), frozen.memory) == ("2-3", claim.memory)
    with_file = freeze(CpuClaim, uid(1), record, "why", tuple(claim.cdi_devices()))
    assert dict(with_file.memory_by_cdi_device()) == dict(claim.memory_by_cdi_device())


def test_the_cdi_file_is_recognized_as_the_one_of_the_claim() -> None:
    claim = prepared_cpus(node(), 1, cpus_with(memory="512Mi"))
    file = cdi_spec.encode(claim)
    assert cdi_spec.serves(file, claim)
    assert cdi_spec.decode(CpuClaim, file, uid(1)) == claim
    damaged = json.loads(file)
    damaged["devices"][0]["containerEdits"]["env"] = [f"DRA_CPUSET_{uid(1)}=2"]
    assert not cdi_spec.serves(json.dumps(damaged).encode(), claim)


# ---- how it is shown


def test_the_status_shows_the_memory_of_a_claim_beside_its_cpus() -> None:
    state = node()
    prepared(state, 1, cpus_with(NUMA_0, 2, memory="512Mi"))
    status = status_of(state, conditions_of(state, well()), "1.0")
    (claim,) = status["claims"]
    assert (claim["cpus"], claim["memory"]) == ("2-3", "512Mi of memory on NUMA node 0")
    (memory,) = [entry for entry in status["memory"] if (entry["numaNode"], entry["kind"]) == (0, "memory")]
    assert (memory["total"], memory["reserved"], memory["promised"]) == ("1152Mi", "128Mi", "512Mi")


def test_memory_that_was_taken_away_is_shown_at_the_device_of_cpus() -> None:
    state = node()
    prepared(state, 1, cpus_with(hugepages_2Mi="32Mi"))
    driver = driver_of(state)
    driver.inventory = inventory(small=4)
    state.refresh()
    assert beside(state)[NUMA_0]["hugepages_2Mi"] == 32 * MI  # what is consumed: the scheduler gives away no more
    assert "24Mi less of hugepages_2Mi on NUMA node 0 than claims were promised" in state.cpus.problems()[NUMA_0]
    assert driver.problems() == {}
    with pytest.raises(ClaimError, match="0 are not promised"):
        prepared(state, 2, cpus_with(hugepages_2Mi="2Mi"))
    driver.inventory = inventory()
    assert state.cpus.problems() == {}


def test_a_device_of_memory_is_not_unhealthy_for_what_devices_of_cpus_lack() -> None:
    state = node(DEVICES)
    prepared(state, 1, some("hugepages-2mi-numa000", 32 * MI))
    driver_of(state).inventory = inventory(small=4)
    assert set(driver_of(state).problems()) == {"hugepages-2mi-numa000"}
    assert state.cpus.problems() == {}


def test_asks_of_memory_are_read_from_the_claim() -> None:
    (ask,) = read_cpu_request(ref(1), claim_object(1, [cpus_with(memory="1Gi", hugepages_2Mi="2Mi")]), NODE).asks
    assert ask.memory == (("hugepages_2Mi", 2 * MI), ("memory", GI))
