"""An agent is killed: running pods continue, new pods wait until it is back, and no pod loses its CPUs."""

from dracpu_sandbox.stories.story import Story

MACHINES = ("lab",)
AGENT = "process"  # so that the agent is really killed by SIGKILL


async def play(story: Story) -> None:
    (node,) = story.nodes
    await story.pod("before", cpus=2)
    await story.until_running("before")
    held = story.cpus("before")

    await story.crash_agent(node)
    await story.pod("meanwhile", cpus=2)
    await story.until_waiting("meanwhile", because="FailedPrepareDynamicResources")
    story.expects_cpus("before", held)

    await story.start_agent(node)
    await story.until_running("meanwhile")
    story.expects_cpus("before", held)
    await story.until_exclusive()
