"""Claims that have memory beside their CPUs: which containers may share it, and what limits and binds each."""

import pytest
from memory_beside_cpus import GI, MI, NUMA_0, NUMA_1, beside, cpus_with, driver_of, node, prepared_cpus
from nodes import container, uid

from dracpu_agent.errors import PlacementError
from dracpu_agent.memory.kinds import MEMORY, Kind, Place
from dracpu_agent.memory.use import ClaimsUse
from dracpu_agent.node import NodeState
from dracpu_agent.placement.container import Container
from dracpu_agent.work.memory_users import memory_users
from dracpu_api.cpuset import CpuSet

POD = "pod-1"


def created(state: NodeState, name: str, *devices: str, pod: str = POD) -> dict[str, str]:
    """Creates a container; returns the files of its cgroup that the agent sets."""
    made = Container(name, name, "default", pod, pod, devices)
    placement = state.containers.create(made)
    state.containers.created(made.id)
    return dict(placement.limits)


def test_a_container_is_limited_and_bound_by_the_memory_beside_its_cpus() -> None:
    state = node()
    claim = prepared_cpus(state, 1, cpus_with(memory="512Mi", hugepages_2Mi="4Mi"), pods=[POD])
    driver_of(state).pods.learn(POD, {2 * MI: 0, GI: 0})
    (device,) = claim.cdi_devices()
    pages = {"hugetlb.2MB.max": str(4 * MI), "hugetlb.2MB.rsvd.max": str(4 * MI)}
    none = {"hugetlb.1GB.max": "0", "hugetlb.1GB.rsvd.max": "0"}
    assert created(state, "main", device.name) == {"memory.max": str(512 * MI), "cpuset.mems": "0"} | pages | none
    assert driver_of(state).pods.limits(POD) == {2 * MI: 4 * MI, GI: 0}


def test_a_container_with_cpus_alone_has_no_limits() -> None:
    state = node()
    (device,) = prepared_cpus(state, 1, cpus_with(), pods=[POD]).cdi_devices()
    assert created(state, "main", device.name) == {}


def test_containers_share_cpus_alone_and_not_cpus_with_memory() -> None:
    state = node()
    (alone,) = prepared_cpus(state, 1, cpus_with(), pods=["pod-1", "pod-2"]).cdi_devices()
    (both,) = prepared_cpus(state, 2, cpus_with(memory="64Mi"), pods=["pod-1"]).cdi_devices()
    created(state, "first", alone.name)
    created(state, "second", alone.name, both.name)
    created(state, "third", alone.name, pod="pod-2")
    with pytest.raises(PlacementError, match="has a request of memory that container second uses"):
        created(state, "fourth", both.name)
    with pytest.raises(PlacementError, match="pod pod-2 is not the pod that the claim of"):
        created(state, "fifth", both.name, pod="pod-2")


def test_pods_that_share_cpus_have_memory_of_their_own() -> None:
    state = node()
    (shared,) = prepared_cpus(state, 1, cpus_with(), pods=["pod-1", "pod-2"]).cdi_devices()
    for number, pod in ((2, "pod-1"), (3, "pod-2")):
        (own,) = prepared_cpus(state, number, cpus_with(NUMA_1, memory="64Mi"), pods=[pod]).cdi_devices()
        assert created(state, f"main-{pod}", shared.name, own.name, pod=pod)["memory.max"] == str(64 * MI)


def test_memory_stays_promised_while_a_container_of_an_unprepared_claim_runs() -> None:
    state = node()
    (device,) = prepared_cpus(state, 1, cpus_with(memory="512Mi"), pods=[POD]).cdi_devices()
    created(state, "main", device.name)
    assert not state.claims.release(uid(1))
    assert dict(driver_of(state).promised()) == {Place(0, MEMORY): 512 * MI}
    assert beside(state)[NUMA_0]["memory"] == 512 * MI  # the scheduler does not count the claim any more
    state.containers.ended("main")
    assert beside(state)[NUMA_0]["memory"] == GI


def test_an_old_runtime_proves_a_claim_with_memory_by_its_variables() -> None:
    state = node()
    (device,) = prepared_cpus(state, 1, cpus_with(memory="64Mi"), pods=["main"]).cdi_devices()
    variables = [f"{name}={value}" for name, value in device.variables]
    assert set(dict(device.variables)) == {
        f"DRA_CPUSET_{uid(1)}",
        f"DRAMEMORY_{uid(1)}_memory",
        f"DRAMEMORY_{uid(1)}_NUMANodes",
    }
    with pytest.raises(PlacementError, match="sets DRAMEMORY_"):
        state.containers.create(container("forger", env=variables[1:], pod="main"))
    placement = state.containers.create(container("main", device.name.partition("=")[2], env=variables, pod="main"))
    assert placement.cpus == CpuSet((2,))


def test_what_a_container_uses_is_compared_with_the_memory_beside_its_cpus() -> None:
    state = node()
    first, second = prepared_cpus(
        state,
        1,
        cpus_with(NUMA_0, 1, "a", memory="512Mi", hugepages_2Mi="4Mi"),
        cpus_with(NUMA_1, 1, "b", number=1),
        pods=[POD],
    ).cdi_devices()
    created(state, "main", first.name, second.name)
    created(state, "beside", second.name)
    (user,) = memory_users(state, driver_of(state))
    assert user.container.name == "main"
    assert dict(user.devices) == {first.name: {Place(0, MEMORY): 512 * MI, Place(0, Kind(2 * MI)): 4 * MI}}
    assert user.text(MEMORY) == "claim default/claim-1 has 512Mi of memory"


def test_what_is_used_of_a_claim_is_shown_with_it() -> None:
    state = node()
    claim = prepared_cpus(state, 1, cpus_with(memory="512Mi"), pods=[POD])
    assert state.cpus.used(claim) == ()
    driver_of(state).use = ClaimsUse({uid(1): {Place(0, MEMORY): 64 * MI}})
    assert state.cpus.used(claim) == [{"numaNode": 0, "kind": "memory", "claimed": "512Mi", "used": "64Mi"}]
