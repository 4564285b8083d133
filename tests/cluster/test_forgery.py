"""A pod that names another pod's claim in its environment does not start, and an agent's token is good for that agent's
own node only.

Only real nodes show what the kubelet and containerd make of a forged environment; only a real API server with the
chart's policy refuses a token.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest
from harness.cluster import Cluster
from harness.holding import Held, claims_come_and_go, hold
from harness.manifests import Object, claim, container, cpus, pod
from harness.node import Node
from harness.release import NAMESPACE
from harness.tokens import TokenHolder, issue
from harness.waiting import eventually
from harness.workspace import Workspace
from lab.errors import CommandFailedError

SLICES: Final = "/apis/resource.k8s.io/v1/resourceslices"
CPU_NODES: Final = "/apis/dra.cpu/v1alpha1/cpunodes"


# ---- a pod


@pytest.fixture
def held(workspace: Workspace) -> Held:
    """The victim: a claim for two CPUs that runs beside a pod without a claim."""
    return hold(workspace)


def test_a_pod_that_names_anothers_claim_does_not_start(workspace: Workspace, held: Held) -> None:
    uid = workspace.claim("two")["metadata"]["uid"]
    workspace.apply(claim("own", cpus(1)))
    liars = ("with-the-right-cpus", "with-other-cpus", "with-a-claim-of-its-own")
    workspace.apply(
        forging("with-the-right-cpus", uid, str(held.cpus)),
        forging("with-other-cpus", uid, "0-7"),
        forging("with-a-claim-of-its-own", uid, str(held.cpus), own="own"),
    )

    def none_starts() -> None:
        for name in liars:
            is_refused(workspace, name, uid)

    eventually(none_starts, within=90)
    assert workspace.cpus("exclusive") == held.cpus
    assert workspace.container_id("exclusive") == held.exclusive
    assert workspace.cpus("beside").isdisjoint(held.cpus)

    workspace.delete_pods(*liars)
    claims_come_and_go(held)


def forging(name: str, uid: str, value: str, own: str = "") -> Object:
    """A pod whose container says that it holds a claim."""
    claims = {own: own} if own else {}
    liar = {**container("main", list(claims)), "env": [{"name": f"DRA_CPUSET_{uid}", "value": value}]}
    return pod(name, liar, claims=claims)


def is_refused(workspace: Workspace, name: str, uid: str) -> None:
    """The container has not been created, and whoever looks is told why."""
    statuses = workspace.pod(name)["status"].get("containerStatuses", [])
    assert [status["state"].get("waiting", {}).get("reason") for status in statuses] == ["CreateContainerError"]
    (status,) = statuses
    assert not status.get("containerID")
    assert not status["lastState"]
    described = workspace.kubectl.run("describe", "pod", name, "--namespace", workspace.namespace)
    events = described.partition("\nEvents:")[2]
    assert f"container main sets DRA_CPUSET_{uid}, but the kubelet gave it no such claim" in events


# ---- a token


@pytest.fixture
def agent(cluster: Cluster) -> TokenHolder:
    """Somebody with the token of the first node's agent."""
    holder = issue(cluster.kubectl, "dracpu-agent", NAMESPACE, cluster.node.agent_pod())
    user = json.loads(holder.run("auth", "whoami", "--output", "json"))["status"]["userInfo"]
    assert user["username"] == f"system:serviceaccount:{NAMESPACE}:dracpu-agent"
    assert user["extra"]["authentication.kubernetes.io/node-name"] == [cluster.node.name]
    return holder


@pytest.fixture
def unbound(cluster: Cluster) -> TokenHolder:
    """Somebody with a token of the agents' account that no kubelet has mounted into a pod."""
    return issue(cluster.kubectl, "dracpu-agent", NAMESPACE)


def test_an_agents_token_writes_what_is_its_own_nodes(cluster: Cluster, agent: TokenHolder) -> None:
    for write in (create_slice, update_slice, delete_slice, write_status):
        write(agent, cluster.node, dry=True)  # decided as if it were to be stored


def test_an_agents_token_writes_nothing_of_another_node(cluster: Cluster, agent: TokenHolder) -> None:
    own, other = cluster.nodes
    before = what_stands(other)
    for write in (create_slice, update_slice, delete_slice):
        with refusal(f"the agent of node {own.name} cannot write a ResourceSlice of node {other.name}"):
            write(agent, other)
    with refusal(f"the agent of node {own.name} cannot write CpuNode {other.name}"):
        write_status(agent, other)
    assert what_stands(other) == before


