"""The memory of a simulated node: its files, its Node object, its cgroups, and containers that take memory."""

from functools import partial
from typing import Any

import pytest
from memory_node import GI, LARGE, LIMITS, MI, SMALL, MemoryNode, container, content, memory_node
from nodes import NODE
from nri_plugin import created, refusal, resources, small_plugin
from one_node import one_node

from dracpu_agent.host.memory import read_memory
from dracpu_agent.memory.inventory import Pages
from dracpu_sandbox.amounts import amount
from dracpu_sandbox.node.cgroups import NoMemoryError

OPEN = str(1 << 62)


def pages(node, numa, size=SMALL):
    """Returns what an agent reads of a NUMA node's pages."""
    machine = node.root / "machine"
    return read_memory(machine / "sys", machine / "proc").by_numa[numa].pages_of(size)


def allocatable(world):
    return in_bytes(world.api.get("nodes", NODE)["status"]["allocatable"])


def in_bytes(found):
    return {name: int(amount(found[name])) for name in ("memory", "hugepages-2Mi", "hugepages-1Gi")}


async def test_the_node_offers_its_memory_without_its_hugepages_and_the_pages_for_themselves() -> None:
    async with one_node() as world:
        capacity = in_bytes(world.api.get("nodes", NODE)["status"]["capacity"])
        assert capacity == {"memory": 8 * GI, "hugepages-2Mi": 512 * MI, "hugepages-1Gi": 2 * GI}
        assert allocatable(world) == {**capacity, "memory": 8 * GI - 512 * MI - 2 * GI - 100 * MI}


async def test_pages_that_are_made_at_run_time_reach_the_node_object_when_the_kubelet_starts() -> None:
    async with one_node() as world:
        before = allocatable(world)
        world.node.set_pages(0, SMALL, 256)
        assert pages(world.node, 0) == Pages(SMALL, 256, 256)
        assert pages(world.node, 1) == Pages(SMALL, 128, 128)
        assert allocatable(world) == before
        boot = world.api.get("nodes", NODE)["status"]["nodeInfo"]["bootID"]
        await world.node.restart_kubelet()
        assert allocatable(world)["hugepages-2Mi"] == 768 * MI
        assert allocatable(world)["memory"] == 8 * GI - 768 * MI - 2 * GI - 100 * MI
        assert world.api.get("nodes", NODE)["status"]["nodeInfo"]["bootID"] == boot


async def test_a_node_gets_only_as_many_pages_as_it_has_room_for_and_no_large_ones_at_run_time() -> None:
    async with one_node() as world:
        world.node.set_pages(0, SMALL, 10_000)
        assert 1000 < pages(world.node, 0).count < 2 * 1024
        world.node.set_pages(1, LARGE, 2)
        assert pages(world.node, 1, LARGE) == Pages(LARGE, 1, 1)


async def test_a_reboot_brings_the_pages_of_the_boot_line_back() -> None:
    async with one_node() as world:
        world.node.set_pages(0, SMALL, 200)
        await world.node.reboot()
        assert pages(world.node, 0) == Pages(SMALL, 128, 128)


async def test_used_pages_that_are_removed_stay_as_surplus_until_they_are_freed() -> None:
    async with memory_node() as here:
        await here.run("web")
        here.allow("web", 64 * MI)
        await here.take("web", 64 * MI, SMALL)
        assert pages(here.node, 0) == Pages(SMALL, 128, 96)
        here.node.set_pages(0, SMALL, 10)
        assert pages(here.node, 0) == Pages(SMALL, 10, 0, surplus=22)
        here.world.delete("web")
        await here.world.gone("web")
        assert pages(here.node, 0) == Pages(SMALL, 10, 10)


async def test_only_the_cgroups_above_pods_leave_hugepages_open() -> None:
    async with memory_node() as here:
        await here.run("web")
        for cgroup in ("kubepods", "kubepods/burstable", "kubepods/besteffort"):
            assert content(here.node.cgroups / cgroup, *LIMITS) == [OPEN] * 4
        assert here.pod_cgroup("web").parent == here.node.cgroups / "kubepods/besteffort"
        assert content(here.pod_cgroup("web"), *LIMITS) == ["0"] * 4
        assert content(here.cgroup("web"), *LIMITS) == ["max"] * 4


async def test_a_pod_may_use_the_hugepages_of_its_spec_in_all_its_containers() -> None:
    async with memory_node() as here:
        small = {"memory": "64Mi", "hugepages-2Mi": "32Mi"}
        both = container(limits=small, requests={"memory": "32Mi"}), container("side")
        await here.run("web", *both)
        assert here.pod_cgroup("web").parent == here.node.cgroups / "kubepods/burstable"
        assert content(here.pod_cgroup("web"), *LIMITS) == [str(32 * MI)] * 2 + ["0"] * 2
        assert content(here.pod_cgroup("web"), "memory.max") == ["max"]  # one container has no limit
        assert content(here.cgroup("web"), "memory.max", LIMITS[0]) == [str(64 * MI), "max"]
        await here.take("web", 32 * MI, SMALL, "side")
        with pytest.raises(NoMemoryError):
            await here.take("web", 2 * MI, SMALL)


