"""A node reboots: its pods run again on the same CPUs."""

from dracpu_sandbox.stories.story import Story

MACHINES = ("epyc",)


async def play(story: Story) -> None:
    (node,) = story.nodes
    await story.pod("one", cpus=4)
    await story.pod("two", cpus=6)
    await story.pod("other")
    await story.until_running("one", "two", "other")
    one, two = story.cpus("one"), story.cpus("two")

    await story.reboot(node)
    await story.until_running("one", "two", "other")
    story.expects_cpus("one", one)
    story.expects_cpus("two", two)
    await story.until_exclusive()
