"""Devices change from groups to single CPUs while a pod runs; it keeps its CPUs, and nothing restarts."""

from dracpu_sandbox.stories.telling import Story

MACHINES = ("lab",)


async def play(story: Story) -> None:
    (node,) = story.nodes
    await story.pod("steady", cpus=2)
    await story.until_running("steady")
    held = story.cpus("steady")

    await story.configure(mode="individual")
    names = {f"cpudev{cpu:03d}" for cpu in held}
    await story.until_devices(
        node,
        "one device a CPU, none of those that steady holds",
        lambda devices: (
            len(devices) > 0 and all(name.startswith("cpudev0") for name in devices) and names.isdisjoint(devices)
        ),
    )
    story.expects("steady has the CPUs that it had", story.cpus("steady") == held, story.cpus("steady"))

    await story.pod("single", devices=3)
    await story.until_running("single")
    story.expects("single has 3 CPUs", len(story.cpus("single")) == 3, story.cpus("single"))
    await story.until_exclusive()

    await story.delete("steady")
    await story.until_devices(node, "steady's CPUs among the devices", lambda devices: names <= set(devices))
    await story.until_ready()
