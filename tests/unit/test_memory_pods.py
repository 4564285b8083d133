"""The limits that are written into the cgroup of a pod, depending on what it has and on which claims can be decoded."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nodes import NODE, machine, spec, uid

from dracpu_agent.claims.memory_claim import MemoryClaim
from dracpu_agent.claims.record import freeze
from dracpu_agent.drivers.memory import MemoryDriver
from dracpu_agent.memory.inventory import Inventory, NumaMemory, Pages
from dracpu_agent.memory.pods import PodPages
from dracpu_agent.node import NodeState
from dracpu_api.cpuset import CpuSet
from dracpu_api.settings import MemorySettings

MI, GI = 1024**2, 1024**3
SIZES = (2 * MI, GI)
limits_of_sizes = st.dictionaries(st.sampled_from(SIZES), st.integers(0, 8).map(lambda pages: pages * 2 * MI))


@given(limits_of_sizes, limits_of_sizes, limits_of_sizes, limits_of_sizes)
def test_only_sizes_that_are_limited_or_claimed_are_written(
    own: Mapping[int, int], claimed: Mapping[int, int], found: Mapping[int, int], written: Mapping[int, int]
) -> None:
    pods = PodPages()
    pods.set_claims({"pod": claimed})
    pods.learn("pod", own)
    limits = pods.limits_to_write("pod", found, written)
    assert all(limit == own.get(page, 0) + claimed.get(page, 0) for page, limit in limits.items())
    for page in SIZES:
        is_absent, is_known = page not in found, page in own
        assert (page in limits) == (page in claimed if is_absent else is_known)


@given(limits_of_sizes, limits_of_sizes, limits_of_sizes, limits_of_sizes, st.sampled_from([["pod"], []]))
def test_a_pod_that_may_have_a_claim_that_cannot_be_decoded_keeps_what_it_has(
    own: Mapping[int, int],
    claimed: Mapping[int, int],
    found: Mapping[int, int],
    written: Mapping[int, int],
    consumers: list[str],
) -> None:
    pods = PodPages()
    pods.set_claims({"pod": claimed}, [consumers])
    pods.learn("pod", own)
    for page, limit in pods.limits_to_write("pod", found, written).items():
        assert limit == max(own.get(page, 0) + claimed.get(page, 0), found.get(page, 0), written.get(page, 0))
    pods.set_claims({"pod": claimed}, [["another pod"]])
    for page, limit in pods.limits_to_write("pod", found, written).items():
        assert limit == own.get(page, 0) + claimed.get(page, 0)


@pytest.mark.parametrize("consumers", [["pod"], "unreadable"])
def test_a_frozen_claim_keeps_the_limits_of_its_pod_until_it_ends(consumers: object) -> None:
    found = NumaMemory(0, CpuSet((0,)), 4 * GI, 4, (Pages(2 * MI, 16, 16),))
    driver = MemoryDriver(NODE, Inventory((found,)), machine())
    state = NodeState(NODE, machine(), [driver])
    state.configure(spec(memory=MemorySettings(enabled=True)))
    state.containers.synchronize([])
    driver.pods.learn("pod", {2 * MI: 0})
    holding = state.holdings["dra.memory"]
    holding.take(freeze(MemoryClaim, uid(1), {"consumers": consumers, "grants": "of a newer agent"}, "why"))
    assert driver.pods.limits_to_write("pod", {2 * MI: 8 * MI}, {}) == {2 * MI: 8 * MI}
    assert driver.pods.limits_to_write("pod", {2 * MI: 0}, {2 * MI: 8 * MI}) == {2 * MI: 8 * MI}
    holding.release(uid(1))
    assert driver.pods.limits_to_write("pod", {2 * MI: 8 * MI}, {2 * MI: 8 * MI}) == {2 * MI: 0}
