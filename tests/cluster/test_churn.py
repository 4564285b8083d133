"""Under churn, no container runs on a CPU of another's claim at any moment, and a claim's containers run on its CPUs.

Only real nodes show this: the cgroups and the threads of all containers are read every 50 ms, on two nodes at once.
"""

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Final

import pytest
from harness.churn import Resize, Wave, plan, templates
from harness.cluster import Cluster
from harness.exclusivity import Fault, Kind
from harness.holding import ALL, hold
from harness.kubectl import condition
from harness.node import Node
from harness.sampling import sampled
from harness.waiting import eventually
from harness.workspace import Workspace
from lab.host import report

from dracpu_api.cpuset import CpuSet

SEED: Final = 12
SECONDS: Final = 170  # a wave that has begun is completed
WAVES: Final = 60
PACE: Final = 4.0  # seconds from the start of one wave to the start of the next
KILL_EVERY: Final = 9  # waves

Task = Callable[[], object]


class Churn:
    """Carries out waves in one namespace."""

    def __init__(self, cluster: Cluster, workspace: Workspace) -> None:
        self._nodes = {node.name: node for node in cluster.nodes}
        self._kubectl = workspace.kubectl
        self._namespace = workspace.namespace
        self.operations = 0

    def run(self, waves: Sequence[Wave]) -> None:
        """Carries out as many waves as fit into the time."""
        start = time.monotonic()
        with ThreadPoolExecutor(max_workers=8) as pool:
            for number, wave in enumerate(waves):
                time.sleep(max(0.0, start + number * PACE - time.monotonic()))
                if time.monotonic() - start > SECONDS:
                    return
                for running in [pool.submit(task) for task in self._tasks(wave)]:
                    running.result()
                self.operations += wave.operations

    def _tasks(self, wave: Wave) -> list[Task]:
        tasks: list[Task] = [partial(self._resize, resize) for resize in wave.resized]
        tasks += [partial(self._kill_agent, self._nodes[name]) for name in wave.killed]
        if wave.created:
            text = json.dumps({"apiVersion": "v1", "kind": "List", "items": wave.created})
            tasks.append(partial(self._run, "create", "--validate=false", "-f", "-", text=text))
        if wave.deleted:
            tasks.append(partial(self._run, "delete", "pod", *wave.deleted, "--wait=false"))
        return tasks

    def _resize(self, resize: Resize) -> None:
        self._run("patch", "pod", resize.pod, "--subresource=resize", "--patch", json.dumps(resize.patch))

    def _kill_agent(self, node: Node) -> None:
        node.kill_container(node.running_container("agent"))

    def _run(self, *words: str, text: str | None = None) -> None:
        self._kubectl.run(*words, "--namespace", self._namespace, text=text)


def test_claims_are_exclusive_at_every_moment_of_churn(
    cluster: Cluster, workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    kubectl, namespace = workspace.kubectl, workspace.namespace
    kubectl.apply(*templates(), namespace=namespace)
    names = [node.name for node in cluster.nodes]
    churn = Churn(cluster, workspace)

    def at_rest() -> list[str]:
        for node in cluster.nodes:
            node.assert_ready()
        pods = [pod for pod in kubectl.list("pods", namespace) if pod["status"]["phase"] != "Succeeded"]
        waiting = [pod["metadata"]["name"] for pod in pods if condition(pod, "Ready") != "True"]
        assert not waiting, f"the pods {waiting} are not Ready"
        return [status["containerID"] for pod in pods for status in pod["status"]["containerStatuses"]]

    with ExitStack() as stack:
        samplers = [stack.enter_context(sampled(node)) for node in cluster.nodes]
        churn.run(list(plan(SEED, names, WAVES, KILL_EVERY)))
        running = eventually(at_rest, within=240)
        verdicts = {sampler.node.name: sampler.verdict() for sampler in samplers}

    with capsys.disabled():
        report(f"churn with seed {SEED}: {churn.operations} operations")
        for name, verdict in verdicts.items():
            for line in verdict.lines():
                report(f"{name}: {line}")
    seen = {uid for verdict in verdicts.values() for uid in verdict.log.containers}
    assert {container.removeprefix("containerd://") for container in running} <= seen
    assert not [violation for verdict in verdicts.values() for violation in verdict.violations]


def test_containers_that_leave_their_cpus_are_found(workspace: Workspace, node: Node) -> None:
    held = hold(workspace)
    exclusive, beside = (container.removeprefix("containerd://") for container in (held.exclusive, held.beside))
    part = CpuSet((held.cpus.lowest,))

    with sampled(node) as sampler:

        def moved(container: str, cpus: CpuSet) -> None:
            def observed() -> None:
                assert sampler.log().last_state(container).allowed == cpus

            node.write_cgroup(container, "cpuset.cpus", str(cpus))
            eventually(observed)

        moved(beside, ALL)
        moved(beside, held.shared)
        moved(exclusive, part)
        moved(exclusive, held.cpus)
        verdict = sampler.verdict()

    names = verdict.log.containers
    found = {violation.fault: violation.cpus for violation in verdict.violations}
    assert found == {
        Fault(Kind.OVERLAP, str(names[beside]), str(names[exclusive])): held.cpus,
        Fault(Kind.ASTRAY, str(names[exclusive])): held.cpus - part,
    }