async def test_resources_at_the_level_of_the_pod_limit_its_containers() -> None:
    async with memory_node() as here:
        level = {"limits": {"cpu": "1", "memory": "256Mi", "hugepages-2Mi": "16Mi"}}
        await here.run("web", container(), container("side", limits={"memory": "64Mi"}), resources=level)
        assert here.pod_cgroup("web").parent == here.node.cgroups / "kubepods"
        assert content(here.pod_cgroup("web"), "memory.max", LIMITS[0]) == [str(256 * MI), str(16 * MI)]
        assert content(here.cgroup("web"), "memory.max") == [str(256 * MI)]
        assert content(here.cgroup("web", "side"), "memory.max") == [str(64 * MI)]


async def test_a_pod_whose_hugepages_do_not_fit_is_refused_by_the_kubelet() -> None:
    async with memory_node() as here:
        half = container(limits={"memory": "64Mi", "hugepages-1Gi": "1Gi"})
        await here.run("one", half)
        await here.run("two", half)
        here.world.pod("three", containers=[half])
        await here.world.api.until(lambda: here.world.status("three").get("phase") == "Failed")
        status = here.world.status("three")
        assert status["reason"] == "OutOfhugepages-1Gi"
        assert status["message"].endswith(f"requested: {GI}, used: {2 * GI}, capacity: {2 * GI}")
        here.world.delete("three")
        await here.world.gone("three")
        here.world.delete("one")
        await here.world.gone("one")
        await here.run("four", half)


async def test_pages_that_are_allowed_from_outside_can_be_taken_at_once_up_to_the_limit() -> None:
    async with memory_node() as here:
        await here.run("web")
        with pytest.raises(NoMemoryError):
            await here.take("web", 2 * MI, SMALL)
        here.allow("web", 16 * MI)
        await here.take("web", 16 * MI, SMALL)
        with pytest.raises(NoMemoryError):
            await here.take("web", 2 * MI, SMALL)
        figures = "hugetlb.2MB.current", "hugetlb.2MB.rsvd.current", "hugetlb.2MB.events", "hugetlb.2MB.numa_stat"
        used = f"total={16 * MI} N0={16 * MI} N1=0"
        assert content(here.pod_cgroup("web"), *figures) == [str(16 * MI), str(16 * MI), "max 2", used]
        assert here.main("web")["state"].keys() == {"running"}


async def test_a_plugin_can_give_pages_to_one_container_of_a_pod_before_it_starts() -> None:
    """It writes the pod's cgroup in the hook, and limits each container through `unified`."""

    def granted(request):
        here.allow("web", 16 * MI)
        size = str(16 * MI if request.container.name == "main" else 0)
        return created(mems="1", hugetlb_2MB_max=size, hugetlb_2MB_rsvd_max=size)

    async with memory_node() as here:
        here.plugin.answers["CreateContainer"] = granted
        await here.run("web", container(), container("side"))
        await here.take("web", 16 * MI, SMALL)
        assert pages(here.node, 1).free == 120
        with pytest.raises(NoMemoryError):
            await here.take("web", 2 * MI, SMALL, "side")
        await here.node.restart_runtime()
        assert content(here.pod_cgroup("web"), *LIMITS[:2]) == [str(16 * MI)] * 2
        async with small_plugin(here.node.nri_socket) as again:
            stored = again.containers[here.id_of("web")].linux.resources
            assert stored.unified["hugetlb.2MB.max"] == str(16 * MI)
            assert stored.cpu.mems == "1"


async def test_pages_may_be_reserved_by_one_limit_and_touched_by_another() -> None:
    async with memory_node() as here:
        await here.run("web")
        (here.pod_cgroup("web") / "hugetlb.2MB.max").write_text("max\n")
        with pytest.raises(NoMemoryError):
            await here.take("web", 2 * MI, SMALL)
        here.allow("web", 0)
        (here.pod_cgroup("web") / "hugetlb.2MB.rsvd.max").write_text("max\n")
        await here.take("web", 2 * MI, SMALL)  # mmap succeeds, and the first touch is a bus error
        await here.world.api.until(lambda: here.main("web").get("restartCount") == 1)
        assert here.main("web")["lastState"]["terminated"]["exitCode"] == 135


