"""Measures the agent in a separate process, with a fake API server, kubelet and runtime: the time to register, prepare
and place, and the memory while serving. Asserts no times or sizes.

For the memory on a node, set AGENT_PYTHON to the Python of a virtual environment with only the agent's dependencies:
development tools change what libraries load.
"""

from statistics import median, quantiles
from time import perf_counter

from agent_process import agent, memory
from fake_api import FakeApi
from fake_kubelet import FakeKubelet, kubelet_root
from nodes import NODE, claim_object, ref, share, spec, uid

from dracpu_api.settings import encode_spec
from dracpu_sandbox.machines.presets import EPYC_NPS4
from dracpu_sandbox.machines.tree import directory, write_tree
from dracpu_sandbox.node.containers import PodSandbox
from dracpu_sandbox.node.nri_runtime import NriRuntime

CLAIMS = 100
AT_ONCE = 60
SHARED = 200
LISTED = 500


def milliseconds(seconds: list[float]) -> str:
    """Median and 99th percentile."""
    return f"p50 {median(seconds) * 1e3:.2f} ms, p99 {quantiles(seconds, n=100)[98] * 1e3:.2f} ms"


async def test_what_the_agent_costs() -> None:
    with directory() as machine, kubelet_root() as root:
        sysfs, procfs = write_tree(EPYC_NPS4, machine)
        async with FakeApi() as api, NriRuntime(root / "nri.sock") as runtime, FakeKubelet(root) as kubelet:
            api.add("nodes", {"metadata": {"name": NODE}})
            api.add("cpunodes", {"metadata": {"name": NODE}, "spec": encode_spec(spec())})
            started = perf_counter()
            async with agent(root, api, sysfs, procfs) as process:
                plugin = await kubelet.register("dra.cpu")
                print(f"\nstart to registered      {perf_counter() - started:.2f} s")
                await runtime.synchronized()
                await api.until(lambda: api.all("resourceslices"))
                print(f"memory idle              {memory(process.pid)}")

                for number in range(CLAIMS + AT_ONCE):
                    api.add(
                        "resourceclaims",
                        claim_object(number, [share(f"cpudevnuma{number % 4:03d}", 1)]),
                        namespace="default",
                    )
                times = []
                for number in range(CLAIMS):
                    begun = perf_counter()
                    await plugin.prepare_one(ref(number))
                    times.append(perf_counter() - begun)
                    await plugin.unprepare_one(ref(number))
                print(f"prepare one claim        {milliseconds(times)} (a fake API server included)")
                begun = perf_counter()
                await plugin.prepare(*(ref(CLAIMS + number) for number in range(AT_ONCE)))
                print(f"prepare {AT_ONCE} in one call    {(perf_counter() - begun) * 1e3:.0f} ms")

                for number in range(SHARED):
                    await runtime.create_container(PodSandbox(f"shared-{number}"), "c")
                times = []
                for number in range(AT_ONCE):
                    device = f"dra.k8s.io/cpu=claim-{uid(CLAIMS + number)}"
                    begun = perf_counter()
                    await runtime.create_container(PodSandbox(f"pinned-{number}"), "c", cdi_devices=[device])
                    times.append(perf_counter() - begun)
                print(f"create with {SHARED} others   {milliseconds(times)} (CreateContainer, PostCreate and Start)")
                for number in range(LISTED - SHARED - AT_ONCE):
                    await runtime.create_container(PodSandbox(f"more-{number}"), "c")
                begun = perf_counter()
                await runtime.restart()
                await runtime.synchronized()
                print(f"reconnect, synchronize   {(perf_counter() - begun) * 1e3:.0f} ms with {LISTED} containers")
                print(f"memory serving           {memory(process.pid)}")
    assert not runtime.lost, "the plugin answered every hook in time"
