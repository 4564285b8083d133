"""Each device has the CPUs of one L3 cache: a claim fits into one cache, and cannot be larger."""

from dracpu_sandbox.stories.story import Story

MACHINES = ("epyc",)  # 8 L3 caches of 4 cores with 2 threads: CPUs 4n to 4n+3 and 32 above


def caches(cpus: set[int]) -> set[int]:
    """Returns the L3 caches of CPUs of this machine."""
    return {cpu % 32 // 4 for cpu in cpus}


async def play(story: Story) -> None:
    (node,) = story.nodes
    await story.configure(groupBy="l3cache")
    sizes = {f"cpudevl3cache{number:03d}": 8 for number in range(8)}
    await story.until_devices(node, sizes | {"cpudevl3cache000": 6})  # the lowest core is not offered

    pods = await story.pods(4, cpus=4)
    await story.until_running(*pods)
    for pod in pods:
        held = story.cpus(pod)
        story.expects(f"{pod} has 4 CPUs of one L3 cache", (len(held), len(caches(set(held)))) == (4, 1), held)

    await story.pod("larger-than-a-cache", cpus=9)
    await story.until_waiting("larger-than-a-cache", because="cannot allocate all claims")
    await story.until_exclusive()
