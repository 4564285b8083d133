"""Measures how soon the agent, in a separate process, repairs the limits of a pod's hugepages after something else has
written 0 into its cgroup, as the kubelet does with each in-place resize. Asserts no times.

The cgroup tree is made of plain files in memory, as a machine with cgroup v2, hugetlb and root is not always at hand:
the kernel reports writes to both with inotify.
"""

import asyncio
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import median, quantiles
from time import perf_counter, sleep

from agent_process import agent, memory
from cgroup_trees import write_cgroup, write_limits, write_tree
from fake_api import FakeApi
from fake_kubelet import FakeKubelet, kubelet_root
from nodes import NODE, claim_object, ref, share, spec

from dracpu_api.settings import MemorySettings, encode_spec
from dracpu_sandbox.machines.description import Memory
from dracpu_sandbox.machines.presets import LAB
from dracpu_sandbox.machines.tree import directory
from dracpu_sandbox.machines.tree import write_tree as write_machine
from dracpu_sandbox.node.nri_runtime import NriRuntime

MI = 1024**2
PODS = 60
REPAIRS = 400
SHARED_MEMORY = Path("/dev/shm")
IN_MEMORY = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
MACHINE = replace(LAB, memory=tuple(Memory(numa, 4 * 1024**2, ((2048, 512, 512, 0),), tier=4) for numa in (0, 1)))
FILES = ("hugetlb.2MB.rsvd.max", "hugetlb.2MB.max")


async def until(condition: Callable[[], bool]) -> None:
    """Waits for the agent's process."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - another process does it
            await asyncio.sleep(0.01)


def shows(cgroup: Path, limit: int) -> bool:
    return all((cgroup / file).read_text().strip() == str(limit) for file in FILES)


def write_zero(file: Path) -> None:
    """Replaces the text in one step, as the kernel does: nobody reads an empty file."""
    with file.open("r+") as opened:
        opened.write("0" * (len(str(2 * MI))) + "\n")


def reset(cgroup: Path) -> float:
    """Writes 0 as the kubelet does; returns how long the agent needs to repair it."""
    begun = perf_counter()
    for file in FILES:
        write_zero(cgroup / file)
    while not shows(cgroup, 2 * MI):
        sleep(0.0002)
    return perf_counter() - begun


async def test_how_soon_limits_of_pages_are_repaired() -> None:
    with (
        tempfile.TemporaryDirectory(dir=IN_MEMORY) as trees,
        directory() as machine,
        kubelet_root() as root,
    ):
        sysfs, procfs = write_machine(MACHINE, machine)
        tree = Path(trees)
        write_tree(tree, "kubepods")
        cgroups = [
            write_limits(write_cgroup(tree / f"kubepods/podpod-{number}"), {"2MB": "0", "1GB": "0"})
            for number in range(PODS)
        ]
        async with FakeApi() as api, NriRuntime(root / "nri.sock") as runtime, FakeKubelet(root) as kubelet:
            api.add("nodes", {"metadata": {"name": NODE}})
            settings = spec(memory=MemorySettings(enabled=True))
            api.add("cpunodes", {"metadata": {"name": NODE}, "spec": encode_spec(settings)})
            async with agent(root, api, sysfs, procfs, {"--memory-cgroups": tree}) as process:
                await kubelet.register("dra.cpu")
                plugin = await kubelet.register("dra.memory")
                await runtime.synchronized()
                await api.until(lambda: len(api.all("resourceslices")) == 2)
                for number in range(PODS):
                    result = share("hugepages-2mi-numa000", 1) | {
                        "driver": "dra.memory",
                        "consumedCapacity": {"size": str(2 * MI)},
                    }
                    api.add(
                        "resourceclaims", claim_object(number, [result], pods=[f"pod-{number}"]), namespace="default"
                    )
                    await plugin.prepare_one(ref(number))
                await until(lambda: all(shows(cgroup, 2 * MI) for cgroup in cgroups))
                chosen = Random(1)
                times = [reset(chosen.choice(cgroups)) for _ in range(REPAIRS)]
                percentile = quantiles(times, n=100)
                in_short = f"p50 {median(times) * 1e3:.2f} ms, p99 {percentile[98] * 1e3:.2f} ms"
                print(f"\nrepair one of {PODS} pods     {in_short}, longest {max(times) * 1e3:.2f} ms of {REPAIRS}")
                begun = perf_counter()
                for cgroup in cgroups:
                    for file in FILES:
                        write_zero(cgroup / file)
                await until(lambda: all(shows(cgroup, 2 * MI) for cgroup in cgroups))
                print(f"repair all {PODS} at once      {(perf_counter() - begun) * 1e3:.0f} ms")
                print(f"memory serving           {memory(process.pid)}")
