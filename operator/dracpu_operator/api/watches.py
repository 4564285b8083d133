"""All watches of the operator: kopf's of the configs, and our own of everything else."""

import asyncio
from functools import partial

from dracpu_api.backoff import Backoff
from dracpu_api.errors import ApiError
from dracpu_api.resources import CONFIGS
from dracpu_operator.api.cluster import Cluster
from dracpu_operator.errors import WatchError
from dracpu_operator.intervals import Intervals
from dracpu_operator.known.fleet import Fleet
from dracpu_operator.known.followers import agent_followers, object_followers
from dracpu_operator.known.standing import Standing
from dracpu_operator.metrics import Metrics


class Watches:
    """The watches, and what the operator misses without them. `configs` is how it stands with kopf's watch."""

    def __init__(self, fleet: Fleet, cluster: Cluster, metrics: Metrics, intervals: Intervals, namespace: str) -> None:
        # the watch before may have ended because the CRD was replaced, and may have shown configs without new fields
        self.configs = Standing(CONFIGS.plural, intervals.blind, fleet.list_configs_again)
        self._cluster = cluster
        self._intervals = intervals
        self._followers = [
            *object_followers(fleet, cluster, intervals),
            *agent_followers(fleet, cluster, intervals, namespace),
        ]
        self._standings = [self.configs, *(follower.standing for follower in self._followers)]
        for standing in self._standings:
            metrics.show_following(standing.what, partial(getattr, standing, "is_following"))

    def start(self, group: asyncio.TaskGroup) -> set[asyncio.Task[None]]:
        """Starts our own watches."""
        return {
            group.create_task(follower.run(), name=f"following {follower.standing.what}")
            for follower in self._followers
        }

    async def until_settled(self) -> None:
        """Waits until our own watches have listed all objects."""
        for follower in self._followers:
            await follower.is_settled.wait()

    def troubles(self) -> list[str]:
        """Why the operator may miss changes."""
        return [trouble for trouble in (standing.trouble() for standing in self._standings) if trouble]

    async def until_kopf_may_start(self, loaded: asyncio.Event) -> None:
        """Waits until all objects have been listed, and until the API server describes the configs. It may list them
        before. kopf looks once which kinds are described, and watches nothing where it does not find this one."""
        await loaded.wait()
        backoff = Backoff(self._intervals.retry_first, self._intervals.retry_cap)
        while True:
            try:
                if await self._cluster.discovers(CONFIGS):
                    return
                self.configs.failed("the API server does not describe them yet")
            except ApiError as error:
                self.configs.failed(str(error))
            await asyncio.sleep(backoff.next())

    async def until_blind(self, loaded: asyncio.Event) -> WatchError:
        """Waits until kopf has still not requested the configs some time after all objects were listed. With several
        API servers, it may have asked one that does not describe the configs yet. Returns the error to raise."""
        await loaded.wait()
        seconds = self._intervals.discovery
        try:
            async with asyncio.timeout(seconds):
                await self.configs.is_requested.wait()
        except TimeoutError:
            return WatchError(
                f"{CONFIGS.plural}.{CONFIGS.group} can be listed, but the API server has not described them for "
                f"{seconds:.0f} s: are the chart's CRDs complete, or is one of several API servers behind?"
            )
        never: asyncio.Future[WatchError] = asyncio.get_running_loop().create_future()
        return await never
