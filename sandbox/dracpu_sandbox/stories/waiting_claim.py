"""Devices change while a pod with an allocated claim has not started; it starts later, with exclusive CPUs."""

from dracpu_api.cpuset import CpuSet
from dracpu_sandbox.stories.manifests import single_devices
from dracpu_sandbox.stories.story import Story

MACHINES = ("lab",)  # 8 CPUs in two NUMA nodes; the lowest core is not offered


async def play(story: Story) -> None:
    (node,) = story.nodes
    await story.pod("plain")
    await story.until_running("plain")
    everything = story.cpus("plain")

    await story.pod("waiting", cpus=2, numa_node=1, held=True)
    await story.until_allocated("waiting")
    await story.edit(mode="individual")
    await story.until_phase("Draining", node)
    await story.until("4 CPUs are offered to new claims", lambda: _offers_single_cpus(story, 4))
    await story.pod("newcomer", devices=4)
    await _waiting_starts_after_newcomer(story)
    await story.until_devices(node, single_devices(everything))

    await story.pod("waiting", devices=2, numa_node=1, held=True)
    await story.until_allocated("waiting")
    await story.edit(mode="grouped", groupBy="machine")
    await story.until_phase("Draining", node)
    await story.until_devices(node, {"cpudevmachine": 4})
    await story.pod("newcomer", cpus=4)
    await _waiting_starts_after_newcomer(story)
    await story.until_devices(node, {"cpudevmachine": 6})


async def _waiting_starts_after_newcomer(story: Story) -> None:
    everything = story.cpus("plain")
    await story.until_running("newcomer")
    newcomer = story.cpus("newcomer")
    story.expects("newcomer has 4 CPUs", len(newcomer) == 4, newcomer)

    await story.release("waiting")
    await story.until_running("waiting")
    story.expects_cpus("waiting", everything - newcomer)
    story.expects_cpus("newcomer", newcomer)
    await story.until_exclusive()
    await story.delete("waiting")
    await story.delete("newcomer")
    await story.until_cpus("plain", everything)
    await story.until_phase("Ready")


async def _offers_single_cpus(story: Story, number: int) -> bool:
    devices = await story.devices(story.nodes[0])
    return len(devices) == number and devices == single_devices(CpuSet(int(name[-3:]) for name in devices))
