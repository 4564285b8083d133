"""The grouping and the reserved CPUs change while a pod runs; the pod keeps its CPUs, and nothing restarts."""

from dracpu_api.cpuset import CpuSet
from dracpu_sandbox.stories.story import Story

MACHINES = ("lab",)  # 8 CPUs in two NUMA nodes, each a socket; the lowest core is not offered


async def play(story: Story) -> None:
    (node,) = story.nodes
    await story.pod("plain")
    await story.until_running("plain")
    everything = story.cpus("plain")
    await story.pod("steady", cpus=2, numa_node=1)
    await story.until_running("steady")
    held = story.cpus("steady")

    for _ in range(2):
        await story.configure(groupBy="socket")
        await story.until_devices(node, {"cpudevsocket000": 2, "cpudevsocket001": 2})  # without the CPUs of steady
        await story.configure(groupBy="numanode")
        await story.until_devices(node, {"cpudevnuma000": 2, "cpudevnuma001": 4})  # the scheduler subtracts them
    await story.configure(groupBy="machine")
    await story.until_devices(node, {"cpudevmachine": 4})
    await story.pod("rest", cpus=4)
    await story.until_running("rest")
    story.expects_cpus("rest", everything - held)
    story.expects_cpus("steady", held)
    await story.delete("rest")

    await story.configure(groupBy="numanode")
    for more in (held, CpuSet([max(everything - held)])):  # CPUs of the claim, and another one
        await story.configure(reservedCPUs=str(CpuSet.parse("0-1") | more))
        await story.until_devices(node, _numa_nodes(everything - more))
        await story.until_cpus("plain", everything - held - more)
        story.expects_cpus("steady", held)
        await story.configure(reservedCPUs="")
        await story.until_devices(node, _numa_nodes(everything))

    await story.delete("steady")
    await story.until_cpus("plain", everything)
    await story.until_phase("Ready")
    story.expects("the agent has not restarted", story.node(node).agent_starts == 1, story.node(node).agent_starts)


def _numa_nodes(cpus: CpuSet) -> dict[str, int]:
    halves = (CpuSet.parse("0-3"), CpuSet.parse("4-7"))
    return {f"cpudevnuma{number:03d}": len(half & cpus) for number, half in enumerate(halves)}