async def test_pages_come_from_the_numa_nodes_of_the_container_only() -> None:
    async with memory_node() as here:
        here.plugin.answers["CreateContainer"] = lambda request: created(mems="1")
        await here.run("web")
        here.allow("web", 4 * GI)
        assert content(here.cgroup("web"), "cpuset.mems") == ["1"]
        await here.take("web", 256 * MI, SMALL)
        assert (pages(here.node, 0).free, pages(here.node, 1).free) == (128, 0)
        with pytest.raises(NoMemoryError, match="no free pages of 2MB on its NUMA nodes"):
            await here.take("web", 2 * MI, SMALL)


async def test_a_container_that_outgrows_its_memory_is_killed_and_restarted_in_the_same_pod() -> None:
    async with memory_node() as here:
        await here.run("web", container(limits={"memory": "128Mi"}))
        here.allow("web", 16 * MI)
        await here.take("web", 100 * MI)
        assert content(here.cgroup("web"), "memory.current") == [str(100 * MI)]
        first = here.cgroup("web")
        await here.take("web", 29 * MI)
        await here.world.api.until(lambda: here.main("web").get("restartCount") == 1)
        ended = here.main("web")["lastState"]["terminated"]
        assert (ended["reason"], ended["exitCode"]) == ("OOMKilled", 137)
        assert not first.exists()
        assert here.cgroup("web") != first
        assert content(here.pod_cgroup("web"), "memory.current", LIMITS[0]) == ["0", str(16 * MI)]


@pytest.mark.parametrize("score, victim", [(None, "first"), (400, "second")])
async def test_the_kernel_kills_by_use_and_score_when_numa_nodes_have_no_memory_left(score, victim) -> None:
    scores = {"first": score, "second": None}
    async with memory_node() as here:
        here.plugin.answers["CreateContainer"] = lambda request: created(mems="1", score=scores[request.pod.name])
        await here.run("first")
        await here.run("second")
        await here.take("first", 1600 * MI)
        await here.take("second", 900 * MI)
        assert content(here.node.cgroups / "kubepods", "memory.numa_stat")[0].startswith(f"anon N0=0 N1={2500 * MI}")
        await here.take("second", 300 * MI)
        await here.world.api.until(lambda: here.main(victim).get("restartCount") == 1)
        (other,) = scores.keys() - {victim}
        assert here.main(other)["restartCount"] == 0


def waits(here: MemoryNode, pod: str, reason: str) -> bool:
    """Whether a pod's container waits after a start that failed for this reason."""
    waiting = here.main(pod).get("state", {}).get("waiting", {})
    return waiting.get("reason") == "RunContainerError" and reason in waiting["message"]


async def test_what_the_kernel_does_not_accept_prevents_the_start_of_a_container() -> None:
    wrong: tuple[dict[str, Any], ...] = ({"mems": "7"}, {"memory_high": "much"}, {"memory_unknown": "1"})
    reasons = "cpuset.mems: invalid argument", "memory.high: invalid argument", "no such file or directory"
    async with memory_node() as here:
        here.plugin.answers["CreateContainer"] = lambda request: created(**wrong[int(request.pod.name)])
        for number, reason in enumerate(reasons):
            here.world.pod(str(number))
            await here.world.api.until(partial(waits, here, str(number), reason))


async def test_a_refused_creation_leaves_the_pods_cgroup() -> None:
    def refused(request):
        raise refusal("not now")

    async with memory_node() as here:
        here.plugin.answers["CreateContainer"] = refused
        here.world.pod("web")
        await here.world.api.until(lambda: "not now" in str(here.main("web").get("state")))
        here.allow("web", 2 * MI)
        del here.plugin.answers["CreateContainer"]
        await here.world.runs("web")
        assert content(here.pod_cgroup("web"), LIMITS[0]) == [str(2 * MI)]
        here.world.delete("web")
        await here.world.gone("web")
        assert not list(here.node.cgroups.glob("kubepods/**/podweb"))


async def test_what_a_plugin_sets_in_unified_lands_and_its_limit_of_hugepages_is_dropped() -> None:
    async with memory_node() as here:
        keys: dict[str, Any] = {
            "hugetlb_2MB_max": "3000000",
            "hugetlb_2MB_rsvd_max": str(4 * MI),
            "memory_min": str(MI),
        }
        here.plugin.answers["CreateContainer"] = lambda request: created(pages=0, memory=64 * MI, **keys)
        await here.run("web", container(limits={"memory": "32Mi"}))
        files = "hugetlb.2MB.max", "hugetlb.2MB.rsvd.max", "memory.min", "memory.max"
        expected = [str(2 * MI), str(4 * MI), str(MI), str(64 * MI)]  # pages are rounded down
        assert content(here.cgroup("web"), *files) == expected
        (request,) = here.plugin.requests("CreateContainer")
        assert request.pod.linux.cgroup_parent == "/kubepods/burstable/podweb"
        assert request.container.linux.resources.memory.limit.value == 32 * MI
        assert request.container.linux.oom_score_adj.value == 996
        assert not request.container.linux.resources.hugepage_limits


