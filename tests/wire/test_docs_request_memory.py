"""Tests in the sandbox that every pod of docs/user/request-memory.md gets the memory that the page promises."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml

from dracpu_sandbox.cluster import Sandbox
from dracpu_sandbox.machines.description import Machine
from dracpu_sandbox.machines.presets import EPYC
from dracpu_sandbox.node.containers import Container
from dracpu_sandbox.resources import CLAIM_TEMPLATES, CONFIGS, PODS, SLICES
from dracpu_sandbox.stories.story import Story

PAGE: Final = Path(__file__).parents[2] / "docs/user/request-memory.md"
PLURALS: Final = {resource.kind: resource for resource in (CLAIM_TEMPLATES, PODS)}
MI: Final = 1 << 20
WITH_CPUS: Final = frozenset({"one-request"})  # manifests that need memory.publish: WithCPUs


class Given(NamedTuple):
    """The CPUs, limits and mounts of a container."""

    cpus: str
    limits: dict[str, str]
    container: Container

    @property
    def mounts(self) -> list[tuple[str, str, list[str]]]:
        return [(mount.destination, mount.type, list(mount.options)) for mount in self.container.mounts]


PROMISED: Final[dict[str, Callable[[Given], bool]]] = {
    "packet-processor": lambda given: (
        (given.limits["memory.max"], given.limits["cpuset.mems"]) == (str(512 * MI), "0")
        and given.limits["hugetlb.2MB.max"] == str(1024 * MI)
        and given.cpus == "1,33"
        and not given.mounts
        and not given.container.preferred
    ),
    "one-request": lambda given: (
        (given.limits["memory.max"], given.limits["cpuset.mems"]) == (str(512 * MI), "0")
        and given.limits["hugetlb.2MB.max"] == str(1024 * MI)
        and given.cpus == "1,33"
    ),
    "near-memory": lambda given: (
        given.limits["memory.max"] == str(512 * MI)
        and "cpuset.mems" not in given.limits
        and str(given.container.preferred) == "0"
    ),
    "dpdk": lambda given: (
        (given.limits["memory.max"], given.limits["cpuset.mems"]) == (str(512 * MI), "0")
        and given.limits["hugetlb.1GB.max"] == str(1024 * MI)
        and given.cpus == "1,33"  # of NUMA node 0
        and given.mounts
        == [
            (
                "/dev/hugepages",
                "hugetlbfs",
                ["nosuid", "nodev", "pagesize=1G", f"size={1024 * MI}", "mode=1777"],
            )
        ]
    ),
}


def shown() -> dict[str, list[dict[str, Any]]]:
    """Returns the page's manifests that end with a pod, by its name."""
    blocks = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    found = [list(yaml.safe_load_all(block)) for block in blocks]
    return {objects[-1]["metadata"]["name"]: objects for objects in found if objects[-1]["kind"] == PODS.kind}


@pytest.fixture
def machine() -> Machine:
    return EPYC


def test_every_pod_of_the_page_is_tested() -> None:
    assert set(shown()) == set(PROMISED)


@pytest.mark.parametrize("name", PROMISED)
async def test_a_manifest_of_the_page_gets_what_the_page_promises(name: str, cluster: Sandbox, story: Story) -> None:
    publish = "WithCPUs" if name in WITH_CPUS else "Devices"
    await cluster.client.patch(CONFIGS, "default", {"spec": {"memory": {"enabled": True, "publish": publish}}})

    async def offered() -> bool:
        slices = [item["spec"] for item in await cluster.client.list(SLICES)]
        devices = {device["name"]: device for item in slices for device in item.get("devices") or ()}
        if name in WITH_CPUS:
            return "dra.cpu/memory" in devices.get("cpudevnuma000", {}).get("capacity", ())
        return "memory-numa000" in devices

    await story.until("memory is offered", offered)
    for item in shown()[name]:
        item["metadata"].setdefault("namespace", "default")
        await cluster.client.create(PLURALS[item["kind"]], item)
    await story.until_running(name)
    container = cluster.nodes["node-1"].container_of("default", name, "main")
    given = Given(container.cpus, dict(container.cgroup_limits), container)
    assert PROMISED[name](given), given
