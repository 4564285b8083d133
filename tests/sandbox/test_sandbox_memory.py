"""Pods with memory and hugepages in the whole system: scheduled, admitted, limited and resized through the API."""

from typing import Any

from memory_node import LIMITS, MI, content

from dracpu_sandbox.client import STRATEGIC
from dracpu_sandbox.cluster import Sandbox
from dracpu_sandbox.resources import PODS
from dracpu_sandbox.stories.story import Story


def pod(name: str, pages: str, memory: str = "128Mi") -> dict[str, Any]:
    resources = {"limits": {"memory": memory, "hugepages-2Mi": pages}, "requests": {"memory": "64Mi"}}
    main = {"name": "main", "image": "busybox", "resources": resources}
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [main]}}


async def test_a_pod_with_hugepages_is_scheduled_while_they_last_and_loses_them_by_a_resize(
    cluster: Sandbox, story: Story
) -> None:
    await cluster.client.create(PODS, pod("web", "32Mi"))
    await story.until_running("web")
    node = cluster.nodes["node-1"]
    limits = node.cgroup_of("default", "web", "main").parent
    assert content(limits, "memory.max", *LIMITS[:2]) == [str(128 * MI), str(32 * MI), str(32 * MI)]
    await cluster.client.create(PODS, pod("greedy", "500Mi"))
    await story.until_waiting("greedy", "Insufficient hugepages-2Mi")

    larger = {"spec": {"containers": [{"name": "main", "resources": {"limits": {"memory": "256Mi"}}}]}}
    await cluster.client.patch(PODS, "web", larger, "default", subresource="resize", kind=STRATEGIC)
    await story.until(
        "the pod has its new limit, and no pages",
        lambda: content(limits, "memory.max", *LIMITS[:2]) == [str(256 * MI), "0", "0"],
    )
