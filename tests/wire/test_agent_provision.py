"""The whole agent makes the hugepages that the settings name, and gives back those that it has made itself."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from cgroup_trees import write_tree as write_cgroups
from cgroup_trees import write_use
from newer_agent import rewritten
from nodes import NODE, claim_object, ref, share
from page_host import BOTH_SIZES, DRIVER, GIB, MEMORY, MIB, PAGES, Host, wanted
from whole_agent import WholeNode

from dracpu_agent.claims import checkpoint
from dracpu_agent.host.memory import NODES
from dracpu_agent.host.page_pools import PagePools, PoolError
from dracpu_agent.memory.own_pages import Change
from dracpu_api.settings import CpuNodeSpec
from dracpu_sandbox.machines.presets import LAB
from dracpu_sandbox.machines.tree import directory, write_tree
from dracpu_sandbox.node.plugins import KubeletError


@pytest.fixture
def host() -> Iterator[Host]:
    with directory() as made:
        yield Host(*write_tree(replace(LAB, memory=BOTH_SIZES), made))


@pytest.fixture
async def node(host: Host) -> AsyncIterator[WholeNode]:
    """A node whose settings name no pages, and whose agent may make some."""
    async with host.node(wanted()) as started:
        await host.allow(started)
        yield started


def offered(node: WholeNode, device: str = PAGES) -> int:
    found = node.devices().get(device)
    text = found["capacity"]["size"]["value"] if found else "0"
    units = {"Gi": GIB, "Mi": MIB, "Ki": 1024}
    return next((int(text[:-2]) * size for unit, size in units.items() if text.endswith(unit)), 0) or int(text)


def provisioned(node: WholeNode) -> list[dict[str, int]]:
    """Returns how many pages the CpuNode shows as wanted, and as there."""
    return [place["provisioned"] for place in node.status.get("memory", ()) if "provisioned" in place]


async def prepare(node: WholeNode, number: int, device: str, size: int) -> None:
    result = share(device, 1) | {"driver": DRIVER, "consumedCapacity": {"size": str(size)}}
    node.claim(claim_object(number, [result], pods=[f"pod-{number}"]))
    await node.plugins[DRIVER].prepare_one(ref(number))


async def reported(node: WholeNode, reason: str) -> str:
    """Waits for a reason of the condition; returns its message."""

    def condition() -> dict[str, Any]:
        return node.condition("MemoryReady")

    await node.api.until(lambda: condition().get("reason") == reason and condition()["status"] == "True")
    return str(condition().get("message", ""))


async def test_wanted_pages_are_made_and_offered(host: Host, node: WholeNode) -> None:
    before = offered(node, MEMORY)
    node.configure(wanted(512, 100))
    await host.until(512, 100)
    await node.api.until(lambda: offered(node) == GIB)
    assert offered(node, MEMORY) == before - 448 * 2 * MIB
    await node.api.until(lambda: provisioned(node) == [{"wanted": 512, "got": 512}, {"wanted": 100, "got": 100}])
    await reported(node, "Ready")
    assert 'dra_memory_wanted_pages{kind="hugepages_2Mi"} 612' in (await node.probe("/metrics"))[1]
    assert 'dra_memory_own_pages{kind="hugepages_2Mi"} 484' in (await node.probe("/metrics"))[1]


async def test_own_pages_are_given_back_when_the_settings_want_fewer(host: Host, node: WholeNode) -> None:
    node.configure(wanted(512))
    await host.until(512, 64)
    node.configure(wanted(100))
    await host.until(100, 64)
    node.configure(wanted())
    await host.until(64, 64)
    await node.api.until(lambda: offered(node) == 128 * MIB)


@pytest.mark.parametrize("settings", [wanted(512, enabled=False), None], ids=["off", "no config"])
async def test_own_pages_are_given_back_when_memory_is_not_offered_any_more(
    host: Host, node: WholeNode, settings: CpuNodeSpec | None
) -> None:
    node.configure(wanted(512))
    await host.until(512, 64)
    if settings is None:
        node.api.remove("cpunodes", NODE)
    else:
        node.configure(settings)
    await host.until(64, 64)


async def test_pages_stay_while_the_node_settles(host: Host, node: WholeNode) -> None:
    node.configure(wanted(512))
    await host.until(512, 64)
    await node.api.until(lambda: offered(node) == GIB)
    node.configure(wanted(enabled=False, settle_seconds=1))
    await node.api.until(lambda: node.condition("ConfigApplied").get("reason") == "Settling")
    assert host.pages() == 512
    await host.until(64, 64)


async def test_promised_pages_are_given_back_when_the_claim_ends(host: Host, node: WholeNode) -> None:
    node.configure(wanted(512))
    await host.until(512, 64)
    await node.api.until(lambda: offered(node) == GIB)
    await prepare(node, 1, PAGES, 256 * MIB)
    node.configure(wanted())
    await host.until(128, 64)
    await node.plugins[DRIVER].unprepare_one(ref(1))
    await host.until(64, 64)


async def test_promised_memory_is_not_made_into_pages(host: Host, node: WholeNode) -> None:
    await node.api.until(lambda: offered(node, MEMORY))
    await prepare(node, 1, MEMORY, offered(node, MEMORY) // MIB * MIB - 20 * MIB)
    node.configure(wanted(512))
    await host.until(74, 64)
    message = await reported(node, "ProvisionIncomplete")
    assert message.startswith("74 of 512 pages of hugepages_2Mi on NUMA node 0 are there: the rest of the NUMA node's")


async def test_memory_that_claims_use_already_is_not_kept_free_for_them(host: Host, node: WholeNode) -> None:
    await node.api.until(lambda: offered(node, MEMORY))
    result = share(MEMORY, 1) | {"driver": DRIVER, "consumedCapacity": {"size": "2Gi"}}
    node.claim(claim_object(1, [result], pods=["pod-1"]))
    (device,) = await node.plugins[DRIVER].prepare_one(ref(1))
    place = "kubepods/besteffort/podpod-1"
    write_cgroups(node.root / "cgroups", place)
    container = await node.runtime.create_container(node.pod(), "main", cdi_devices=list(device.cdi_ids))
    write_use(write_cgroups(node.root / "cgroups", f"{place}/{container}"), (2 * GIB, 0))
    meminfo = host.sysfs / NODES / "node0/meminfo"
    meminfo.write_text(f"Node 0 MemTotal: {4 * MIB} kB\nNode 0 MemFree: {MIB} kB\n")  # kB: 4 GiB, 1 GiB
    node.configure(wanted(164))
    await host.until(164, 64)


async def test_a_number_that_the_kernel_refuses_changes_nothing(
    host: Host, node: WholeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(pools: PagePools, change: Change) -> None:
        raise PoolError("the kernel has refused nr_hugepages")

    await node.api.until(lambda: offered(node, MEMORY))
    before = offered(node, MEMORY)
    monkeypatch.setattr(PagePools, "write", refuse)
    node.configure(wanted(512))
    assert await reported(node, "ProvisionIncomplete") == "the kernel has refused nr_hugepages"
    assert offered(node, MEMORY) == before
    assert host.pages() == 64
    assert "dra_memory_own_pages{" not in (await node.probe("/metrics"))[1]


async def test_the_next_agent_gives_back_what_this_one_has_made(host: Host, node: WholeNode) -> None:
    node.configure(wanted(512))
    await host.until(512, 64)
    await host.restart(node, lambda: node.configure(wanted()))
    await host.until(64, 64)


async def test_own_pages_stay_while_the_settings_of_a_newer_agent_cannot_be_read(host: Host, node: WholeNode) -> None:
    """They may want all of these pages."""

    def newer(record: dict[str, Any]) -> None:
        record["spec"]["settings"]["mode"] = "weighted"

    def downgrade() -> None:
        stored = node.root / "state/checkpoint.json"
        stored.write_bytes(rewritten(stored.read_bytes(), newer))
        node.api.edit("cpunodes", NODE, newer)

    node.configure(wanted(512))
    await host.until(512, 64)
    await node.api.until(lambda: offered(node) == GIB)
    await host.restart(node, downgrade)
    await node.api.until(lambda: node.status["phase"] == "Failed")
    assert host.pages() == 512
    node.configure(wanted(100))
    await host.until(100, 64)


async def test_pages_of_a_machine_that_was_restarted_are_not_taken_away(host: Host, node: WholeNode) -> None:
    """They are those of its command line then."""
    node.configure(wanted(512, 512))
    await host.until(512, 512)

    def reboot() -> None:
        host.boot("second")
        host.set(512, numa=0)
        host.set(64, numa=1)
        node.configure(wanted(1, 100))

    await host.restart(node, reboot)
    await host.until(512, 100)


async def test_pages_that_others_take_away_are_made_again(host: Host, node: WholeNode) -> None:
    node.configure(wanted(512))
    await host.until(512, 64)
    await node.api.until(lambda: offered(node) == GIB)
    host.set(100)
    node.read_machine_again()
    await host.until(512, 64)


async def test_pages_that_others_add_stay(host: Host, node: WholeNode) -> None:
    node.configure(wanted(512))
    await host.until(512, 64)
    await node.api.until(lambda: offered(node) == GIB)
    host.set(600)
    node.read_machine_again()
    await node.api.until(lambda: offered(node) == 600 * 2 * MIB)
    node.configure(wanted())
    await host.until(152, 64)


@pytest.mark.parametrize("settings_change", [False, True], ids=["from time to time", "when the settings change"])
async def test_a_kernel_that_makes_fewer_pages_is_asked_again(
    host: Host, node: WholeNode, monkeypatch: pytest.MonkeyPatch, settings_change: bool
) -> None:
    most, write = [300], PagePools.write

    def fewer(pools: PagePools, change: Change) -> None:
        write(pools, replace(change, then=min(change.then, most[0])))

    monkeypatch.setattr(PagePools, "write", fewer)
    if not settings_change:
        monkeypatch.setattr("dracpu_agent.work.provisioning.AGAIN_SECONDS", 0.01)
    node.configure(wanted(512, 100))
    await host.until(300, 100)
    await node.api.until(lambda: {"wanted": 512, "got": 300} in provisioned(node))
    message = await reported(node, "ProvisionIncomplete")
    assert message.startswith("300 of 512 pages of hugepages_2Mi on NUMA node 0 are there: the kernel found no more")
    most[0] = 1000
    if settings_change:
        node.configure(wanted(511, 100))
    await host.until(511 if settings_change else 512, 100)
    await reported(node, "Ready")


async def test_a_kernel_without_memory_in_one_piece_is_asked_more_and_more_seldom(
    host: Host, node: WholeNode, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """When others change pages, it is asked at once, and then as often as at first."""
    times: list[float] = []

    def refuse_quietly(pools: PagePools, change: Change) -> None:
        times.append(asyncio.run_coroutine_threadsafe(asyncio.sleep(0, loop.time()), loop).result(20))

    async def asked(number: int) -> None:
        async with asyncio.timeout(20):
            while len(times) < number:  # noqa: ASYNC110 - another thread counts
                await asyncio.sleep(0.005)

    loop = asyncio.get_running_loop()
    await node.api.until(lambda: offered(node, MEMORY))
    monkeypatch.setattr(PagePools, "write", refuse_quietly)
    monkeypatch.setattr("dracpu_agent.work.provisioning.AGAIN_SECONDS", 0.05)
    monkeypatch.setattr("dracpu_agent.work.provisioning.LONGEST_SECONDS", 0.4)
    node.configure(wanted(512))
    await asked(5)
    assert all(later - sooner >= 0.05 * 2**number for number, (sooner, later) in enumerate(pairwise(times[:5])))
    assert "hugepages made" not in capsys.readouterr().out
    monkeypatch.setattr("dracpu_agent.work.provisioning.LONGEST_SECONDS", 1000.0)
    await asked(len(times) + 1)
    host.set(70)
    node.read_machine_again()
    await asked(len(times) + 1)


async def test_an_agent_that_may_not_write_reports_what_to_do(host: Host) -> None:
    async with host.node(wanted(512)) as node:
        write_cgroups(node.root / "cgroups", "kubepods/besteffort")
        node.read_machine_again()
        message = await reported(node, "ProvisionIncomplete")
        assert "install the chart with agent.memory.provision=true" in message
        await host.allow(node)
        await host.until(512, 64)
        await reported(node, "Ready")


async def test_settings_for_a_numa_node_without_memory_are_refused(node: WholeNode) -> None:
    node.configure(wanted(1, 1, 1))
    await node.api.until(lambda: node.condition("ConfigApplied").get("reason") == "Refused")
    assert "memory.provision names NUMA node 2, which has no memory here" in node.condition("ConfigApplied")["message"]


async def test_pages_are_made_only_when_the_checkpoint_has_recorded_them(
    host: Host, node: WholeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the next agent would take them for those of others."""
    recorded: list[Any] = []
    write = PagePools.write

    def look_first(pools: PagePools, change: Change) -> None:
        stored = checkpoint.decode((node.root / "state/checkpoint.json").read_bytes())
        recorded.append(stored.states[DRIVER]["ownPages"]["pools"][PAGES])
        write(pools, change)

    monkeypatch.setattr(PagePools, "write", look_first)
    node.configure(wanted(512))
    await host.until(512, 64)
    assert recorded == [{"own": 448, "total": 512, "others": 64}]


