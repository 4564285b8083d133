"""Each CPU is a device with its location; a pod runs on the CPUs that its claim's allocation names."""

from dracpu_api.cpuset import CpuSet
from dracpu_sandbox.resources import SLICES
from dracpu_sandbox.stories.manifests import single_devices
from dracpu_sandbox.stories.story import Story

MACHINES = ("lab",)  # 8 CPUs in two NUMA nodes; the lowest core is not offered


async def play(story: Story) -> None:
    (node,) = story.nodes
    await story.configure(mode="individual")
    await story.until_devices(node, single_devices(CpuSet.parse("2-7")))
    for item in await story.client.list(SLICES):
        for device in item["spec"]["devices"]:
            cpu, attributes = int(device["name"].removeprefix("cpudev")), device["attributes"]
            where = attributes["dra.cpu/cpuID"], attributes["resource.kubernetes.io/numaNode"]
            expected = {"int": cpu}, {"int": cpu // 4}
            story.expects(f"{device['name']} has its CPU and NUMA node as attributes", where == expected, where)

    await story.pod("plain")
    await story.pod("exclusive", devices=4, numa_node=1)
    await story.until_running("plain", "exclusive")
    results = (await story.claim_of("exclusive"))["status"]["allocation"]["devices"]["results"]
    named = CpuSet(int(result["device"].removeprefix("cpudev")) for result in results)
    story.expects("the allocation names the CPUs of NUMA node 1", named == CpuSet.parse("4-7"), named)
    story.expects_cpus("exclusive", named)
    story.expects("the container had these CPUs from its start", story.cpus_at_start("exclusive", "main") == named)
    await story.until_cpus("plain", CpuSet.parse("2-3"))

    await story.delete("exclusive")
    await story.until_cpus("plain", CpuSet.parse("2-7"))
