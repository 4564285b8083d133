"""The memory of a node changes from devices of its own to devices of CPUs and back, while claims of both are held."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from memory_beside_cpus import (
    DEVICES,
    GI,
    MEMORY_0,
    MI,
    NUMA_0,
    NUMA_1,
    OFF,
    PAGES_0,
    WITH_CPUS,
    beside,
    cpus_with,
    driver_of,
    memory_settings,
    node,
    of_memory,
    prepared,
    restarted,
    settling,
    some,
)
from nodes import spec, uid, well

from dracpu_agent.devices.device import Device
from dracpu_agent.errors import ClaimError
from dracpu_agent.memory.kinds import MEMORY, Kind, Place
from dracpu_agent.node import NodeState
from dracpu_agent.report.conditions import conditions_of
from dracpu_agent.report.node_status import phase_of
from dracpu_api.names import DRIVER, DRIVER_MEMORY, TAINT_SETTLING
from dracpu_api.settings import CpuNodeSpec, GroupBy, OutstandingClaim, OutstandingDevice

SMALL = Kind(2 * MI)
BY_SOCKET = spec(group_by=GroupBy.SOCKET, memory=memory_settings())


def closed(devices: Sequence[Device]) -> set[str]:
    """Returns the devices that take no new claims while the node settles."""
    return {device.name for device in devices if any(taint.key == TAINT_SETTLING for taint in device.taints)}


def waiting(number: int, device: str, driver: str = DRIVER, cpus: int = 1, **amounts: int) -> OutstandingClaim:
    """Builds the entry of a claim in the operator's list."""
    given = OutstandingDevice(device, cpus if driver == DRIVER else 0, driver, tuple(sorted(amounts.items())))
    return OutstandingClaim(uid(number), "default", f"claim-{number}", (given,))


def phase(state: NodeState) -> str:
    return phase_of(state, conditions_of(state, well()))


# ---- what is published


def test_devices_of_memory_stay_closed_until_devices_of_cpus_offer_the_memory() -> None:
    state = node(DEVICES)
    prepared(state, 1, some(MEMORY_0, 256 * MI))
    state.configure(settling(WITH_CPUS))
    assert phase(state) == "Settling"
    assert MEMORY_0 in closed(driver_of(state).devices(()))
    assert not closed(state.devices())  # they gain something: claims of CPUs go on
    assert beside(state) == {NUMA_0: {}, NUMA_1: {}}
    state.settled()
    assert phase(state) == "Draining"
    assert [claim.name for claim in state.draining()] == ["claim-1"]
    assert (of_memory(state), driver_of(state).offers) == ({}, False)
    assert beside(state)[NUMA_0]["memory"] == 768 * MI
    state.holdings[DRIVER_MEMORY].release(uid(1))
    assert beside(state)[NUMA_0]["memory"] == GI
    assert phase(state) == "Ready"


@pytest.mark.parametrize("other", [DEVICES, BY_SOCKET])
def test_devices_of_cpus_stay_closed_until_devices_of_memory_offer_their_memory(other: CpuNodeSpec) -> None:
    state = node()
    prepared(state, 1, cpus_with(memory="256Mi"))
    state.configure(settling(other))
    assert closed(state.devices()) == {NUMA_0, NUMA_1}
    assert beside(state)[NUMA_0]["memory"] == GI  # the scheduler counts the claim
    assert of_memory(state) == {}
    state.settled()
    assert not closed(state.devices())
    assert not any(beside(state).values())
    assert of_memory(state)[MEMORY_0] == 768 * MI
    assert [claim.name for claim in state.draining()] == ["claim-1"]
    state.claims.release(uid(1))
    assert of_memory(state)[MEMORY_0] == GI
    assert phase(state) == "Ready"


def test_devices_of_cpus_are_closed_before_their_memory_is_turned_off() -> None:
    state = node()
    prepared(state, 1, cpus_with(memory="256Mi"))
    state.configure(settling(OFF))
    assert closed(state.devices()) == {NUMA_0, NUMA_1}
    state.settled()
    assert beside(state) == {NUMA_0: {}, NUMA_1: {}}
    assert phase(state) == "Draining"
    assert dict(driver_of(state).promised()) == {Place(0, MEMORY): 256 * MI}


