"""CPUs go offline and online while the agent runs; kubelet, runtime and API server are informed."""

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from fake_kubelet import FakeKubelet
from machine_answers import topology_of
from nodes import claim_object, ref, share, spec, uid, whole
from running_operator import kubeconfig
from whole_agent import whole_node

from dracpu_agent import app
from dracpu_agent.host.hotplug import Hotplug
from dracpu_agent.host.sysfs import read
from dracpu_agent.topology.topology import Topology, TopologyError
from dracpu_agent.topology.usable import outdated
from dracpu_api.cpuset import CpuSet
from dracpu_api.settings import Mode
from dracpu_sandbox.machines.presets import LAB
from dracpu_sandbox.machines.tree import directory, write_tree

NUMA1 = "cpudevnuma001"


class Computer:
    """A machine's /sys and /proc, whose content a test replaces atomically."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._shown = 0
        self.tree = (root / "now/sys", root / "now/proc")
        self.show()

    def show(self, offline: str = "", undescribed: str = "") -> None:
        self._shown += 1
        state = self._root / str(self._shown)
        write_tree(replace(LAB, offline=CpuSet.parse(offline), undescribed=CpuSet.parse(undescribed)), state)
        (self._root / "next").symlink_to(state)
        (self._root / "next").rename(self._root / "now")

    def hide(self) -> None:
        (self._root / "now").unlink()


@contextmanager
def computer() -> Iterator[Computer]:
    with directory() as root:
        yield Computer(root)


async def test_a_claim_whose_cpus_go_offline_is_reported_everywhere_and_kept():
    with computer() as machine:
        async with whole_node(topology=read(*machine.tree), tree=machine.tree) as node:
            node.claim(claim_object(1, [share(NUMA1, 2)]))
            await node.kubelet.prepare_one(ref(1))
            shared = await node.runtime.create_container(node.pod(), "shared")
            pinned = await node.runtime.create_container(
                node.pod(), "pinned", cdi_devices=[f"dra.k8s.io/cpu=claim-{uid(1)}"]
            )
            assert (node.runtime.cpuset_of(pinned), node.runtime.cpuset_of(shared)) == ("4-5", "2-3,6-7")
            health = node.kubelet.watch_health()
            assert {entry.device.device_name: entry.health for entry in await anext(health)}[NUMA1] == 1

            machine.show(offline="4,7")
            node.read_machine_again()
            await node.runtime.until(lambda: node.runtime.cpuset_of(pinned) == "5")
            await node.runtime.until(lambda: node.runtime.cpuset_of(shared) == "2-3,6")
            await node.api.until(lambda: node.devices()[NUMA1].get("taints"))
            device = node.devices()[NUMA1]
            assert [(taint["key"], taint["effect"]) for taint in device["taints"]] == [("dra.cpu/offline", "None")]
            assert device["capacity"]["dra.cpu/cpu"]["value"] == "2"
            unhealthy = next(entry for entry in await anext(health) if entry.device.device_name == NUMA1)
            assert (unhealthy.health, "CPU 4" in unhealthy.message) == (2, True)
            await node.api.until(lambda: node.condition("StateHealthy")["reason"] == "CPUsOffline")
            assert "default/claim-1 (4)" in node.condition("StateHealthy")["message"]
            await node.api.until(lambda: node.status["topology"]["counts"]["cpus"] == 6)
            assert node.status["claims"][0]["cpus"] == "4-5"
            await node.api.until(lambda: node.api.all("events"))
            assert [event["reason"] for event in node.api.all("events")] == ["CPUsOffline"]
            assert [prepared.device for prepared in await node.kubelet.prepare_one(ref(1))] == [NUMA1]

            machine.show()
            node.read_machine_again()
            await node.runtime.until(lambda: node.runtime.cpuset_of(pinned) == "4-5")
            await node.api.until(lambda: "taints" not in node.devices()[NUMA1])
            await node.api.until(lambda: node.condition("StateHealthy")["reason"] == "Healthy")
            await health.aclose()


async def test_an_agent_that_starts_while_a_claims_cpu_is_offline_keeps_the_claim():
    with computer() as machine:
        async with whole_node(spec(Mode.INDIVIDUAL), read(*machine.tree), machine.tree) as node:
            node.claim(claim_object(1, [whole(5)]))
            await node.kubelet.prepare_one(ref(1))
            await node.stop_agent()
            machine.show(offline="5")
            node.topology = read(*machine.tree)
            await node.start_agent()
            await node.api.until(lambda: node.devices()["cpudev005"].get("taints"))
            await node.ready()
            await node.kubelet.prepare_one(ref(1))
            assert node.condition("StateHealthy")["reason"] == "CPUsOffline"


async def test_the_last_topology_is_kept_when_the_machine_cannot_be_read():
    with computer() as machine:
        async with whole_node(topology=read(*machine.tree), tree=machine.tree) as node:
            machine.hide()
            node.read_machine_again()
            await node.api.until(lambda: node.condition("StateHealthy")["reason"] == "MachineUnreadable")
            assert node.condition("StateHealthy")["status"] == "True"
            assert node.devices()[NUMA1]["capacity"]["dra.cpu/cpu"]["value"] == "4"
            machine.show(offline="7")
            node.read_machine_again()
            await node.api.until(lambda: node.devices()[NUMA1]["capacity"]["dra.cpu/cpu"]["value"] == "3")
            await node.api.until(lambda: node.condition("StateHealthy")["reason"] == "Healthy")


async def test_the_status_names_a_cpu_that_the_kernel_does_not_describe():
    with computer() as machine:
        machine.show(undescribed="7")
        async with whole_node(topology=read(*machine.tree), tree=machine.tree) as node:
            await node.api.until(lambda: node.condition("StateHealthy")["reason"] == "CPUsIncomplete")
            assert "CPU 7 (sysfs has no topology/core_cpus_list" in node.condition("StateHealthy")["message"]
            assert node.devices()[NUMA1]["capacity"]["dra.cpu/cpu"]["value"] == "3"


async def test_sighup_reads_the_machine_again():
    with computer() as machine:
        async with whole_node(topology=read(*machine.tree), tree=machine.tree) as node:
            await node.stop_agent()
            (node.root / "kubeconfig").write_text(yaml.safe_dump(kubeconfig(node.api.url)))
            running = asyncio.create_task(app.run(replace(node.options, kubeconfig=node.root / "kubeconfig")))
            async with FakeKubelet(node.root) as kubelet:
                await kubelet.register("dra.cpu")
                machine.show(offline="6-7")
                os.kill(os.getpid(), signal.SIGHUP)
                await node.api.until(lambda: node.devices()[NUMA1]["capacity"]["dra.cpu/cpu"]["value"] == "2")
            os.kill(os.getpid(), signal.SIGTERM)
            await running


async def test_the_agents_process_watches_itself_while_it_runs(monkeypatch):
    watching = asyncio.Event()

    async def watch_process():
        try:
            watching.set()
            await asyncio.Event().wait()
        finally:
            watching.clear()

    monkeypatch.setattr(app, "watch_process", watch_process)
    with computer() as machine:
        async with whole_node(tree=machine.tree) as node:
            await node.stop_agent()
            (node.root / "kubeconfig").write_text(yaml.safe_dump(kubeconfig(node.api.url)))
            running = asyncio.create_task(app.run(replace(node.options, kubeconfig=node.root / "kubeconfig")))
            await watching.wait()
            os.kill(os.getpid(), signal.SIGTERM)
            await running
    assert not watching.is_set()


# ---- the watch alone


class Machine:
    """A machine that shows a list of topologies one after the other, and then the last one; None is an error."""

    def __init__(self, start: Topology, *shown: Topology | None) -> None:
        self._known = start
        self._shown = list(shown)
        self.reads = 0
        self.topologies: list[Topology] = []
        self.problems: list[str] = []
        self._changed = asyncio.Event()

    def has_changed(self, known: Topology) -> bool:
        now = self._now()
        return outdated(known, now.online | CpuSet(now.incomplete), None)

    def topology(self) -> Topology:
        self.reads += 1
        shown = self._now()
        if len(self._shown) > 1:
            del self._shown[0]
        return shown

    def _now(self) -> Topology:
        shown = self._shown[0]
        if shown is None:
            del self._shown[0]
            raise TopologyError("/sys is gone")
        return shown

    def known(self) -> Topology:
        return self._known

    def replug(self, topology: Topology) -> bool:
        if topology == self._known:
            return False
        self._known = topology
        self.topologies.append(topology)
        self._changed.set()
        return True

    async def until(self, count: int) -> None:
        async with asyncio.timeout(10):
            while len(self.topologies) < count:
                self._changed.clear()
                await self._changed.wait()


def lab(offline: str = "", undescribed: str = "") -> Topology:
    return topology_of(replace(LAB, offline=CpuSet.parse(offline), undescribed=CpuSet.parse(undescribed)))


@contextmanager
def watching(machine: Machine, poll_seconds: float = 0.001) -> Iterator[Hotplug]:
    def note_problem() -> None:
        machine.problems.append(watch.problem)

    watch = Hotplug(machine, machine.known, machine.replug, note_problem, poll_seconds, again_seconds=0.001)
    running = asyncio.create_task(watch.run())
    try:
        yield watch
    finally:
        running.cancel()


async def test_the_poll_finds_other_online_cpus():
    machine = Machine(lab(), lab(offline="4"), lab(offline="5"))
    with watching(machine):
        await machine.until(2)
    assert machine.topologies == [lab(offline="4"), lab(offline="5")]
    assert machine.problems == []


async def test_a_cpu_that_is_described_incompletely_is_read_again_until_it_is_complete():
    machine = Machine(lab(offline="4"), lab(undescribed="4"), lab(undescribed="4"), lab(undescribed="4"), lab())
    with watching(machine):
        await machine.until(2)
    assert machine.topologies == [lab(undescribed="4"), lab()]
    assert machine.reads == 4


async def test_a_changed_machine_is_read_once_more_a_little_later():
    early = lab(offline="4")
    early = replace(early, cpus=tuple(replace(cpu, l3=-1) if cpu.id == 5 else cpu for cpu in early.cpus))
    machine = Machine(lab(offline="4-5"), early, lab(offline="4"), lab(offline="4"))
    with watching(machine, poll_seconds=0.001):
        await machine.until(2)
    assert machine.topologies == [early, lab(offline="4")]


async def test_a_failed_reading_is_repeated_even_when_the_online_cpus_are_unchanged():
    class Half(Machine):
        def online(self) -> CpuSet:
            return lab().online

    machine = Half(lab(), None, replace(lab(), isolated=CpuSet((1,))))
    with watching(machine) as watch:
        watch.read_again()
        await machine.until(1)
    assert machine.problems[0] == "/sys is gone"


async def test_a_machine_that_cannot_be_read_is_reported_once_each_time():
    machine = Machine(lab(), None, None, None, lab(offline="4"), None, lab())
    with watching(machine):
        await machine.until(2)
    assert machine.topologies == [lab(offline="4"), lab()]
    assert machine.problems == ["/sys is gone", "", "/sys is gone", ""]


@pytest.mark.parametrize("times", [1, 3])
async def test_a_requested_reading_reports_a_change_only_when_there_is_one(times):
    machine = Machine(lab(), lab(), *[lab()] * (times - 1), replace(lab(), isolated=CpuSet((1,))))
    with watching(machine, poll_seconds=3600) as watch:
        async with asyncio.timeout(10):
            while not machine.topologies:
                watch.read_again()
                await asyncio.sleep(0)
    assert [topology.isolated for topology in machine.topologies] == [CpuSet((1,))]
