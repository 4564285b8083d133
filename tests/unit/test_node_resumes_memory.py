"""After a restart of the agent, memory is offered with the settings that were in force, whatever can be applied now."""

from typing import Any

import pytest
from nodes import NODE, claim_object, machine, ref, share, spec

from dracpu_agent.claims.checkpoint import Checkpoint, decode, encode
from dracpu_agent.drivers.memory import MemoryDriver
from dracpu_agent.errors import SettingsRefusedError
from dracpu_agent.memory.inventory import Inventory, NumaMemory
from dracpu_agent.node import NodeState
from dracpu_agent.topology.topology import Topology
from dracpu_api.cpuset import CpuSet
from dracpu_api.settings import MemorySettings, ReservedMemory

DRIVER = "dra.memory"
MI, GI = 1024**2, 1024**3
SETTINGS = spec(
    reserved="6-7", memory=MemorySettings(enabled=True, reserved=(ReservedMemory(1, (("memory", GI),)),))
)  # names CPUs and a NUMA node that the machine may lose


def node(numa_nodes: int = 2, topology: Topology | None = None) -> NodeState:
    found = tuple(NumaMemory(numa, CpuSet((numa,)), 4 * GI, 4, ()) for numa in range(numa_nodes))
    driver = MemoryDriver(NODE, Inventory(found), topology or machine())
    driver.system = 0
    return NodeState(NODE, topology or machine(), [driver])


def checkpoint_of(state: NodeState) -> Checkpoint:
    """The checkpoint as another agent reads it."""
    return decode(encode(state.checkpoint()), state.claim_kinds())


def offered(state: NodeState) -> set[str]:
    return {device.name for device in state.holdings[DRIVER].driver.devices(())} if state.offers(DRIVER) else set()


def prepare(state: NodeState) -> None:
    result: dict[str, Any] = share("memory-numa000", 1) | {
        "driver": DRIVER,
        "consumedCapacity": {"size": str(64 * MI)},
    }
    holding = state.holdings[DRIVER]
    holding.grant(holding.driver.read(ref(1), claim_object(1, [result])))


def test_a_numa_node_that_the_settings_name_may_be_gone_after_a_restart() -> None:
    state = node()
    state.configure(SETTINGS)
    assert offered(state) == {"memory-numa000", "memory-numa001"}
    revived = node(numa_nodes=1)
    revived.resume(checkpoint_of(state))
    with pytest.raises(SettingsRefusedError, match="names NUMA node 1"):
        revived.configure(SETTINGS)
    assert offered(revived) == {"memory-numa000"}
    prepare(revived)


def test_cpus_that_refuse_their_settings_turn_no_memory_off() -> None:
    state = node()
    state.configure(SETTINGS)
    for _ in range(2):  # the settings are in the next checkpoint, too
        checkpoint = checkpoint_of(state)
        state = node(topology=machine(sockets=1))
        with pytest.raises(SettingsRefusedError, match="names CPU 6-7"):
            state.resume(checkpoint)
        with pytest.raises(SettingsRefusedError, match="names CPU 6-7"):
            state.configure(SETTINGS)
        assert not state.offers("dra.cpu")
        assert offered(state) == {"memory-numa000", "memory-numa001"}
        prepare(state)


def test_memory_follows_the_next_settings_that_the_node_accepts_and_ends_without_any() -> None:
    former = node()
    former.configure(SETTINGS)
    for settings, devices in ((spec(), set()), (spec(memory=MemorySettings(enabled=True)), {"memory-numa000"})):
        state = node(numa_nodes=1, topology=machine(sockets=1))
        with pytest.raises(SettingsRefusedError):
            state.resume(checkpoint_of(former))
        state.configure(settings)
        state.settled()
        assert offered(state) == devices
        assert state.checkpoint().spec == settings
        state.deconfigure()
        assert offered(state) == set()
        assert state.checkpoint().spec is None


def test_an_agent_of_cpus_alone_forgets_settings_that_it_refuses() -> None:
    state = NodeState(NODE, machine())
    state.configure(SETTINGS)
    revived = NodeState(NODE, machine(sockets=1))
    with pytest.raises(SettingsRefusedError):
        revived.resume(state.checkpoint())
    assert revived.checkpoint().spec is None
