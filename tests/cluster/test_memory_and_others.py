"""Claims of memory beside what else is on real nodes: manifests that were written for another driver of memory, another
driver's devices, both NUMA nodes at once, pods that take pages without a claim, and many pods at a time.
"""

import json
from typing import Any, Final

import pytest
from harness import other_driver
from harness.cluster import Cluster
from harness.kubectl import condition
from harness.manifests import Object, claim, container, cpus, on_numa_node, pod, template
from harness.memory import (
    MI,
    TOOLS,
    amount,
    assert_resize_done,
    command,
    container_file,
    on_one_numa_node,
    pod_folder,
    pod_limits,
    resize,
    take,
    with_tools,
)
from harness.waiting import eventually
from harness.workspace import Workspace
from lab.host import report

NUMA_NODE: Final = "resource.kubernetes.io/numaNode"
REPAIRS: Final = 20
# attributes as the manifests of kubernetes-sigs/dra-driver-memory select them
PAGES_OF_2_MI: Final = (
    'device.attributes["resource.kubernetes.io"].pageSize == "2Mi" && '
    'device.attributes["resource.kubernetes.io"].hugeTLB == true'
)
ORDINARY: Final = 'device.attributes["resource.kubernetes.io"].hugeTLB == false'


@pytest.fixture
def first(offering: Cluster, workspace: Workspace) -> Workspace:
    """A namespace whose pods run on the node with systemd, while the nodes offer memory."""
    return workspace


def from_template(pod: Object, template: str) -> Object:
    """Gives all containers of a pod a claim of its own, which Kubernetes makes from a template."""
    spec = {**pod["spec"], "resourceClaims": [{"name": template, "resourceClaimTemplateName": template}]}
    return {**pod, "spec": spec}


def numa_nodes(space: Workspace, claim: str) -> dict[str, int]:
    """Returns the NUMA node of each request of a claim, by the devices' names."""
    results = space.claim(claim)["status"]["allocation"]["devices"]["results"]
    return {result["request"]: int(result["device"].strip("abcdefghijklmnopqrstuvwxyz")[-1]) for result in results}


def test_manifests_for_another_driver_of_memory_work(first: Workspace) -> None:
    both = claim("both", amount("memory", "512Mi", "ram", ORDINARY), amount("2Mi", "32Mi", "huge", PAGES_OF_2_MI))
    main = container("main", ["both/ram", "both/huge"])
    main["resources"]["requests"] = {"cpu": "100m", "memory": "64Mi"}
    main["resources"]["limits"] = {"cpu": "1", "memory": "600Mi"}
    first.apply(template(both))
    first.run(with_tools(from_template(pod("user", main), "both")))

    assert sum(take(first, "user", "2Mi", 32 * MI).values()) == 32 * MI
    assert take(first, "user", "2Mi", 48 * MI) == "ENOMEM"
    assert len(take(first, "user", "memory", 480 * MI)) == 1

    # the kubelet sets the limits of the pod's pages to 0 with each of these
    for resources in (
        {"requests": {"cpu": "200m"}},
        {"requests": {"cpu": "100m"}},
        {"limits": {"cpu": "900m"}},
        {"limits": {"memory": "700Mi"}},
        {"limits": {"memory": "400Mi"}},
    ):
        resize(first, **resources)
        eventually(lambda: assert_resize_done(first))
        eventually(lambda: assert_usable(first, 32 * MI), within=20)
    assert take(first, "user", "2Mi", 48 * MI) == "ENOMEM"
    assert container_file(first, "user", "memory.max") == str(400 * MI)
    assert first.container_status("user")["restartCount"] == 0


def assert_usable(space: Workspace, size: int) -> None:
    assert take(space, "user", "2Mi", size) != "ENOMEM"


def test_a_claim_that_others_use_too_is_refused_with_words(first: Workspace) -> None:
    """Either with the second container of a pod, or with a second pod."""
    first.apply(claim("shared", amount("memory", "64Mi")))
    first.apply(pod("two", container("main", ["shared"]), container("other", ["shared"]), claims={"shared": "shared"}))

    def refused() -> None:
        states = [first.container_status("two", name)["state"] for name in ("main", "other")]
        waiting = [state["waiting"] for state in states if "waiting" in state]
        assert [state["reason"] for state in waiting] == ["CreateContainerError"], states
        assert "memory serves one running container" in waiting[0]["message"]

    eventually(refused)
    first.apply(pod("late", claims={"shared": "shared"}))
    eventually(lambda: assert_event(first, "late", "serves one pod"))


def assert_event(space: Workspace, name: str, words: str) -> None:
    events = space.kubectl.list("events", space.namespace, "--field-selector", f"involvedObject.name={name}")
    messages = [event["message"] for event in events]
    assert [message for message in messages if words in message], messages


def test_as_many_pods_as_have_room_run_and_another_one_waits(first: Workspace) -> None:
    first.apply(template(claim("large", amount("memory", "1Gi"))))
    names = [f"parallel-{number}" for number in range(4)]
    first.apply(*(from_template(pod(name, container("main", ["large"])), "large") for name in names))

    def three_run() -> None:
        ready = [condition(first.pod(name), "Ready") for name in names]
        assert ready.count("True") == 3
        (waiting,) = [name for name, status in zip(names, ready, strict=True) if status != "True"]
        assert condition(first.pod(waiting), "PodScheduled") == "False"

    eventually(three_run, within=120)
    held = [entry for entry in first.node.cpu_node()["status"]["memory"] if entry["kind"] == "memory"]
    assert sorted(entry["promised"] for entry in held) == ["1Gi", "2Gi"]


