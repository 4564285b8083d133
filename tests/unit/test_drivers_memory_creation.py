"""The driver of memory: what containers get once, when they are created: preferred NUMA nodes, and mounts."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nodes import NODE, SAFE_RUNTIME, claim_object, machine, ref, revived, share, spec, uid

from dracpu_agent.claims import checkpoint
from dracpu_agent.claims.memory_claim import MemoryClaim
from dracpu_agent.claims.record import decode_claim, encode_claim, freeze
from dracpu_agent.drivers.memory import MemoryDriver
from dracpu_agent.errors import PlacementError
from dracpu_agent.memory.inventory import Inventory, NumaMemory, Pages
from dracpu_agent.node import NodeState
from dracpu_agent.placement.container import AtCreation, Container, Mount, Placement
from dracpu_api.cpuset import CpuSet
from dracpu_api.settings import MemorySettings

DRIVER = "dra.memory"
MI, GI = 1024**2, 1024**3
POD = "pod-1"
MEMORY = ("memory-numa000", "memory-numa001")
SMALL = ("hugepages-2mi-numa000", "hugepages-2mi-numa001")


def memory_driver() -> MemoryDriver:
    pages = (Pages(2 * MI, 32, 32), Pages(GI, 1, 1))
    found = tuple(NumaMemory(numa, CpuSet((numa,)), 8 * GI, 4, pages) for numa in (0, 1))
    driver = MemoryDriver(NODE, Inventory(found), machine())
    driver.system = 0
    return driver


def synchronized(state: NodeState, *containers: Container) -> NodeState:
    state.containers.connected(SAFE_RUNTIME)
    state.containers.synchronize(containers)
    return state


@pytest.fixture
def state() -> NodeState:
    made = NodeState(NODE, machine(), [memory_driver()])
    made.configure(spec(memory=MemorySettings(enabled=True)))
    return synchronized(made)


def ask(device: str, size: int, request: str = "main", **parameters: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Builds an allocation result and the parameters of its request."""
    result = share(device, 1, request) | {"driver": DRIVER, "consumedCapacity": {"size": str(size)}}
    opaque = {"apiVersion": "dra.cpu/v1alpha1", "kind": "MemoryClaimParameters", **parameters}
    return result, {"source": "FromClaim", "requests": [request], "opaque": {"driver": DRIVER, "parameters": opaque}}


def prepare(state: NodeState, number: int, *asks: tuple[dict[str, Any], dict[str, Any]]) -> MemoryClaim:
    """Grants a claim of the pod."""
    holding = state.holdings[DRIVER]
    allocated = claim_object(number, [result for result, _ in asks], [config for _, config in asks], pods=[POD])
    claim = holding.grant(holding.driver.read(ref(number), allocated)).claim
    assert isinstance(claim, MemoryClaim)
    return claim


def devices_of(*claims: MemoryClaim) -> tuple[str, ...]:
    return tuple(device.name for claim in claims for device in claim.cdi_devices())


def made(*devices: str, **fields: Any) -> Container:
    return Container("c1", "main", "default", POD, POD, devices, **fields)


def create(state: NodeState, *devices: str, **fields: Any) -> Placement:
    """Creates a container."""
    return state.containers.create(made(*devices, **fields))


def given_to(placement: Placement) -> tuple[str | None, str | None, tuple[int, ...]]:
    """Its limit, its binding, and the NUMA nodes that it prefers."""
    limits = dict(placement.limits)
    return limits.get("memory.max"), limits.get("cpuset.mems"), placement.at_creation.preferred_nodes


def pages(path: str, size: int, page: str = "2M") -> Mount:
    return Mount(path, "hugetlbfs", "nodev", ("nosuid", "nodev", f"pagesize={page}", f"size={size}", "mode=1777"))


# ---- bindings


def test_memory_that_prefers_its_node_is_limited_and_not_bound(state: NodeState) -> None:
    claim = prepare(state, 1, ask(MEMORY[1], 512 * MI, binding="Preferred"))
    assert given_to(create(state, *devices_of(claim))) == (str(512 * MI), None, (1,))


def test_memory_without_parameters_is_bound(state: NodeState) -> None:
    claim = prepare(state, 1, ask(MEMORY[1], 512 * MI))
    assert given_to(create(state, *devices_of(claim))) == (str(512 * MI), "1", ())


def test_a_container_with_pages_alone_prefers_their_nodes(state: NodeState) -> None:
    claim = prepare(state, 1, ask(SMALL[0], 4 * MI, "a"), ask(SMALL[1], 4 * MI, "b", binding="Strict"))
    assert given_to(create(state, *devices_of(claim))) == (None, None, (0, 1))


def test_one_preferred_request_of_memory_leaves_the_container_unbound(state: NodeState) -> None:
    strict = prepare(state, 1, ask(MEMORY[0], 512 * MI))
    loose = prepare(state, 2, ask(MEMORY[1], 256 * MI, binding="Preferred"))
    assert given_to(create(state, *devices_of(strict, loose))) == (str(768 * MI), None, (0, 1))


