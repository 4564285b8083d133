"""What all controllers are: they look at everything, and do what is still to be done, again and again."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, ClassVar, Final

from dracpu_sandbox.client import KubeClient, NotFoundError
from dracpu_sandbox.errors import SandboxError
from dracpu_sandbox.resources import CLAIM_TEMPLATES, CLAIMS, EVENTS, NODES, PODS, JsonObject
from dracpu_sandbox.scheduler.events import pod_event
from dracpu_sandbox.scheduler.following import Following, pause_after

Duty = Callable[[], Coroutine[Any, Any, None]]

_GATHERING_SECONDS: Final = 0.01  # changes come in crowds; one sweep does for many

_log = logging.getLogger(__name__)


class Cluster:
    """What the controllers follow."""

    def __init__(self, client: KubeClient) -> None:
        self.client = client
        self.pods = Following(client, PODS)
        self.nodes = Following(client, NODES)
        self.claims = Following(client, CLAIMS)
        self.templates = Following(client, CLAIM_TEMPLATES)

    @property
    def all(self) -> Sequence[Following]:
        """Everything that is followed."""
        return self.pods, self.nodes, self.claims, self.templates


class Controller:
    """Sweeps whenever something that it watches has changed, and after a failure."""

    name: ClassVar[str]

    def __init__(self, cluster: Cluster, *watched: Following) -> None:
        self.cluster = cluster
        self._watched = watched
        self._wake = asyncio.Event()
        for following in watched:
            following.listen(lambda event: self._wake.set())

    def duties(self) -> Iterable[Duty]:
        """What is to be done now."""
        raise NotImplementedError

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._wake.wait()
            await asyncio.sleep(_GATHERING_SECONDS)
            self._wake.clear()
            if not all(following.ready for following in self._watched):
                continue  # the last one to be ready wakes us
            if pause := await self._sweep():
                await asyncio.sleep(pause)
                self._wake.set()

    async def _sweep(self) -> float:
        """Seconds until the next one; 0: all is done. One failure does not keep the rest from being done."""
        pause = 0.0
        for duty in self.duties():
            try:
                await duty()
            except NotFoundError:
                continue  # gone meanwhile: nothing is left to do
            except SandboxError as error:
                _log.info("%s tries again: %s", self.name, error)
                pause = max(pause, pause_after(error))
        return pause

    async def tell(self, pod: JsonObject, *, reason: str, note: str, action: str) -> None:
        """A warning on a pod."""
        event = pod_event(pod, reporter=self.name, reason=reason, note=note, action=action, warning=True)
        await self.cluster.client.create(EVENTS, event, pod["metadata"]["namespace"])
