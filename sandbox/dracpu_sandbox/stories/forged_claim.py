"""A pod names another pod's claim in its environment: it is rejected, and the other pod keeps its CPUs exclusively."""

from dracpu_api.names import CPUS
from dracpu_sandbox.stories.story import Story

MACHINES = ("lab",)


async def play(story: Story) -> None:
    (node,) = story.nodes
    await story.pod("victim", cpus=2)
    await story.until_running("victim")
    held, claim = story.cpus("victim"), await story.claim_of("victim")

    # the variable that the driver adds to the containers of a claim only
    forged = {f"{CPUS.variables}{claim['metadata']['uid']}": str(held)}
    await story.pod("forger", node=node, environment=forged)
    await story.until_waiting("forger", because=CPUS.variables)
    story.expects_cpus("victim", held)

    await story.pod("honest", node=node)
    await story.until_running("honest")
    await story.until_exclusive()