async def test_unified_wins_over_the_limit_and_is_written_again_with_every_update() -> None:
    async with memory_node() as here:
        await here.run("web")
        cgroup, id_ = here.cgroup("web"), here.id_of("web")
        await here.plugin.update(id_, resources(memory_max=str(128 * MI), memory_high=str(100 * MI)))
        assert content(cgroup, "memory.max", "memory.high") == [str(128 * MI), str(100 * MI)]
        (cgroup / "memory.high").write_text("max\n")
        await here.plugin.update(id_, resources(memory=64 * MI))
        assert content(cgroup, "memory.max", "memory.high") == [str(128 * MI), str(100 * MI)]
        await here.plugin.update(id_, resources(memory_max="max"))
        assert content(cgroup, "memory.max") == ["max"]


async def test_the_plain_limit_that_is_written_first_can_kill_although_unified_allows_more() -> None:
    async with memory_node() as here:
        here.plugin.answers["CreateContainer"] = lambda request: created(memory_max=str(200 * MI))
        await here.run("web", container(limits={"memory": "64Mi"}), container("side"))
        await here.take("web", 100 * MI)
        await here.plugin.update(here.id_of("web"), resources(mems="0"))
        await here.world.api.until(lambda: here.main("web").get("restartCount") == 1)
        assert here.main("web")["lastState"]["terminated"]["reason"] == "OOMKilled"


async def test_an_update_that_sets_a_limit_below_the_use_succeeds_and_kills() -> None:
    async with memory_node() as here:
        await here.run("web")
        await here.take("web", 100 * MI)
        await here.plugin.update(here.id_of("web"), resources(memory=80 * MI))
        await here.world.api.until(lambda: here.main("web").get("restartCount") == 1)
        assert here.main("web")["lastState"]["terminated"]["reason"] == "OOMKilled"
        assert content(here.cgroup("web"), "memory.max") == ["max"]  # it is created anew


async def test_a_failed_update_changes_a_part_of_the_cgroup_and_the_next_one_reverts_it() -> None:
    async with memory_node() as here:
        here.plugin.answers["CreateContainer"] = lambda request: created(memory=64 * MI)
        await here.run("web")
        with pytest.raises(Exception, match="NRI update of some containers failed"):
            await here.plugin.update(here.id_of("web"), resources(memory=128 * MI, mems="7"))
        assert content(here.cgroup("web"), "memory.max") == [str(128 * MI)]
        await here.plugin.update(here.id_of("web"), resources(mems="0"))
        assert content(here.cgroup("web"), "memory.max", "cpuset.mems") == [str(64 * MI), "0"]


async def test_a_limit_of_pages_cannot_be_set_below_what_is_in_use() -> None:
    async with memory_node() as here:
        await here.run("web")
        here.allow("web", 16 * MI)
        await here.take("web", 8 * MI, SMALL)
        with pytest.raises(Exception, match="NRI update of some containers failed"):
            await here.plugin.update(here.id_of("web"), resources(hugetlb_2MB_max=str(4 * MI)))
        assert content(here.cgroup("web"), "hugetlb.2MB.max") == ["max"]
        await here.plugin.update(here.id_of("web"), resources(hugetlb_2MB_max=str(8 * MI)))
        assert content(here.cgroup("web"), "hugetlb.2MB.max") == [str(8 * MI)]


async def test_a_list_of_nodes_without_memory_restricts_nothing() -> None:
    async with memory_node() as here:
        await here.run("web")
        (here.cgroup("web") / "cpuset.mems").write_text("5\n")  # such as a node that has CPUs only
        here.allow("web", GI)
        await here.take("web", 300 * MI, SMALL)
        assert (pages(here.node, 0).free, pages(here.node, 1).free) == (0, 106)


async def test_a_start_of_the_kubelet_keeps_pods_and_resets_the_protection_of_all_pods() -> None:
    async with memory_node() as here:
        await here.run("web")
        here.allow("web", 2 * MI)
        for cgroup in ("kubepods", "kubepods/burstable", "kubepods/besteffort"):
            (here.node.cgroups / cgroup / "memory.min").write_text(f"{MI}\n")
            (here.node.cgroups / cgroup / "memory.low").write_text(f"{MI}\n")
        await here.node.restart_kubelet()
        await here.world.api.until(
            lambda: content(here.node.cgroups / "kubepods", "memory.min", "memory.low") == ["0", "0"]
        )
        assert content(here.node.cgroups / "kubepods/burstable", "memory.min", "memory.low") == [str(MI), "0"]
        assert content(here.pod_cgroup("web"), LIMITS[0]) == [str(2 * MI)]
