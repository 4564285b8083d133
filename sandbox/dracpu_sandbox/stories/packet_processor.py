"""Each pod gets 2 CPUs, a hugepage of 1 GiB and memory of one NUMA node; a third pod waits until they are free."""

from dracpu_sandbox.stories import memory
from dracpu_sandbox.stories.memory import GI, MI
from dracpu_sandbox.stories.story import Story

MACHINES = ("lab",)


async def play(story: Story) -> None:
    await memory.offer(story)
    for name in ("first", "second"):
        await memory.pod(story, name, cpus="2", pages_1gi="1Gi", memory="256Mi", mount="/dev/hugepages")
        await story.until_running(name)
        memory.expects_mount(story, name, "/dev/hugepages", "pagesize=1G", f"size={GI}")
        memory.expects_limit(story, name, "memory.max", 256 * MI)
        story.expects(f"{name} gets its hugepage", await memory.takes(story, name, GI, page=GI))
        story.expects(f"{name} gets no other", not await memory.takes(story, name, GI, page=GI))
    nodes = [memory.limit(story, name, "cpuset.mems") for name in ("first", "second")]
    story.expects("the two pods are on two NUMA nodes", sorted(nodes) == ["0", "1"], nodes)

    await memory.pod(story, "third", cpus="2", pages_1gi="1Gi", memory="256Mi")
    await story.until_waiting("third", because="cannot allocate all claims")
    await story.delete("first")
    await story.until_running("third")
    memory.expects_limit(story, "third", "cpuset.mems", nodes[0])
