"""All controllers together."""

import asyncio

from dracpu_sandbox.client import KubeClient
from dracpu_sandbox.controllers.controller import Cluster, Controller
from dracpu_sandbox.controllers.generated import ClaimMaker, ClaimRemover
from dracpu_sandbox.controllers.orphans import PodCollector
from dracpu_sandbox.controllers.releasing import ClaimReleaser


async def run(client: KubeClient) -> None:
    """Until cancelled."""
    cluster = Cluster(client)
    controllers: list[Controller] = [
        ClaimMaker(cluster),
        ClaimReleaser(cluster),
        ClaimRemover(cluster),
        PodCollector(cluster),
    ]
    async with asyncio.TaskGroup() as tasks:
        for following in cluster.all:
            tasks.create_task(following.run(), name="controllers follow")
        for controller in controllers:
            tasks.create_task(controller.run(), name=controller.name)