def test_pages_that_prefer_their_node_leave_strict_memory_bound(state: NodeState) -> None:
    claim = prepare(state, 1, ask(MEMORY[0], 512 * MI, "a"), ask(SMALL[0], 4 * MI, "b", binding="Preferred"))
    assert given_to(create(state, *devices_of(claim))) == (str(512 * MI), "0", ())


def test_only_nodes_that_the_container_may_use_are_preferred(state: NodeState) -> None:
    claim = prepare(state, 1, ask(MEMORY[0], 512 * MI, "a", binding="Preferred"), ask(SMALL[1], 4 * MI, "b"))
    bound = (("cpuset.mems", "1"),)  # by the kubelet's memory manager
    assert create(state, *devices_of(claim), recorded=bound).at_creation.preferred_nodes == (1,)
    away = (("cpuset.mems", "3"),)
    assert create(state, *devices_of(claim), recorded=away).at_creation.preferred_nodes == ()
    driver = state.holdings[DRIVER].driver
    assert isinstance(driver, MemoryDriver)
    driver.inventory = Inventory(driver.inventory.nodes[:1])
    assert driver.at_creation(made(), frozenset(devices_of(claim))).preferred_nodes == (0,)


def test_a_container_without_claims_gets_nothing(state: NodeState) -> None:
    prepare(state, 1, ask(SMALL[0], 4 * MI, mount="/dev/hugepages"))
    assert create(state, in_user_namespace=True, mounted=frozenset({"/dev/hugepages"})).at_creation == AtCreation()


def test_no_update_binds_a_container_that_prefers_its_nodes(state: NodeState) -> None:
    claim = prepare(state, 1, ask(MEMORY[1], 512 * MI, binding="Preferred"))
    create(state, *devices_of(claim))
    state.containers.created("c1")
    repeated = state.containers.repeat("c1", 256 * MI)
    assert repeated is not None
    assert dict(repeated.limits) == {"memory.max": str(256 * MI)}


def test_a_container_that_was_started_without_an_agent_is_limited_and_never_bound(state: NodeState) -> None:
    claim = prepare(state, 1, ask(MEMORY[1], 512 * MI, binding="Preferred"))
    other = prepare(state, 2, ask(MEMORY[1], 512 * MI))
    loose, strict = made(*devices_of(claim)), replace(made(*devices_of(other)), id="c2", name="strict")
    synchronized(state, loose, strict)
    late = {container.id: dict(limits) for container, limits in state.containers.late()}
    assert late["c1"] == {"memory.max": str(512 * MI)}
    assert late["c2"] == {"memory.max": str(512 * MI), "cpuset.mems": "1"}


kinds = st.sampled_from([*MEMORY, *SMALL])
bindings = st.sampled_from(["", "Strict", "Preferred"])


@given(st.lists(st.tuples(kinds, st.integers(1, 4), bindings), min_size=1, max_size=4))
def test_a_container_is_bound_only_if_all_of_its_memory_is_limited_strictly(parts: list[tuple[str, int, str]]) -> None:
    state = NodeState(NODE, machine(), [memory_driver()])
    state.configure(spec(memory=MemorySettings(enabled=True)))
    synchronized(state)
    asks = [
        ask(device, count * (128 * MI if device in MEMORY else 2 * MI), f"r{number}", binding=binding)
        for number, (device, count, binding) in enumerate(parts)
    ]
    limit, mems, preferred = given_to(create(state, *devices_of(prepare(state, 1, *asks))))
    ordinary = [(count, binding) for device, count, binding in parts if device in MEMORY]
    nodes = {int(device[-1]) for device, _, _ in parts}
    assert (mems is None) == bool(preferred), "it is bound, or has a preference"
    assert CpuSet.parse(mems or "") == CpuSet(nodes) or set(preferred) == nodes
    assert limit == (str(sum(count for count, _ in ordinary) * 128 * MI) if ordinary else None)
    if mems is not None:
        assert ordinary
        assert all(binding != "Preferred" for _, binding in ordinary)
        assert nodes == {int(device[-1]) for device, _, _ in parts if device in MEMORY}


# ---- mounts


def test_a_mount_has_the_size_of_its_request(state: NodeState) -> None:
    claim = prepare(state, 1, ask(SMALL[0], 16 * MI, mount="/dev/hugepages"))
    assert create(state, *devices_of(claim)).at_creation.mounts == (pages("/dev/hugepages", 16 * MI),)


def test_a_request_with_pages_of_two_nodes_has_one_mount(state: NodeState) -> None:
    parts = ask(SMALL[0], 16 * MI, mount="/dev/hugepages"), ask(SMALL[1], 4 * MI, mount="/dev/hugepages")
    claim = prepare(state, 1, parts[0], (parts[1][0], parts[0][1]))
    assert create(state, *devices_of(claim)).at_creation.mounts == (pages("/dev/hugepages", 20 * MI),)


