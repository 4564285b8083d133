"""A pod names another pod's claim in its environment: it is refused, and the other keeps its CPUs to itself."""

from dracpu_api.names import CDI_ENV_PREFIX
from dracpu_sandbox.stories.telling import Story

MACHINES = ("lab",)


async def play(story: Story) -> None:
    (node,) = story.nodes
    await story.pod("victim", cpus=2)
    await story.until_running("victim")
    held, claim = story.cpus("victim"), await story.claim_of("victim")

    # what the driver gives to the containers of a claim, and to nobody else
    forged = {f"{CDI_ENV_PREFIX}{claim['metadata']['uid']}": str(held)}
    await story.pod("forger", node=node, environment=forged)
    await story.until_waiting("forger", because=CDI_ENV_PREFIX)
    story.expects_cpus("victim", held)

    await story.pod("honest", node=node)
    await story.until_running("honest")
    await story.until_exclusive()
