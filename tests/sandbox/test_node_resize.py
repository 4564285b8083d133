"""In-place resizes on a simulated node: who is called when, and what they do to the cgroups."""

import asyncio
from typing import Any

from memory_node import LIMITS, MI, SMALL, container, content, memory_node
from nri_plugin import created, refusal, updated

from dracpu_agent.runtime.proto import nri_pb2 as nri

PAGES = {"hugepages-2Mi": "32Mi"}
RESIZING = "PodResizeInProgress"


def methods(here):
    return [method for method, _ in here.plugin.calls if method != "CreateContainer"]


async def limited(here) -> None:
    """Runs a pod whose container has a limit of memory, and half of it as its request."""
    await here.run("web", container(limits={"memory": "128Mi", **PAGES}, requests={"memory": "64Mi"}))


async def resized(here, memory: str, request: str = "64Mi") -> None:
    """Changes the limit of memory, and waits until the pod's cgroup has it."""
    here.resize("web", limits={"memory": memory, **PAGES}, requests={"memory": request, **PAGES})
    size = str(int(memory.removesuffix("Mi")) * MI)
    await here.world.api.until(lambda: shown(here).get("limits", {}).get("memory") == memory)
    assert content(here.pod_cgroup("web"), "memory.max") == [size]


def shown(here):
    return here.main("web").get("resources", {})


async def test_a_growing_pod_is_announced_before_its_cgroup_and_its_container_are_changed() -> None:
    seen: list[Any] = []

    async with memory_node() as here:

        def announced(request):
            seen.append((request.linux_resources.memory.limit.value, content(here.pod_cgroup("web"), "memory.max")))
            return nri.UpdatePodSandboxResponse()

        def changed(request):
            seen.append(content(here.pod_cgroup("web"), "memory.max", LIMITS[0]))
            return updated(request)

        here.plugin.answers |= {"UpdatePodSandbox": announced, "UpdateContainer": changed}
        await limited(here)
        await resized(here, "256Mi")
        assert seen == [(256 * MI, [str(128 * MI)]), [str(256 * MI), "0"]]
        assert content(here.cgroup("web"), "memory.max") == [str(256 * MI)]
        (request,) = here.plugin.requests("UpdateContainer")
        asked = request.linux_resources
        assert asked.memory.limit.value == 256 * MI
        assert {item.page_size: item.limit for item in asked.hugepage_limits} == {"2MB": 0, "1GB": 0}
        assert asked.unified["memory.min"] == "0"
        assert (asked.cpu.cpus, asked.cpu.mems) == ("", "")


async def test_a_shrinking_pod_changes_its_container_before_it_is_announced() -> None:
    async with memory_node() as here:
        await limited(here)
        await resized(here, "96Mi")
        assert methods(here) == ["UpdateContainer", "UpdatePodSandbox"]


async def test_a_resize_takes_the_hugepages_of_the_spec_away_from_the_pod() -> None:
    async with memory_node() as here:
        await limited(here)
        assert content(here.pod_cgroup("web"), *LIMITS[:2]) == [str(32 * MI)] * 2
        await resized(here, "256Mi")
        assert content(here.pod_cgroup("web"), *LIMITS[:2]) == ["0", "0"]
        assert content(here.cgroup("web"), *LIMITS[:2]) == ["max", "max"]
        assert shown(here)["limits"]["hugepages-2Mi"] == "32Mi"  # nothing shows it
        assert here.condition("web", RESIZING) is None


async def test_a_resize_of_memory_requests_leaves_the_pods_cgroup_as_it_is() -> None:
    async with memory_node() as here:
        await limited(here)
        await resized(here, "128Mi", request="96Mi")
        await here.world.api.until(lambda: shown(here)["requests"]["memory"] == "96Mi")
        assert methods(here) == ["UpdateContainer"]
        assert content(here.pod_cgroup("web"), LIMITS[0]) == [str(32 * MI)]


async def test_a_resize_of_cpu_time_takes_the_hugepages_away_as_well() -> None:
    async with memory_node() as here:
        await limited(here)
        figures = {"cpu": "2", "memory": "64Mi", **PAGES}
        here.resize("web", limits={"memory": "128Mi", **PAGES}, requests=figures)
        await here.world.api.until(lambda: shown(here).get("requests", {}).get("cpu") == "2")
        assert methods(here) == ["UpdatePodSandbox", "UpdateContainer"]
        (request,) = here.plugin.requests("UpdateContainer")
        assert request.linux_resources.cpu.shares.value == 2048
        assert content(here.pod_cgroup("web"), LIMITS[0]) == ["0"]


