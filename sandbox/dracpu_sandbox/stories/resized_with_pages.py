"""Pods use hugepages with and without a claim; a pod with a claim keeps its hugepages when it is resized."""

from dracpu_sandbox.stories import memory
from dracpu_sandbox.stories.memory import MI, SMALL
from dracpu_sandbox.stories.story import Story

MACHINES = ("lab",)
LIMITS = {"cpu": "1", "memory": "128Mi"}
PAGES = ("hugetlb.2MB.max", "hugetlb.2MB.rsvd.max")


async def play(story: Story) -> None:
    await memory.offer(story)
    await memory.pod_without_claim(story, "plain", {**LIMITS, "hugepages-2Mi": "32Mi"})
    await story.until_running("plain")
    story.expects("plain gets the pages of its spec", await memory.takes(story, "plain", 32 * MI, page=SMALL))

    await memory.pod(story, "claimed", pages_2mi="64Mi", memory="256Mi", limits=LIMITS)
    await story.until_running("claimed")
    memory.expects_limit(story, "claimed", "memory.max", 128 * MI)
    story.expects("claimed gets the pages of its claim", await memory.takes(story, "claimed", 64 * MI, page=SMALL))

    await memory.resize(story, "claimed", cpu="1", memory="192Mi")
    await memory.until_limit(story, "claimed", "memory.max", 192 * MI)
    story.report("the kubelet has set the hugepages of the pod to 0, and the agent repairs them")
    for file in PAGES:
        await memory.until_limit(story, "claimed", file, 64 * MI, of_pod=True)
    story.expects("claimed gets no more pages", not await memory.takes(story, "claimed", SMALL, page=SMALL))
    story.expects("plain gets no more pages either", not await memory.takes(story, "plain", SMALL, page=SMALL))