def test_pages_of_two_sizes_have_a_mount_each(state: NodeState) -> None:
    claim = prepare(
        state, 1, ask(SMALL[0], 16 * MI, "a", mount="/huge"), ask("hugepages-1gi-numa000", GI, "b", mount="/1G")
    )
    mounts = create(state, *devices_of(claim)).at_creation.mounts
    assert mounts == (pages("/1G", GI, "1G"), pages("/huge", 16 * MI))


def test_a_container_has_the_mounts_of_the_requests_that_it_uses(state: NodeState) -> None:
    claim = prepare(state, 1, ask(SMALL[0], 16 * MI, "a", mount="/huge"), ask(SMALL[1], 4 * MI, "b", mount="/huge"))
    first, second = devices_of(claim)
    assert create(state, first).at_creation.mounts == (pages("/huge", 16 * MI),)
    assert create(state, second).at_creation.mounts == (pages("/huge", 4 * MI),)
    with pytest.raises(PlacementError, match="two requests of hugepages that are mounted at /huge"):
        create(state, first, second)


def test_a_mount_does_not_hide_a_volume(state: NodeState) -> None:
    claim = prepare(state, 1, ask(SMALL[0], 16 * MI, mount="/data"))
    with pytest.raises(PlacementError, match="has another mount at /data, where its claim mounts hugepages"):
        create(state, *devices_of(claim), mounted=frozenset({"/data"}))
    assert create(state, *devices_of(claim), mounted=frozenset({"/other"})).at_creation.mounts


def test_nothing_is_mounted_in_a_user_namespace(state: NodeState) -> None:
    mounted = prepare(state, 1, ask(SMALL[0], 16 * MI, mount="/dev/hugepages"))
    with pytest.raises(
        PlacementError, match=r"runs in a user namespace.*remove the parameter mount \(/dev/hugepages\)"
    ):
        create(state, *devices_of(mounted), in_user_namespace=True)
    other = prepare(state, 2, ask(SMALL[0], 16 * MI))
    assert create(state, *devices_of(other), in_user_namespace=True)


# ---- records


def test_parameters_are_kept_over_a_restart_and_shown_to_the_owner(state: NodeState) -> None:
    asks = ask(MEMORY[1], 512 * MI, "a", binding="Preferred"), ask(SMALL[0], 16 * MI, "b", mount="/dev/hugepages")
    claim = prepare(state, 1, *asks)
    assert [dict(grant.data()) for grant in claim.grants] == [
        {"numaNode": 1, "kind": "memory", "size": "512Mi", "binding": "Preferred"},
        {"numaNode": 0, "kind": "hugepages_2Mi", "size": "16Mi", "mount": "/dev/hugepages"},
    ]
    saved = checkpoint.decode(checkpoint.encode(state.checkpoint()), state.claim_kinds())
    again = synchronized(revived(saved, machine(), [memory_driver()]))
    before, after = create(state, *devices_of(claim)), create(again, *devices_of(claim))
    assert given_to(after) == given_to(before) == (str(512 * MI), None, (0, 1))
    assert after.at_creation == before.at_creation
    assert prepare(again, 1, *asks).grants == claim.grants


def test_a_record_without_parameters_is_strict_and_mounts_nothing(state: NodeState) -> None:
    record = encode_claim(prepare(state, 1, ask(MEMORY[0], 512 * MI)))
    assert not {"binding", "mount"} & record["grants"][0].keys()
    (grant,) = decode_claim(MemoryClaim, record).grants
    assert (grant.binding.value, grant.mount) == ("Strict", "")


@pytest.mark.parametrize("with_file", [True, False], ids=["CDI file", "record"])
def test_a_claim_with_a_binding_of_a_newer_agent_is_kept_and_never_bound(state: NodeState, with_file: bool) -> None:
    claim = prepare(state, 1, ask(MEMORY[0], 512 * MI, "a"), ask(SMALL[0], 16 * MI, "b", mount="/huge"))
    record = encode_claim(claim)
    record["grants"][0]["binding"] = "Interleaved"
    with pytest.raises(Exception, match="binding that this agent does not know"):
        decode_claim(MemoryClaim, record)
    frozen = freeze(MemoryClaim, uid(1), record, "why", tuple(claim.cdi_devices()) if with_file else ())
    assert encode_claim(frozen) == record
    again = NodeState(NODE, machine(), [memory_driver()])
    again.adopt(replace(frozen, consumers=frozenset({POD})))
    running = replace(made(*devices_of(claim)), recorded=(("memory.max", str(512 * MI)),))
    driver = again.holdings[DRIVER].driver
    devices = frozenset(devices_of(claim))
    assert "cpuset.mems" not in driver.limits(running, devices)
    assert driver.at_creation(running, devices).mounts == (pages("/huge", 16 * MI),)
