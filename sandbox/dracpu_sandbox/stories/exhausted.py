"""Pods request more CPUs than there are: one pod waits, with a reason, and runs as soon as another is deleted."""

from dracpu_sandbox.stories.story import Story

MACHINES = ("lab",)  # 8 CPUs in two NUMA nodes; the lowest core is not offered


async def play(story: Story) -> None:
    await story.pod("first", cpus=2)
    await story.until_running("first")
    await story.pod("second", cpus=4)
    await story.until_running("second")

    await story.pod("third", cpus=2)
    await story.until_waiting("third", because="cannot allocate all claims")

    await story.delete("second")
    await story.until_running("third")
    await story.until_exclusive()