def test_an_agents_token_writes_no_spec_of_a_cpu_node_not_even_of_its_own(cluster: Cluster, agent: TokenHolder) -> None:
    before = [what_stands(node) for node in cluster.nodes]
    for node in cluster.nodes:
        item = node.cpu_node()
        with refusal('cannot patch resource "cpunodes"'):
            server_side_apply(agent, item, {"spec": {**item["spec"], "revision": "forged"}})
        with refusal('cannot delete resource "cpunodes"'):
            agent.run("delete", "--raw", f"{CPU_NODES}/{node.name}")
    assert [what_stands(node) for node in cluster.nodes] == before


def test_a_token_that_no_kubelet_mounted_writes_nothing(cluster: Cluster, unbound: TokenHolder) -> None:
    before = what_stands(cluster.node)
    for write in (create_slice, update_slice, delete_slice):
        with refusal("the agent's token names no node"):
            write(unbound, cluster.node)
    with refusal(f"(none in its token) cannot write CpuNode {cluster.node.name}"):
        write_status(unbound, cluster.node)
    assert what_stands(cluster.node) == before


def test_an_agents_token_writes_no_claim_of_another_node(
    cluster: Cluster, workspace: Workspace, agent: TokenHolder
) -> None:
    there = workspace.on(cluster.nodes[1])
    there.apply(claim("two", cpus(2)))
    there.run(pod("exclusive", claims={"two": "two"}))
    told, item = there.published_cpus("two"), there.claim("two")
    (device,) = item["status"]["devices"]

    with refusal('cannot arbitrary-node:patch resource "resourceclaims/driver"'):
        server_side_apply(agent, item, {"status": {"devices": [{**device, "data": {"cpuset": "0-7"}}]}}, status=True)
    assert there.published_cpus("two") == told == there.cpus("exclusive")


@contextmanager
def refusal(words: str) -> Iterator[None]:
    """The API server says no, in these words."""
    with pytest.raises(CommandFailedError) as refused:
        yield
    assert words in refused.value.printed


def create_slice(who: TokenHolder, node: Node, *, dry: bool = False) -> None:
    """One more slice for a node, like the first that it has."""
    item = node.slices()[0]
    made = {**item, "metadata": {"generateName": "forged-"}}
    who.run("create", "--raw", SLICES + _query(dry), "-f", "-", text=json.dumps(made))


def update_slice(who: TokenHolder, node: Node, *, dry: bool = False) -> None:
    """A slice of a node without its devices."""
    item = node.slices()[0]
    item["spec"]["devices"] = []
    who.run("replace", "--raw", _path(item) + _query(dry), "-f", "-", text=json.dumps(item))


def delete_slice(who: TokenHolder, node: Node, *, dry: bool = False) -> None:
    """A slice of a node goes."""
    who.run("delete", "--raw", _path(node.slices()[0]) + _query(dry))


def write_status(who: TokenHolder, node: Node, *, dry: bool = False) -> None:
    """A node's CpuNode says that it has failed."""
    server_side_apply(who, node.cpu_node(), {"status": {"phase": "Failed"}}, status=True, dry=dry)


def server_side_apply(
    who: TokenHolder, item: Object, fields: dict[str, Any], *, status: bool = False, dry: bool = False
) -> None:
    """Takes fields of an object over: the one way in which kubectl writes without reading first."""
    named = {key: item["metadata"][key] for key in ("name", "namespace") if key in item["metadata"]}
    document = {"apiVersion": item["apiVersion"], "kind": item["kind"], "metadata": named, **fields}
    options = [*(["--subresource=status"] if status else []), *(["--dry-run=server"] if dry else [])]
    who.run("apply", "--server-side", "--force-conflicts", *options, "-f", "-", text=json.dumps(document))


def what_stands(node: Node) -> tuple[Object, list[Object]]:
    """The spec of a node's CpuNode, and its slices with their versions."""
    return node.cpu_node()["spec"], node.slices()


def _path(item: Object) -> str:
    return f"{SLICES}/{item['metadata']['name']}"


def _query(dry: bool) -> str:
    return "?dryRun=All" if dry else ""
