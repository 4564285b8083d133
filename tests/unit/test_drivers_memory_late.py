"""Containers that start, run or are resized without the limits of their claims of memory."""

from typing import Any

import pytest
from memory_claims_node import GI, MI, POD, OneNode, limits, pages, some

from dracpu_agent.errors import PlacementError
from dracpu_agent.placement.container import Container


def test_a_resize_that_the_runtime_fails_changes_no_limit() -> None:
    node = OneNode()
    (device,) = node.prepare(1, some("memory-numa000", 512 * MI))
    node.create("main", device, memory_limit=GI)
    node.start("main-1")
    containers = node.state.containers
    assert limits(containers.repeat("main-1", 128 * MI))["memory.max"] == str(128 * MI)
    containers.expire("main-1")  # no report came: the container keeps the limit of its spec
    assert limits(containers.next_push())["memory.max"] == str(512 * MI)
    assert limits(containers.repeat("main-1"))["memory.max"] == str(512 * MI)


def test_a_limit_that_a_failed_resize_may_have_raised_is_not_lowered_by_an_update() -> None:
    node = OneNode()
    (device,) = node.prepare(1, some("memory-numa000", 512 * MI))
    node.create("main", device, memory_limit=128 * MI)
    node.start("main-1")
    containers = node.state.containers
    assert limits(containers.repeat("main-1", 256 * MI))["memory.max"] == str(256 * MI)
    containers.expire("main-1")
    assert limits(containers.next_push())["memory.max"] == str(256 * MI)
    ((late, wanted),) = containers.late()
    assert (late.id, dict(wanted)["memory.max"]) == ("main-1", str(128 * MI))


# ---- containers that run without their limits


def listed(name: str, device: str, **fields: Any) -> Container:
    """A container of the pod, as the runtime lists it."""
    return Container(name, "main", "default", POD, POD, (device,), **fields)


def test_a_container_that_was_started_without_its_limits_is_sent_none() -> None:
    node = OneNode()
    memory, pages_device = node.prepare(
        1, some("memory-numa000", 512 * MI, "a"), some("hugepages-2mi-numa000", 8 * MI, "b")
    )
    started = Container("late", "main", "default", POD, POD, (memory, pages_device))
    (update,) = node.state.containers.synchronize([started])[0]
    assert limits(update) == {}
    ((late, wanted),) = node.state.containers.late()
    assert late.id == "late"
    assert dict(wanted) == {"memory.max": str(512 * MI), "cpuset.mems": "0"} | pages(8 * MI)
    assert limits(node.state.containers.repeat("late")) == {}


def test_a_container_of_pages_alone_that_was_started_without_them_stays_as_it_is() -> None:
    node = OneNode()
    (device,) = node.prepare(1, some("hugepages-2mi-numa000", 8 * MI))
    (update,) = node.state.containers.synchronize([listed("late", device)])[0]
    assert limits(update) == {}
    assert node.state.containers.late() == ()


def test_a_container_that_an_earlier_agent_has_limited_stays_so() -> None:
    node = OneNode()
    memory, pages_device = node.prepare(
        1, some("memory-numa000", 512 * MI, "a"), some("hugepages-2mi-numa000", 8 * MI, "b")
    )
    has = {"memory.max": str(512 * MI), "cpuset.mems": "0"} | pages(8 * MI)
    known = Container("old", "main", "default", POD, POD, (memory, pages_device), recorded=tuple(has.items()))
    (update,) = node.state.containers.synchronize([known])[0]
    assert limits(update) == has
    assert node.state.containers.late() == ()


def test_a_limit_that_was_lowered_while_no_agent_ran_is_a_late_correction_and_a_higher_one_is_sent_at_once() -> None:
    node = OneNode()
    (device,) = node.prepare(1, some("memory-numa000", 512 * MI))
    had = (("cpuset.mems", "0"), ("memory.max", str(256 * MI)))
    (update,) = node.state.containers.synchronize([listed("old", device, recorded=had, memory_limit=64 * MI)])[0]
    assert limits(update)["memory.max"] == str(256 * MI)
    assert dict(node.state.containers.late()[0][1])["memory.max"] == str(64 * MI)
    (update,) = node.state.containers.synchronize([listed("old", device, recorded=had, memory_limit=GI)])[0]
    assert limits(update)["memory.max"] == str(512 * MI)
    assert node.state.containers.late() == ()


