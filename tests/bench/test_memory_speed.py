"""Measures the agent with the driver of memory in a separate process: claims of memory and of both drivers, the hooks
of their containers, and its own memory. Asserts no times or sizes.

Set AGENT_PYTHON as for test_agent_speed.py.
"""

from collections.abc import Awaitable
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import Any

import pytest
from agent_process import agent, memory
from cgroup_trees import write_limits, write_tree
from fake_api import FakeApi
from fake_kubelet import FakeKubelet, kubelet_root
from nodes import NODE, claim_object, ref, share, spec, uid

from dracpu_api.settings import MemorySettings, encode_spec
from dracpu_sandbox.machines.presets import EPYC_NPS4
from dracpu_sandbox.machines.tree import directory
from dracpu_sandbox.machines.tree import write_tree as write_machine
from dracpu_sandbox.node.containers import PodSandbox
from dracpu_sandbox.node.nri_runtime import NriRuntime

CPUS, MEMORY = "dra.cpu", "dra.memory"
MI = 1024**2
CLAIMS = 60
SHARED = 200


def milliseconds(seconds: list[float]) -> str:
    """Median and 99th percentile."""
    return f"p50 {median(seconds) * 1e3:.2f} ms, p99 {quantiles(seconds, n=100)[98] * 1e3:.2f} ms"


async def timed(work: Awaitable[Any]) -> float:
    """How long it takes, in seconds."""
    begun = perf_counter()
    await work
    return perf_counter() - begun


def amount(device: str, size: int, request: str) -> dict[str, Any]:
    return share(device, 1, request) | {"driver": MEMORY, "consumedCapacity": {"size": str(size)}}


def pod_of(number: int) -> str:
    return f"pod-{number}"


def add_claim(api: FakeApi, number: int, *, cpus: bool) -> None:
    """A claim of memory and pages, and perhaps of CPUs, on one NUMA node."""
    numa = number % 4
    results = [
        amount(f"memory-numa{numa:03d}", 64 * MI, "memory"),
        amount(f"hugepages-2mi-numa{numa:03d}", 4 * MI, "pages"),
    ]
    if cpus:
        results.append(share(f"cpudevnuma{numa:03d}", 1, "cpus"))
    api.add("resourceclaims", claim_object(number, results, pods=[pod_of(number)]), namespace="default")


def add_pod(tree: Path, number: int) -> PodSandbox:
    """A pod, and its cgroup as the kubelet makes it."""
    cgroup = f"kubepods/besteffort/pod{pod_of(number)}"
    write_limits(write_tree(tree, cgroup), {"2MB": "0", "1GB": "0"})
    return PodSandbox(pod_of(number), uid=pod_of(number), cgroup=cgroup)


def devices_of(number: int) -> list[str]:
    """The CDI devices of claim `number`."""
    return [
        f"dra.k8s.io/memory=claim-{uid(number)}-memory",
        f"dra.k8s.io/memory=claim-{uid(number)}-pages",
        f"dra.k8s.io/cpu=claim-{uid(number)}",
    ]


@pytest.mark.parametrize("settings", [MemorySettings(enabled=True), MemorySettings()], ids=["enabled", "disabled"])
async def test_what_the_agent_costs_with_memory(settings: MemorySettings) -> None:
    with directory() as machine, directory() as tree, kubelet_root() as root:
        sysfs, procfs = write_machine(EPYC_NPS4, machine)
        write_tree(tree, "kubepods/besteffort")
        async with FakeApi() as api, NriRuntime(root / "nri.sock") as runtime, FakeKubelet(root) as kubelet:
            allocatable = {"capacity": {"memory": "512Gi"}, "allocatable": {"memory": "480Gi"}}
            api.add("nodes", {"metadata": {"name": NODE}, "status": allocatable})
            api.add("cpunodes", {"metadata": {"name": NODE}, "spec": encode_spec(spec(memory=settings))})
            options = {"--memory-cgroups": tree, "--cgroupfs-root": tree}
            started = perf_counter()
            async with agent(root, api, sysfs, procfs, options) as process:
                cpus = await kubelet.register(CPUS)
                plugin = await kubelet.register(MEMORY)
                print(f"\nstart to registered      {perf_counter() - started:.2f} s (both drivers)")
                await runtime.synchronized()
                drivers = {CPUS, MEMORY} if settings.enabled else {CPUS}
                await api.until(lambda: {item["spec"]["driver"] for item in api.all("resourceslices")} == drivers)
                print(f"memory idle              {memory(process.pid)}")
                if not settings.enabled:
                    return
                for number in range(2 * CLAIMS):
                    add_claim(api, number, cpus=number >= CLAIMS)
                pods = [add_pod(tree, number) for number in range(2 * CLAIMS)]
                times = [await timed(plugin.prepare_one(ref(number))) for number in range(CLAIMS)]
                print(f"prepare memory, pages    {milliseconds(times)}")
                times = [await timed(plugin.unprepare_one(ref(number))) for number in range(CLAIMS)]
                print(f"unprepare                {milliseconds(times)}")
                both = range(CLAIMS, 2 * CLAIMS)
                times = []
                for number in both:
                    begun = perf_counter()
                    await cpus.prepare_one(ref(number))
                    await plugin.prepare_one(ref(number))
                    times.append(perf_counter() - begun)
                print(f"prepare by both drivers  {milliseconds(times)}")
                for number in range(SHARED):
                    await runtime.create_container(PodSandbox(f"shared-{number}"), "c")
                times = [
                    await timed(runtime.create_container(pods[number], "c", cdi_devices=devices_of(number)))
                    for number in both
                ]
                print(f"create with {SHARED} others   {milliseconds(times)} (CreateContainer, PostCreate and Start)")
                print(f"memory serving           {memory(process.pid)}")
    assert not runtime.lost, "the plugin answered every hook in time"