def test_cpus_memory_and_pages_follow_the_device_of_another_driver(first: Workspace) -> None:
    with other_driver.other_driver(first):
        wanted = (
            other_driver.device("nic", on_numa_node(1)),
            cpus(1),
            amount("memory", "64Mi"),
            amount("2Mi", "8Mi"),
        )
        first.apply(on_one_numa_node(claim("near", *wanted)))
        first.run(with_tools(pod("user", claims={"near": "near"})))
        assert numa_nodes(first, "near") == {"nic": 1, "cpus": 1, "memory": 1, "pages-2mi": 1}
        assert take(first, "user", "2Mi", 8 * MI) == {1: 8 * MI}
        assert set(take(first, "user", "memory", 32 * MI)) == {1}


def test_requests_are_spread_over_numa_nodes_and_never_exceed_their_sum(
    first: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    spread = claim(
        "spread",
        amount("2Mi", "16Mi", "pages-a"),
        amount("2Mi", "16Mi", "pages-b"),
        amount("memory", "64Mi", "memory-a"),
        amount("memory", "64Mi", "memory-b"),
    )
    spread["spec"]["devices"]["constraints"] = [
        {"requests": [f"{kind}-a", f"{kind}-b"], "distinctAttribute": NUMA_NODE} for kind in ("pages", "memory")
    ]
    first.apply(spread)
    first.run(with_tools(pod("user", claims={"spread": "spread"})))

    placed = numa_nodes(first, "spread")
    assert {placed["pages-a"], placed["pages-b"]} == {placed["memory-a"], placed["memory-b"]} == {0, 1}
    assert container_file(first, "user", "cpuset.mems") == "0-1"
    assert container_file(first, "user", "memory.max") == str(128 * MI)
    # the kernel takes all pages from one node, although half of them were claimed there: a cgroup limits only the sum
    pages, memory = take(first, "user", "2Mi", 32 * MI), take(first, "user", "memory", 96 * MI)
    assert sum(pages.values()) == 32 * MI
    assert sum(memory.values()) >= 96 * MI  # the kernel may join the mapping with others
    assert take(first, "user", "2Mi", 34 * MI) == "ENOMEM"
    with capsys.disabled():
        report(f"a claim of 16 MiB of pages and 64 MiB of memory on each NUMA node; used: {pages}, {memory}")


def test_a_pod_without_a_claim_keeps_pages_that_it_has_not_touched(
    first: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its pages are reserved by `mmap`: no claim beside it gets them before the pod has ended."""
    plain = container("main", script=f"exec {' '.join(command('2Mi', 32 * MI, '-hold', '-untouched'))}")
    plain["resources"] = {"limits": {"cpu": "100m", "memory": "64Mi", "hugepages-2Mi": "32Mi"}}
    first.run(with_tools(pod("plain", plain)))
    own = pod_limits(first, "plain")
    assert own["hugetlb.2MB.max"] == own["hugetlb.2MB.rsvd.max"] == str(32 * MI)

    first.apply(claim("some", amount("2Mi", "64Mi")), claim("all", amount("2Mi", "128Mi")))
    first.run(with_tools(pod("user", claims={"some": "some"})))
    first.apply(with_tools(pod("patient", claims={"all": "all"})))
    assert sum(take(first, "user", "2Mi", 64 * MI).values()) == 64 * MI
    assert take(first, "user", "2Mi", 66 * MI) == "ENOMEM"
    eventually(lambda: assert_event(first, "patient", "pods that request hugepages in their spec"))

    first.execute("plain", "main", "kill", "-USR1", "1")

    def touched() -> dict[str, int]:
        lines = first.kubectl.run("logs", "plain", "--namespace", first.namespace).splitlines()
        assert len(lines) == 2, lines
        nodes: dict[str, int] = json.loads(lines[1])["nodes"]
        return nodes

    assert sum(eventually(touched, within=20).values()) == 32 * MI
    assert pod_limits(first, "plain") == own
    assert first.container_status("plain")["restartCount"] == 0

    seconds = sorted(repair_seconds(first))
    with capsys.disabled():
        middle, last = seconds[len(seconds) // 2], seconds[-1]
        report(f"limits of a pod's pages were right again {middle * 1000:.1f} ms later, at most {last * 1000:.1f} ms")
    assert pod_limits(first, "user")["hugetlb.2MB.max"] == str(64 * MI)

    first.delete_pods("plain")
    first.kubectl.wait("condition=Ready", "pod/patient", first.namespace, timeout=120)
    assert sum(take(first, "patient", "2Mi", 128 * MI).values()) == 128 * MI


def repair_seconds(space: Workspace) -> list[float]:
    """Writes 0 into a limit of the pod `user` several times, as the kubelet does; returns how long it stayed 0."""
    file = f"{pod_folder(space, 'user')}/hugetlb.2MB.max"
    printed: Any = json.loads(space.node.sh(f"{TOOLS}/taker repair {file} {REPAIRS}", timeout=90))
    seconds: list[float] = printed["seconds"]
    return seconds
