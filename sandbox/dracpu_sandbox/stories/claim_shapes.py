"""Containers and pods use claims in every way that Kubernetes allows; each container gets the CPUs of its requests."""

from dracpu_api.cpuset import CpuSet, union
from dracpu_api.names import CPUS
from dracpu_sandbox.resources import CLAIMS
from dracpu_sandbox.stories.manifests import NAMESPACE
from dracpu_sandbox.stories.story import Story

MACHINES = ("xeon",)


async def play(story: Story) -> None:
    await story.pod("plain")
    await story.until_running("plain")
    everything = story.cpus("plain")

    await story.claim("one", cpus=2)
    await story.claim("other", cpus=2)
    await story.pod_of("two-claims", {"left": ["one"], "right": ["other"], "none": []})
    await story.claim("split", left=2, right=1)
    await story.pod_of("two-requests", {"left": ["split/left"], "right": ["split/right"]})
    await story.claim("common", cpus=2)
    await story.pod_of("pair", {"left": ["common"], "right": ["common"]})
    await story.pod_of("second", {"main": ["common"]})
    await story.claim("both", cpus=2)
    await story.pod_of("prepared", {"main": ["both"]}, init={"prepare": ["both"]})
    await story.claim("early", cpus=2)
    await story.pod_of("prepared-only", {"main": []}, init={"prepare": ["early"]})
    await story.until_running("two-claims", "two-requests", "pair", "second", "prepared", "prepared-only")

    claims = {name: await _published(story, name) for name in ("one", "other", "split", "common", "both", "early")}
    sizes = {name: len(cpus) for name, cpus in claims.items()}
    expected = {"one": 2, "other": 2, "split": 3, "common": 2, "both": 2, "early": 2}
    story.expects("each claim has as many CPUs as it requests", sizes == expected, sizes)
    held = union(claims.values())
    story.expects("no two claims share a CPU", len(held) == sum(sizes.values()), held)

    story.expects_cpus("two-claims", claims["one"], "left")
    story.expects_cpus("two-claims", claims["other"], "right")
    await story.until_cpus("two-claims", everything - held, "none")
    left = story.cpus("two-requests", "left")
    story.expects("left has the 2 CPUs of its request", len(left) == 2, left)
    story.expects_cpus("two-requests", claims["split"] - left, "right")
    await _expect_own_variable(story, "two-requests", "left", "split", left)
    story.expects_cpus("pair", claims["common"], "left")
    story.expects_cpus("pair", claims["common"], "right")
    story.expects_cpus("second", claims["common"])
    story.expects_cpus("prepared", claims["both"])
    for pod, claim in (("prepared", "both"), ("prepared-only", "early")):
        found = story.cpus_at_start(pod, "prepare")
        story.expects(f"the init container of {pod} ran on the CPUs of its claim", found == claims[claim], found)
    await story.until_cpus("prepared-only", everything - held)

    await story.crash_container("two-claims", "left")
    story.expects_cpus("two-claims", claims["one"], "left")
    story.expects_cpus("two-claims", everything - held, "none")

    await story.delete("pair")
    story.expects_cpus("second", claims["common"])
    await story.until_cpus("plain", everything - held)
    await story.delete("second")
    await story.until_cpus("plain", everything - (held - claims["common"]))


async def _published(story: Story, claim: str) -> CpuSet:
    """Returns the CPUs in a claim's status, which applications can read."""

    async def devices() -> list[str]:
        status = (await story.client.get(CLAIMS, claim, NAMESPACE))["status"]
        return [device["data"]["cpuset"] for device in status.get("devices") or ()]

    async def complete() -> bool:
        status = (await story.client.get(CLAIMS, claim, NAMESPACE))["status"]
        return len(await devices()) == len(status["allocation"]["devices"]["results"])

    await story.until(f"the status of claim {claim} names its CPUs", complete)
    return union(CpuSet.parse(cpus) for cpus in await devices())


async def _expect_own_variable(story: Story, pod: str, container: str, claim: str, cpus: CpuSet) -> None:
    uid = (await story.client.get(CLAIMS, claim, NAMESPACE))["metadata"]["uid"]
    environment = story.node(story.node_of(pod)).environment_of(NAMESPACE, pod, container)
    found = {name: value for name, value in environment.items() if name.startswith(CPUS.variables)}
    story.expects(
        f"{container} has only the variable of its own request",
        found == {f"{CPUS.variables}{uid}_{container}": str(cpus)},
        found,
    )
