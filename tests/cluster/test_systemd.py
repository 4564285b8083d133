"""systemd reads its units again, or restarts containerd, while pods come and go: all containers keep their CPUs.

Only a real node with systemd shows this. There every pod has a slice and every container a scope, and systemd writes
the cgroup files of these units itself, for example when a unit starts after `systemctl daemon-reload`.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from threading import Event
from typing import Final

import pytest
from harness.manifests import Object, claim, container, cpus, pod
from harness.node import Node
from harness.waiting import eventually
from harness.workspace import Workspace
from lab.errors import CommandFailedError

from dracpu_api.cpuset import CpuSet, union

ALL: Final = CpuSet.parse("2-7")  # the agent withholds the lowest core; without claims all other CPUs are shared
SMALL: Final = {"cpu": "50m", "memory": "16Mi"}
BURSTABLE: Final = {"requests": SMALL}
GUARANTEED: Final = {"requests": SMALL, "limits": SMALL}
CLAIMS: Final = {"two": 2, "one": 1}


def reload_units(node: Node) -> None:
    """Makes systemd read its units again, after which it writes their cgroup files anew at any later moment."""
    node.sh("systemctl daemon-reload")


def restart_containerd(node: Node) -> None:
    """Restarts containerd; the agent then loses its connection and connects again."""
    node.restart_containerd()


@pytest.mark.parametrize(("disturb", "times"), [(reload_units, 5), (restart_containerd, 1)])
def test_all_containers_keep_their_cpus_while_pods_come_and_go(
    disturb: Callable[[Node], None], times: int, workspace: Workspace, node: Node
) -> None:
    assert node.has_systemd
    workspace.apply(*(claim(name, cpus(amount)) for name, amount in CLAIMS.items()), claim("passing", cpus(1)))
    # a pod of each QoS class, because each class has its own slice, and the guaranteed pods are beside these slices
    workspace.run(
        pod("best-effort", container("main", ["two"]), container("beside"), claims={"two": "two"}),
        pod("burstable", sized(container("main", ["one"]), BURSTABLE), container("beside"), claims={"one": "one"}),
        pod("guaranteed", sized(container("main"), GUARANTEED)),
    )
    claimed = {name: workspace.cpus(name) for name in ("best-effort", "burstable")}
    assert sorted(map(len, claimed.values())) == sorted(CLAIMS.values())
    taken = union(claimed.values())
    beside = [("best-effort", "beside"), ("burstable", "beside"), ("guaranteed", "main")]
    with_claim = {workspace.container_id(name): its_cpus for name, its_cpus in claimed.items()}
    without_claim = [workspace.container_id(*names) for names in beside]

    def all_keep_their_cpus() -> None:
        for identifier, its_cpus in with_claim.items():
            assert node.all_cpus(identifier) == {its_cpus}
        for identifier in without_claim:
            assert union(node.all_cpus(identifier)).isdisjoint(taken)

    enough = Event()
    with ThreadPoolExecutor() as pool:
        churn = pool.submit(pods_come_and_go, workspace, enough)
        try:
            for _ in range(times):
                disturb(node)
                all_keep_their_cpus()
            enough.set()
            while not churn.done():
                all_keep_their_cpus()
        finally:
            enough.set()
        churn.result()

    def is_at_rest() -> None:
        all_keep_their_cpus()
        for identifier in without_claim:
            assert node.all_cpus(identifier) == {ALL - taken}

    eventually(is_at_rest)


def pods_come_and_go(workspace: Workspace, enough: Event) -> None:
    """Creates and deletes pods with and without a claim. Those that are created after `enough` was set must start."""
    for number in count():
        last = enough.is_set()
        names = (f"claimed-{number}", f"shared-{number}")
        workspace.apply(
            pod(names[0], claims={"passing": "passing"}),
            pod(names[1], sized(container("main"), BURSTABLE)),
        )
        if last:
            for name in names:
                workspace.kubectl.wait("condition=Ready", f"pod/{name}", workspace.namespace, timeout=180)
        else:
            # a pod that met the restart of containerd is not needed: the kubelet tries it again only after a minute
            with suppress(CommandFailedError):
                workspace.kubectl.wait("condition=Ready", f"pod/{names[0]}", workspace.namespace, timeout=20)
        workspace.delete_pods(*names)
        if last:
            return


def sized(made: Object, resources: Object) -> Object:
    """Returns a container with requests or limits."""
    return {**made, "resources": {**made.get("resources", {}), **resources}}
