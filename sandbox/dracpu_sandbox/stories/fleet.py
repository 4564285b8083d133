"""Two hundred nodes become ready, pods spread over them, and one edit of the config reaches every node."""

from dracpu_sandbox.stories.story import Story

MACHINES = ("lab",)
NODES = 200
PATIENCE = 120.0


async def play(story: Story) -> None:
    names = await story.pods(len(story.nodes) // 2, cpus=2)
    await story.until_running(*names)
    await story.until_exclusive()

    held = {name: story.cpus(name) for name in names}
    await story.configure(groupBy="machine", rollout={"maxUnavailable": "50%"})
    await story.until("every node offers one device", lambda: _one_each(story))
    story.expects("every pod still has its CPUs", held == {name: story.cpus(name) for name in names})


async def _one_each(story: Story) -> bool:
    offered = [await story.devices(node) for node in story.nodes]
    return all(list(devices) == ["cpudevmachine"] for devices in offered)