async def test_a_plugin_can_stop_a_growth_until_the_spec_is_taken_back() -> None:
    again = asyncio.Event()

    def refused(request):
        if len(here.plugin.requests("UpdatePodSandbox")) > 1:
            again.set()
        raise refusal("pages are promised")

    async with memory_node() as here:
        here.plugin.answers["UpdatePodSandbox"] = refused
        await limited(here)
        here.resize("web", limits={"memory": "256Mi", **PAGES}, requests={"memory": "64Mi", **PAGES})
        async with asyncio.timeout(10):
            await again.wait()
        await here.world.api.until(lambda: here.condition("web", RESIZING))
        condition = here.condition("web", RESIZING) or {}
        assert (condition["reason"], condition["message"]) == ("Error", "pages are promised")
        assert content(here.pod_cgroup("web"), "memory.max", LIMITS[0]) == [str(128 * MI), str(32 * MI)]
        assert shown(here)["limits"]["memory"] == "128Mi"
        await here.node.kill_container("default", "web", "main")  # it comes back with what is in force
        await here.world.api.until(lambda: here.main("web").get("restartCount") == 1)
        assert content(here.cgroup("web"), "memory.max") == [str(128 * MI)]
        here.resize("web", limits={"memory": "128Mi", **PAGES}, requests={"memory": "64Mi", **PAGES})
        await here.world.api.until(lambda: here.condition("web", RESIZING) is None)
        assert not here.plugin.requests("UpdateContainer")


async def test_a_plugin_that_refuses_a_shrinking_pod_keeps_the_pods_cgroup_only() -> None:
    def refused(request):
        raise refusal("pages are promised")

    async with memory_node() as here:
        here.plugin.answers["UpdatePodSandbox"] = refused
        await limited(here)
        here.resize("web", limits={"memory": "96Mi", **PAGES}, requests={"memory": "64Mi", **PAGES})
        await here.world.api.until(lambda: shown(here).get("limits", {}).get("memory") == "96Mi")
        assert content(here.cgroup("web"), "memory.max") == [str(96 * MI)]
        assert content(here.pod_cgroup("web"), "memory.max", LIMITS[0]) == [str(128 * MI), str(32 * MI)]
        assert here.condition("web", RESIZING) is None
        assert methods(here) == ["UpdateContainer", "UpdatePodSandbox"]


async def test_pages_in_use_make_a_resize_fail_once_and_stay() -> None:
    async with memory_node() as here:
        await limited(here)
        await here.take("web", 8 * MI, SMALL)
        await resized(here, "256Mi")
        assert methods(here) == ["UpdatePodSandbox", "UpdateContainer"]
        assert content(here.pod_cgroup("web"), *LIMITS[:2]) == [str(32 * MI)] * 2
        await here.take("web", 8 * MI, SMALL)


async def test_pages_that_are_reserved_and_not_touched_end_the_program_after_a_resize() -> None:
    async with memory_node() as here:
        await limited(here)
        await here.take("web", 8 * MI, SMALL, touch=False)
        await resized(here, "256Mi")
        assert content(here.pod_cgroup("web"), *LIMITS[:2]) == ["0", str(32 * MI)]
        await here.node.touch("default", "web", "main", 8 * MI, page=SMALL)
        await here.world.api.until(lambda: here.main("web").get("restartCount") == 1)
        assert here.main("web")["lastState"]["terminated"]["exitCode"] == 135


async def test_what_a_plugin_set_in_unified_stays_and_memory_follows_the_kubelet() -> None:
    async with memory_node() as here:
        keys: dict[str, Any] = {"memory_high": str(100 * MI), "hugetlb_2MB_max": "0", "memory_min": str(MI)}
        here.plugin.answers["CreateContainer"] = lambda request: created(mems="1", memory=64 * MI, **keys)
        await limited(here)
        assert shown(here)["limits"]["memory"] == str(64 * MI)
        await resized(here, "256Mi")
        files = "memory.max", "memory.high", "hugetlb.2MB.max", "cpuset.mems", "memory.min"
        # kubelet 1.37: it names memory.min in every update, with 0
        assert content(here.cgroup("web"), *files) == [str(256 * MI), str(100 * MI), "0", "1", "0"]
        (request,) = here.plugin.requests("UpdateContainer")
        assert request.container.linux.resources.unified["memory.high"] == str(100 * MI)
        assert request.container.linux.resources.cpu.mems == "1"


async def test_a_plugin_can_repeat_its_limit_in_an_update_and_the_status_shows_it() -> None:
    async with memory_node() as here:
        here.plugin.answers["UpdateContainer"] = lambda request: updated(request, memory=64 * MI, memory_min=str(MI))
        await limited(here)
        here.resize("web", limits={"memory": "256Mi", **PAGES}, requests={"memory": "64Mi", **PAGES})
        await here.world.api.until(lambda: shown(here).get("limits", {}).get("memory") == str(64 * MI))
        assert content(here.cgroup("web"), "memory.max", "memory.min") == [str(64 * MI), str(MI)]
        assert here.condition("web", RESIZING) is None
