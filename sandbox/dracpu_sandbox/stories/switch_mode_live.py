"""Devices change from groups to single CPUs and back while a pod runs; the pod keeps its CPUs, and nothing restarts."""

from dracpu_sandbox.stories.manifests import single_devices
from dracpu_sandbox.stories.story import Story

MACHINES = ("lab",)  # 8 CPUs in two NUMA nodes; the lowest core is not offered


async def play(story: Story) -> None:
    (node,) = story.nodes
    await story.pod("plain")
    await story.until_running("plain")
    everything = story.cpus("plain")
    await story.pod("steady", cpus=2)
    await story.until_running("steady")
    held = story.cpus("steady")

    for _ in range(2):
        await story.configure(mode="individual")
        await story.until_devices(node, single_devices(everything - held))
        await story.configure(mode="grouped")
        await story.until_devices(
            node, {"cpudevnuma000": 2, "cpudevnuma001": 4}
        )  # the scheduler subtracts the CPUs of steady

    await story.configure(mode="individual")
    await story.until_devices(node, single_devices(everything - held))
    await story.pod("rest", devices=4)
    await story.until_running("rest")
    story.expects_cpus("rest", everything - held)
    story.expects_cpus("steady", held)
    await story.until_exclusive()

    await story.delete("rest")
    await story.until_cpus("plain", everything - held)
    await story.delete("steady")
    await story.until_devices(node, single_devices(everything))
    await story.until_phase("Ready")
    story.expects("the agent has not restarted", story.node(node).agent_starts == 1, story.node(node).agent_starts)
