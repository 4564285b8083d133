"""A database gets 8 CPUs and 16Gi of one NUMA node; it is killed when it takes more, and runs again as before."""

from dracpu_sandbox.stories import memory
from dracpu_sandbox.stories.memory import GI
from dracpu_sandbox.stories.story import Story

MACHINES = ("xeon-snc2",)


async def play(story: Story) -> None:
    await memory.offer(story)
    await memory.pod(story, "database", cpus="8", memory="16Gi")
    await story.until_running("database")
    memory.expects_limit(story, "database", "memory.max", 16 * GI)
    mems, cpus = memory.limit(story, "database", "cpuset.mems"), story.cpus("database")
    story.expects("its memory is on one NUMA node", mems.isdecimal(), mems)
    await memory.takes(story, "database", 15 * GI)

    story.report("database takes 2Gi more than its claim has")
    await memory.takes(story, "database", 3 * GI)
    await memory.until_killed(story, "database")
    story.expects_cpus("database", cpus)
    memory.expects_limit(story, "database", "cpuset.mems", mems)
