"""Under churn, no container runs on a CPU of another's claim at any moment, a claim's containers run on its CPUs, and
the limits of memory and hugepages are those of the claims.

Only real nodes show this: the cgroups and the threads of all containers are read every 50 ms, on two nodes at once.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Final

import pytest
from harness.churn import WITH_CLAIMS, Wave, plan, templates
from harness.cluster import Cluster
from harness.exclusivity import Fault, Kind, Verdict, judge
from harness.holding import ALL, hold
from harness.kubectl import condition
from harness.manifests import Object
from harness.memory_kept import MemoryVerdict, judge_memory
from harness.node import Node
from harness.samples import ORDINARY, PAGES, Promises
from harness.sampling import sampled
from harness.waiting import eventually
from harness.workspace import Workspace
from lab.errors import CommandFailedError
from lab.host import report

from dracpu_api.cpuset import CpuSet
from dracpu_api.quantity import whole_number

SEED: Final = 12
SECONDS: Final = 170  # a wave that has begun is completed
WAVES: Final = 60
PACE: Final = 5.0  # seconds from the start of one wave to the start of the next
KILL_EVERY: Final = 12  # waves
AT_REST_SECONDS: Final = 480  # emulated nodes carry out what has piled up, after the last wave

Task = Callable[[], object]


class Churn:
    """Carries out waves in one namespace, and counts what it did."""

    def __init__(self, cluster: Cluster, workspace: Workspace) -> None:
        self._nodes = {node.name: node for node in cluster.nodes}
        self._kubectl = workspace.kubectl
        self._namespace = workspace.namespace
        self.done: Counter[str] = Counter()

    def run(self, waves: Iterable[Wave]) -> None:
        """Carries out as many waves as fit into the time."""
        start = time.monotonic()
        with ThreadPoolExecutor() as pool:
            for number, wave in enumerate(waves):
                time.sleep(max(0.0, start + number * PACE - time.monotonic()))
                if time.monotonic() - start > SECONDS:
                    return
                for task in [pool.submit(task) for task in self._tasks(wave)]:
                    task.result()

    def _tasks(self, wave: Wave) -> list[Task]:
        """Returns what happens in a wave, in one call of kubectl for each kind of operation."""
        with_claim = [name for name in wave.resized if name.endswith(WITH_CLAIMS)]
        without = [name for name in wave.resized if name not in with_claim]
        tasks: list[Task] = [partial(self._kill_agent, self._nodes[name]) for name in wave.killed]
        tasks += [partial(self._resize, pods, wave) for pods in (with_claim, without) if pods]
        if wave.created:
            tasks.append(partial(self._create, wave.created))
        if wave.deleted:
            tasks.append(partial(self._delete, wave.deleted))
        return tasks

    def _create(self, pods: Sequence[Object]) -> None:
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": pods})
        self._run("create", "--validate=false", "-f", "-", text=text)
        self.done["pods created"] += len(pods)

    def _delete(self, pods: Sequence[str]) -> None:
        self._run("delete", "pods", *pods, "--wait=false")
        self.done["pods deleted"] += len(pods)

    def _resize(self, pods: Sequence[str], wave: Wave) -> None:
        try:
            self._run("patch", "pods", *pods, "--subresource=resize", "--patch", json.dumps(wave.patch))
        except CommandFailedError as error:
            # Kubernetes before 1.37 refuses to resize a container with claims
            if not (pods[0].endswith(WITH_CLAIMS) and "only cpu and memory resources are mutable" in error.printed):
                raise
            self.done["resizes refused by Kubernetes"] += len(pods)
        else:
            self.done["pods resized"] += len(pods)

    def _kill_agent(self, node: Node) -> None:
        # after its former end, it may not run again yet
        node.kill_container(eventually(lambda: node.running_container("agent")))
        self.done["agents killed"] += 1

    def _run(self, *words: str, text: str | None = None) -> None:
        self._kubectl.run(*words, "--namespace", self._namespace, text=text)


def test_claims_are_exclusive_at_every_moment_of_churn(
    offering: Cluster, workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster, kubectl, namespace = offering, workspace.kubectl, workspace.namespace
    kubectl.apply(*templates(), namespace=namespace)
    offered = {node.name: eventually(partial(offered_memory, node)) for node in cluster.nodes}
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
        try:
            churn.run(plan(SEED, names, WAVES, KILL_EVERY))
            running = eventually(at_rest, within=AT_REST_SECONDS)
        finally:
            finished = {sampler.node.name: sampler.finish() for sampler in samplers}
            verdicts = {name: judge(*log) for name, log in finished.items()}
            of_memory = {name: judge_memory(*log, offered[name]) for name, log in finished.items()}
            with capsys.disabled():
                for line in figures(churn, verdicts, of_memory):
                    report(line)

    # an agent that never comes back would excuse everything
    assert all(span.end < verdict.log.end for verdict in verdicts.values() for span in verdict.absences)
    seen = {uid for verdict in verdicts.values() for uid in verdict.log.containers}
    assert {container.removeprefix("containerd://") for container in running} <= seen
    assert not [violation for verdict in verdicts.values() for violation in verdict.violations]
    assert all(verdict.containers for verdict in of_memory.values())
    assert not [violation for verdict in of_memory.values() for violation in verdict.violations]


def offered_memory(node: Node) -> Promises:
    """Returns what the devices of memory of a node have."""
    offered: dict[tuple[str, int], int] = {}
    for name, device in node.devices().items():
        if "size" in device["capacity"]:
            kind, _, numa = name.rpartition("-numa")
            size = whole_number(device["capacity"]["size"]["value"])
            offered[kind.replace("hugepages-2mi", PAGES), int(numa)] = size or 0
    assert offered.keys() >= {(kind, numa) for kind in (ORDINARY, PAGES) for numa in (0, 1)}
    return offered


def figures(churn: Churn, verdicts: Mapping[str, Verdict], of_memory: Mapping[str, MemoryVerdict]) -> Iterator[str]:
    """Describes what was done and what was found."""
    counts = ", ".join(f"{what}: {count}" for what, count in sorted(churn.done.items()))
    yield f"churn with seed {SEED}: {churn.done.total()} operations ({counts})"
    for name, verdict in verdicts.items():
        for line in (*verdict.lines(), *of_memory[name].lines()):
            yield f"{name}: {line}"


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