def test_the_runtime_is_sent_what_a_correction_has_put_in_force() -> None:
    node = OneNode()
    (device,) = node.prepare(1, some("memory-numa000", 512 * MI))
    containers = node.state.containers
    containers.synchronize([listed("late", device)])
    containers.allow_pushes()
    for found in ({"memory.max": str(GI)}, {"memory.max": str(512 * MI)}, {"cpuset.mems": "0"}):
        assert containers.late()
        containers.corrected("late", found)
        push = containers.next_push()
        assert push is not None
        assert limits(push).items() >= found.items()
        containers.pushed(push, applied=True)
    assert containers.late() == ()
    assert limits(push) == {"memory.max": str(512 * MI), "cpuset.mems": "0"}
    assert containers.next_push() is None


def test_a_resize_during_a_correction_never_raises_the_limit_that_it_has_reached() -> None:
    node = OneNode()
    (device,) = node.prepare(1, some("memory-numa000", 512 * MI))
    node.state.containers.synchronize([listed("late", device, memory_limit=4 * GI)])
    node.state.containers.corrected("late", {"memory.max": str(GI)})
    for limit, expected in ((8 * GI, GI), (768 * MI, 768 * MI), (256 * MI, 256 * MI), (GI, 512 * MI)):
        assert limits(node.resize("late", limit))["memory.max"] == str(expected)


def test_limits_of_pages_are_never_raised_above_those_of_the_creation() -> None:
    node = OneNode()
    (device,) = node.prepare(1, some("hugepages-2mi-numa000", 8 * MI))
    assert limits(node.create("beside")) == pages(0)
    node.driver.pods.learn(POD, {2 * MI: 4 * MI, GI: 0})
    assert limits(node.state.containers.repeat("beside-1")) == pages(0)
    assert limits(node.create("main", device)) == pages(12 * MI)


# ---- starts


def start_of(node: OneNode, container: Container, found: dict[str, str] | None) -> None:
    """Starts a container whose cgroup has these files; None: it cannot be read."""
    containers = node.state.containers
    doubt = containers.begin_start(container)
    assert doubt is not None
    assert doubt.limits
    containers.resolve(doubt, node.state.division.shared, found)
    containers.check_start(container)
    containers.started(container)


@pytest.mark.parametrize("is_listed", [True, False])
@pytest.mark.parametrize("found", [None, {}, {"memory.max": "max", "cpuset.mems": "0"}])
def test_a_container_of_a_claim_does_not_start_without_its_limits(
    is_listed: bool, found: dict[str, str] | None
) -> None:
    node = OneNode()
    (device,) = node.prepare(1, some("memory-numa000", 512 * MI))
    container = listed("early", device, started=False)
    node.state.containers.synchronize([container] if is_listed else [])
    with pytest.raises(PlacementError, match="would start without the limits of its claims"):
        start_of(node, container, found)


@pytest.mark.parametrize("is_listed", [True, False])
def test_a_container_whose_cgroup_has_its_limits_starts(is_listed: bool) -> None:
    node = OneNode()
    (device,) = node.prepare(1, some("memory-numa000", 512 * MI))
    container = listed("early", device, started=False)
    node.state.containers.synchronize([container] if is_listed else [])
    start_of(node, container, {"memory.max": str(512 * MI), "cpuset.mems": "0"})
    assert node.state.containers.late() == ()
    assert limits(node.state.containers.repeat("early")) == {"memory.max": str(512 * MI), "cpuset.mems": "0"}


def test_a_container_that_is_not_started_is_sent_its_limits_with_the_answer_to_the_list() -> None:
    node = OneNode()
    (device,) = node.prepare(1, some("memory-numa000", 512 * MI))
    (update,) = node.state.containers.synchronize([listed("early", device, started=False)])[0]
    assert limits(update) == {"memory.max": str(512 * MI), "cpuset.mems": "0"}


def test_a_container_without_claims_starts_beside_one_with_pages() -> None:
    node = OneNode()
    node.prepare(1, some("hugepages-2mi-numa000", 8 * MI))
    beside = Container("beside", "beside", "default", POD, POD, started=False)
    node.state.containers.synchronize([beside])
    assert node.state.containers.begin_start(beside) is None
    node.state.containers.check_start(beside)


def test_a_container_that_starts_unseen_is_corrected_later() -> None:
    node = OneNode()
    (device,) = node.prepare(1, some("memory-numa000", 512 * MI))
    node.state.containers.synchronize([])
    node.state.containers.started(listed("unseen", device, started=False))
    assert [container.id for container, _ in node.state.containers.late()] == ["unseen"]
