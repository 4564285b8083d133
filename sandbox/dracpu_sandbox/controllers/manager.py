"""Runs all controllers: after each change, they look at all objects and make the changes that are still missing."""

import asyncio
import logging
from typing import Final, NoReturn

from dracpu_sandbox.client import KubeClient, NotFoundError
from dracpu_sandbox.controllers.cluster import Cluster
from dracpu_sandbox.controllers.generated import claims_to_make, claims_to_remove
from dracpu_sandbox.controllers.releasing import claims_to_release
from dracpu_sandbox.errors import SandboxError
from dracpu_sandbox.following import pause_after

_GATHERING_SECONDS: Final = 0.01  # changes arrive in bursts; one sweep handles many
_CONTROLLERS: Final = (claims_to_make, claims_to_release, claims_to_remove)

_log = logging.getLogger(__name__)


async def run(client: KubeClient) -> None:
    """Runs the controllers until it is cancelled."""
    cluster, wake = Cluster(client), asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        for following in cluster.followed:
            following.listen(lambda event: wake.set())
            tasks.create_task(following.run(), name="controllers follow")
        tasks.create_task(cluster.events.run(), name="controllers post events")
        await _sweep_for_ever(cluster, wake)


async def _sweep_for_ever(cluster: Cluster, wake: asyncio.Event) -> NoReturn:
    while True:
        await wake.wait()
        await asyncio.sleep(_GATHERING_SECONDS)
        wake.clear()
        if not all(following.ready for following in cluster.followed):
            continue  # the last watch to become ready starts the next sweep
        if pause := await _sweep(cluster):
            await asyncio.sleep(pause)
            wake.set()


async def _sweep(cluster: Cluster) -> float:
    """Runs each duty; a failure does not prevent the others. Returns the seconds to wait before a retry, 0 for none."""
    pause = 0.0
    for controller in _CONTROLLERS:
        for duty in list(controller(cluster)):
            try:
                await duty()
            except NotFoundError:
                continue  # the object was deleted meanwhile: nothing is left to do
            except SandboxError as error:
                _log.info("a controller will retry: %s", error)
                pause = max(pause, pause_after(error))
    return pause
