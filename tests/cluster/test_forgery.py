"""A pod that names another pod's claim in its environment does not start, and an agent's token is valid only for that
agent's own node.

Only real nodes show how the kubelet and containerd treat a forged environment; only a real API server with the chart's
policy rejects a token.
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
    """A claim for two CPUs whose pod runs beside a pod without a claim; it is the victim of the forgeries."""
    return hold(workspace)


def test_a_pod_that_names_another_pods_claim_does_not_start(workspace: Workspace, held: Held) -> None:
    uid = workspace.claim("two")["metadata"]["uid"]
    workspace.apply(claim("own", cpus(1)))
    forgers = ("with-the-right-cpus", "with-other-cpus", "with-a-claim-of-its-own")
    workspace.apply(
        forging("with-the-right-cpus", uid, str(held.cpus)),
        forging("with-other-cpus", uid, "0-7"),
        forging("with-a-claim-of-its-own", uid, str(held.cpus), own="own"),
    )

    def none_starts() -> None:
        for name in forgers:
            is_refused(workspace, name, uid)

    eventually(none_starts, within=90)
    assert workspace.cpus("exclusive") == held.cpus
    assert workspace.container_id("exclusive") == held.exclusive
    assert workspace.cpus("beside").isdisjoint(held.cpus)

    workspace.delete_pods(*forgers)
    claims_come_and_go(held)


def forging(name: str, uid: str, value: str, own: str = "") -> Object:
    """Returns a pod whose container claims in its environment to hold a claim."""
    claims = {own: own} if own else {}
    forger = {**container("main", list(claims)), "env": [{"name": f"DRA_CPUSET_{uid}", "value": value}]}
    return pod(name, forger, claims=claims)


def is_refused(workspace: Workspace, name: str, uid: str) -> None:
    """Asserts that the container was not created, and that an Event gives the reason."""
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
    """A client with the token of the first node's agent."""
    holder = issue(cluster.kubectl, "dracpu-agent", NAMESPACE, cluster.node.agent_pod())
    user = json.loads(holder.run("auth", "whoami", "--output", "json"))["status"]["userInfo"]
    assert user["username"] == f"system:serviceaccount:{NAMESPACE}:dracpu-agent"
    assert user["extra"]["authentication.kubernetes.io/node-name"] == [cluster.node.name]
    return holder


@pytest.fixture
def unbound(cluster: Cluster) -> TokenHolder:
    """A client with a token of the agents' account that is not bound to a pod."""
    return issue(cluster.kubectl, "dracpu-agent", NAMESPACE)


def test_an_agents_token_can_write_objects_of_its_own_node(cluster: Cluster, agent: TokenHolder) -> None:
    for write in (create_slice, update_slice, delete_slice, write_status):
        write(agent, cluster.node, dry=True)  # admission decides as for a stored object


def test_an_agents_token_cannot_write_objects_of_another_node(cluster: Cluster, agent: TokenHolder) -> None:
    own, other = cluster.nodes
    before = current_objects(other)
    for write in (create_slice, update_slice, delete_slice):
        with refusal(f"the agent of node {own.name} cannot write a ResourceSlice of node {other.name}"):
            write(agent, other)
    with refusal(f"the agent of node {own.name} cannot write CpuNode {other.name}"):
        write_status(agent, other)
    assert current_objects(other) == before


def test_an_agents_token_cannot_write_the_spec_of_any_cpu_node(cluster: Cluster, agent: TokenHolder) -> None:
    before = [current_objects(node) for node in cluster.nodes]
    for node in cluster.nodes:
        item = node.cpu_node()
        with refusal('cannot patch resource "cpunodes"'):
            server_side_apply(agent, item, {"spec": {**item["spec"], "revision": "forged"}})
        with refusal('cannot delete resource "cpunodes"'):
            agent.run("delete", "--raw", f"{CPU_NODES}/{node.name}")
    assert [current_objects(node) for node in cluster.nodes] == before


def test_a_token_that_is_not_bound_to_a_pod_cannot_write(cluster: Cluster, unbound: TokenHolder) -> None:
    before = current_objects(cluster.node)
    for write in (create_slice, update_slice, delete_slice):
        with refusal("the agent's token names no node"):
            write(unbound, cluster.node)
    with refusal(f"(none in its token) cannot write CpuNode {cluster.node.name}"):
        write_status(unbound, cluster.node)
    assert current_objects(cluster.node) == before


def test_an_agents_token_cannot_write_a_claim_of_another_node(
    cluster: Cluster, workspace: Workspace, agent: TokenHolder
) -> None:
    there = workspace.using_node(cluster.nodes[1])
    there.apply(claim("two", cpus(2)))
    there.run(pod("exclusive", claims={"two": "two"}))
    published, item = there.published_cpus("two"), there.claim("two")
    (device,) = item["status"]["devices"]

    by_the_server = 'cannot arbitrary-node:patch resource "resourceclaims/driver"'  # from 1.36 on
    by_the_policy = "cannot write the status of a claim that has none of its devices"
    with refusal(by_the_server, by_the_policy):
        server_side_apply(agent, item, {"status": {"devices": [{**device, "data": {"cpuset": "0-7"}}]}}, status=True)
    assert there.published_cpus("two") == published == there.cpus("exclusive")


@contextmanager
def refusal(*words: str) -> Iterator[None]:
    """Asserts that the API server rejects the request with one of these messages."""
    with pytest.raises(CommandFailedError) as refused:
        yield
    assert any(part in refused.value.printed for part in words)


def create_slice(holder: TokenHolder, node: Node, *, dry: bool = False) -> None:
    """Creates another slice of a node, a copy of its first one."""
    item = node.slices()[0]
    made = {**item, "metadata": {"generateName": "forged-"}}
    holder.run("create", "--raw", SLICES + _query(dry), "-f", "-", text=json.dumps(made))


def update_slice(holder: TokenHolder, node: Node, *, dry: bool = False) -> None:
    """Removes the devices from a slice of a node."""
    item = node.slices()[0]
    item["spec"]["devices"] = []
    holder.run("replace", "--raw", _path(item) + _query(dry), "-f", "-", text=json.dumps(item))


def delete_slice(holder: TokenHolder, node: Node, *, dry: bool = False) -> None:
    """Deletes a slice of a node."""
    holder.run("delete", "--raw", _path(node.slices()[0]) + _query(dry))


def write_status(holder: TokenHolder, node: Node, *, dry: bool = False) -> None:
    """Writes the phase Failed into the status of a node's CpuNode."""
    server_side_apply(holder, node.cpu_node(), {"status": {"phase": "Failed"}}, status=True, dry=dry)


def server_side_apply(
    holder: TokenHolder, item: Object, fields: dict[str, Any], *, status: bool = False, dry: bool = False
) -> None:
    """Applies fields of an object by force: no other command of kubectl writes without reading first."""
    named = {key: item["metadata"][key] for key in ("name", "namespace") if key in item["metadata"]}
    document = {"apiVersion": item["apiVersion"], "kind": item["kind"], "metadata": named, **fields}
    options = [*(["--subresource=status"] if status else []), *(["--dry-run=server"] if dry else [])]
    holder.run("apply", "--server-side", "--force-conflicts", *options, "-f", "-", text=json.dumps(document))


def current_objects(node: Node) -> tuple[Object, list[Object]]:
    """Returns the spec of a node's CpuNode, and its slices with their versions."""
    return node.cpu_node()["spec"], node.slices()


def _path(item: Object) -> str:
    return f"{SLICES}/{item['metadata']['name']}"


def _query(dry: bool) -> str:
    return "?dryRun=All" if dry else ""
