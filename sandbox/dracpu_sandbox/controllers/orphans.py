"""Pods of nodes that are gone: nobody would ever delete them."""

from collections.abc import Iterable
from functools import partial
from typing import ClassVar

from dracpu_sandbox.client import NotFoundError
from dracpu_sandbox.controllers.controller import Cluster, Controller, Duty
from dracpu_sandbox.resources import NODES, PODS, JsonObject
from dracpu_sandbox.scheduler.world import key_of


class PodCollector(Controller):
    """Deletes them at once; the real one waits 40 s, in case the node comes back."""

    name: ClassVar[str] = "pod-garbage-collector"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, cluster.pods, cluster.nodes)

    def duties(self) -> Iterable[Duty]:
        for pod in self.cluster.pods.all():
            node = pod["spec"].get("nodeName")
            if node and self.cluster.nodes.get(("", node)) is None:
                yield partial(self._delete, pod, node)

    async def _delete(self, pod: JsonObject, node: str) -> None:
        try:  # what is followed may be behind
            await self.cluster.client.get(NODES, node)
        except NotFoundError:
            namespace, name = key_of(pod)
            await self.cluster.client.delete(PODS, name, namespace, grace=0, uid=pod["metadata"]["uid"])