@pytest.mark.parametrize("settings", [DEVICES, WITH_CPUS])
def test_memory_that_is_turned_on_is_offered_at_once(settings: CpuNodeSpec) -> None:
    state = node(OFF)
    state.configure(settling(settings))
    assert not state.settling
    assert bool(of_memory(state)) == (settings is DEVICES)
    assert any(beside(state).values()) == (settings is WITH_CPUS)


def test_settings_that_are_taken_back_while_the_node_settles_change_nothing() -> None:
    state = node()
    before = state.devices()
    state.configure(settling(DEVICES))
    state.configure(settling(WITH_CPUS))
    assert not state.settling
    assert state.devices() == before


@pytest.mark.parametrize(("former", "settings"), [(WITH_CPUS, DEVICES), (DEVICES, WITH_CPUS), (WITH_CPUS, BY_SOCKET)])
def test_an_agent_that_restarts_goes_on_to_settle(former: CpuNodeSpec, settings: CpuNodeSpec) -> None:
    state = node(former)
    prepared(state, 1, cpus_with(memory="256Mi"))
    prepared(state, 2, some(MEMORY_0, 128 * MI))
    state.configure(settling(settings))
    again = restarted(state)
    assert again.settling
    for _ in range(2):
        assert again.devices() == state.devices()
        assert driver_of(again).devices(()) == driver_of(state).devices(())
        state.settled()
        again.settled()


# ---- claims that were allocated and are not prepared yet


def test_memory_is_kept_for_claims_of_the_former_devices() -> None:
    state = node()
    held = [waiting(1, NUMA_0, memory=512 * MI), waiting(2, NUMA_0, memory=256 * MI)]
    state.configure(replace(DEVICES, outstanding=tuple(held)))
    assert of_memory(state)[MEMORY_0] == 256 * MI
    assert [claim.name for claim in state.draining()] == ["claim-1", "claim-2"]
    with pytest.raises(ClaimError, match="it asks for 512Mi, and 256Mi are not promised"):
        prepared(state, 3, some(MEMORY_0, 512 * MI))
    prepared(state, 3, some(MEMORY_0, 256 * MI))
    prepared(state, 2, cpus_with(memory="256Mi"))
    prepared(state, 1, cpus_with(memory="512Mi"))
    assert of_memory(state)[MEMORY_0] == 256 * MI  # what claim 3 consumes


def test_memory_is_kept_for_claims_of_devices_of_memory() -> None:
    state = node(DEVICES)
    listed = (waiting(1, PAGES_0, DRIVER_MEMORY, hugepages_2Mi=24 * MI), waiting(2, MEMORY_0, DRIVER_MEMORY, memory=GI))
    state.configure(replace(WITH_CPUS, outstanding=listed))
    assert beside(state)[NUMA_0] == {"hugepages_2Mi": 8 * MI, "hugepages_1Gi": GI}
    with pytest.raises(ClaimError, match="it asks for 16Mi, and 8Mi are not promised"):
        prepared(state, 3, cpus_with(hugepages_2Mi="16Mi"))
    prepared(state, 1, some(PAGES_0, 24 * MI))
    prepared(state, 2, some(MEMORY_0, GI))


def test_what_is_kept_survives_a_restart_and_ends_with_the_list() -> None:
    state = node()
    state.configure(replace(DEVICES, outstanding=(waiting(1, NUMA_0, memory=512 * MI),)))
    again = restarted(state)
    assert of_memory(again)[MEMORY_0] == 512 * MI
    again.configure(DEVICES)
    assert of_memory(again)[MEMORY_0] == GI


def test_claims_wait_for_no_more_than_there_is() -> None:
    state = node()
    listed = tuple(waiting(number, NUMA_0, memory=768 * MI) for number in (1, 2))
    state.configure(replace(DEVICES, outstanding=listed))
    assert MEMORY_0 not in of_memory(state)
    prepared(state, 1, cpus_with(memory="768Mi"))
    with pytest.raises(ClaimError, match="it asks for 768Mi, and 256Mi are not promised"):
        prepared(state, 2, cpus_with(memory="768Mi"))
