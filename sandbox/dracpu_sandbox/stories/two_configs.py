"""Two nodes follow two configs by their labels; a node changes its config, and its running pod keeps its CPUs."""

from dracpu_sandbox.resources import CPU_NODES
from dracpu_sandbox.stories.manifests import single_devices
from dracpu_sandbox.stories.story import Story

MACHINES = ("lab", "lab")  # 8 CPUs in two NUMA nodes, each a socket; the lowest core is not offered

SOCKETS = {"cpudevsocket000": 2, "cpudevsocket001": 4}


async def play(story: Story) -> None:
    moved, other = story.nodes
    await story.pod("plain", node=moved)
    await story.until_running("plain")
    everything = story.cpus("plain")

    await story.add_config("web", {"pool": "web"}, groupBy="socket")
    await story.add_config("databases", {"pool": "databases"}, mode="individual")
    await story.label(moved, pool="web")
    await story.label(other, pool="databases")
    await story.until_devices(moved, SOCKETS)
    await story.until_devices(other, single_devices(everything))
    followed = [(await story.client.get(CPU_NODES, node))["spec"]["config"]["name"] for node in story.nodes]
    story.expects("each node follows the config of its label", followed == ["web", "databases"], followed)
    left = await story.client.get(CPU_NODES, other)

    await story.pod("steady", cpus=2, node=moved)
    await story.until_running("steady")
    held = story.cpus("steady")
    await story.label(moved, pool="databases")
    await story.until_devices(moved, single_devices(everything - held))
    story.expects_cpus("steady", held)
    await story.until_cpus("plain", everything - held)

    await story.label(moved, pool="web")
    await story.until_devices(moved, SOCKETS)
    story.expects_cpus("steady", held)
    now = await story.client.get(CPU_NODES, other)
    story.expects(f"{other} has received no new settings", now["spec"] == left["spec"], now["spec"])

    await story.delete("steady")
    await story.until_cpus("plain", everything)
    await story.until_phase("Ready")
