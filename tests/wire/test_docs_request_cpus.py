"""Tests in the sandbox that every manifest of docs/user/request-cpus.md gets the CPUs that the page promises."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from dracpu_api.cpuset import CpuSet
from dracpu_sandbox.cluster import Sandbox
from dracpu_sandbox.machines.description import Machine
from dracpu_sandbox.machines.presets import EPYC
from dracpu_sandbox.resources import CLAIM_TEMPLATES, CLAIMS, PODS
from dracpu_sandbox.stories.story import Story

PAGE: Final = Path(__file__).parents[2] / "docs/user/request-cpus.md"
PLURALS: Final = {resource.kind: resource for resource in (CLAIMS, CLAIM_TEMPLATES, PODS)}
Given = dict[str, CpuSet]  # container -> CPUs

# EPYC: NUMA node 0 has 0-7 and their threads 32-39, node 1 has 8-15 and 40-47; an L3 cache has 4 cores
NODE_0: Final = CpuSet.parse("0-7,32-39")
NODE_1: Final = CpuSet.parse("8-15,40-47")
FIRST_L3: Final = CpuSet.parse("0-3,32-35")

PROMISED: Final[dict[str, Callable[[Given], bool]]] = {
    "two-cpus": lambda given: len(given["main"]) == 2 and given["main"] <= NODE_0,
    "eight-on-numa-node-1": lambda given: len(given["main"]) == 8 and given["main"] <= NODE_1,
    "four-of-one-numa-node": lambda given: len(given["main"]) == 4 and given["main"] <= NODE_0,
    "cpus-4-to-7": lambda given: given["main"] == CpuSet.parse("4-7"),
    "spread": lambda given: len(given["main"]) == 10 and len(given["main"] & FIRST_L3) == 5,
    "front-and-back": lambda given: (
        (len(given["front"]), len(given["back"])) == (1, 2)
        and not given["front"] & given["back"]
        and given["front"] | given["back"] <= NODE_0
    ),
}


def shown() -> dict[str, tuple[str, list[dict[str, Any]]]]:
    """Returns the page's manifests by the name of their last object, each with the title of its section."""
    found = {}
    for section in re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:]:
        for block in re.findall(r"^```yaml\n(.*?)^```$", section, re.DOTALL | re.MULTILINE):
            objects = list(yaml.safe_load_all(block))
            found[objects[-1]["metadata"]["name"]] = (section.splitlines()[0], objects)
    return found


@pytest.fixture
def machine() -> Machine:
    return EPYC


def test_every_manifest_of_the_page_is_tested() -> None:
    assert set(shown()) == set(PROMISED)


@pytest.mark.parametrize("name", PROMISED)
async def test_a_manifest_of_the_page_gets_what_the_page_promises(name: str, cluster: Sandbox, story: Story) -> None:
    section, objects = shown()[name]
    if "individual mode" in section:
        await story.configure(mode="individual")
    for item in objects:
        item["metadata"].setdefault("namespace", "default")
        await cluster.client.create(PLURALS[item["kind"]], item)
    if objects[-1]["kind"] == CLAIMS.kind:
        await story.pod_of(name, {"main": [name]})
    await story.until_running(name)
    containers = (await cluster.client.get(PODS, name, "default"))["spec"]["containers"]
    given = {item["name"]: story.cpus(name, item["name"]) for item in containers}
    assert PROMISED[name](given), given
