"""Deletes the pods of Nodes that were deleted: no kubelet would ever do it."""

from collections.abc import Iterator
from functools import partial

from dracpu_sandbox.client import NotFoundError
from dracpu_sandbox.controllers.cluster import Cluster, Duty
from dracpu_sandbox.resources import NODES, PODS, JsonObject, key_of


def pods_to_delete(cluster: Cluster) -> Iterator[Duty]:
    """Deletes them at once; the real controller waits 40 s, in case the Node comes back."""
    for pod in cluster.pods.all():
        node = pod["spec"].get("nodeName")
        if node and cluster.nodes.get(("", node)) is None:
            yield partial(_delete, cluster, pod, node)


async def _delete(cluster: Cluster, pod: JsonObject, node: str) -> None:
    try:  # what is followed may be behind
        await cluster.client.get(NODES, node)
    except NotFoundError:
        namespace, name = key_of(pod)
        await cluster.client.delete(PODS, name, namespace, grace=0, uid=pod["metadata"]["uid"])