async def test_memory_that_will_become_pages_is_promised_to_nobody_from_the_first_step(
    host: Host, node: WholeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the first of two steps has begun; what neither of them takes is still there for claims."""
    await node.api.until(lambda: offered(node, MEMORY))
    loop, check, there = asyncio.get_running_loop(), PagePools.check, offered(node, MEMORY)
    left = there - (1000 - 64) * 2 * MIB
    claims, answers = iter([(1, left + 4096), (2, left)]), []

    def prepare_first(pools: PagePools, change: Change) -> None:
        for number, size in claims:
            answer = asyncio.run_coroutine_threadsafe(prepare(node, number, MEMORY, size), loop)
            answers.append(type(answer.exception(20)))
        check(pools, change)

    monkeypatch.setattr(PagePools, "check", prepare_first)
    node.configure(wanted(1000))
    await host.until(1000, 64)
    assert answers == [KubeletError, type(None)]
    await reported(node, "Ready")


async def test_slices_are_written_when_a_change_begins_and_when_it_ends(
    host: Host, node: WholeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first figures have less ordinary memory, the last ones the pages; there are none of each step."""
    await node.api.until(lambda: offered(node, MEMORY))
    before, shown, check, loop = offered(node, MEMORY), [], PagePools.check, asyncio.get_running_loop()
    less = before - 1436 * 2 * MIB

    def look_first(pools: PagePools, change: Change) -> None:
        published = node.api.until(lambda: offered(node, MEMORY) == less)
        asyncio.run_coroutine_threadsafe(published, loop).result(20)
        shown.append(offered(node))
        check(pools, change)

    monkeypatch.setattr(PagePools, "check", look_first)
    node.configure(wanted(1500))
    await host.until(1500, 64)
    await node.api.until(lambda: offered(node) == 3000 * MIB)
    assert offered(node, MEMORY) == less
    assert shown == [128 * MIB] * 3


async def test_a_change_that_takes_long_offers_its_pages_before_it_ends(
    host: Host, node: WholeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, check = asyncio.get_running_loop(), PagePools.check

    def wait_for_slices(pools: PagePools, change: Change) -> None:
        published = node.api.until(lambda: offered(node) == change.now * 2 * MIB)
        asyncio.run_coroutine_threadsafe(published, loop).result(20)
        check(pools, change)

    monkeypatch.setattr(PagePools, "check", wait_for_slices)
    monkeypatch.setattr("dracpu_agent.work.provisioning.REFRESH_SECONDS", 0.0)
    node.configure(wanted(1500))
    await host.until(1500, 64)


async def test_large_numbers_are_written_in_steps(host: Host, node: WholeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """The free memory is read again before each of them."""
    steps: list[int] = []
    write = PagePools.write

    def note(pools: PagePools, change: Change) -> None:
        steps.append(change.then)
        write(pools, change)

    monkeypatch.setattr(PagePools, "write", note)
    node.configure(wanted(1500))
    await host.until(1500, 64)
    assert steps == [576, 1088, 1500]
