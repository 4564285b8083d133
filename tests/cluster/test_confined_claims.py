"""In the status of claims, an agent's token can write only the entries of the devices of its node.

The API server is real and has the chart's roles and policies; no emulated node is used. Most requests are sent by a
user to whom RBAC refuses nothing, so that the policies alone decide, as they do for claims before Kubernetes 1.36.
"""

import copy
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
import pytest_asyncio
from background import background
from guarded_server import CLAIMS, NODES, Client, Guarded, eventually, guarded_server

from dracpu_agent.claims.cpu_claim import CpuGrant
from dracpu_agent.claims.grant import ClaimRef
from dracpu_agent.cluster.device_status import DeviceStatusWriter, device_status
from dracpu_api.cpuset import CpuSet
from dracpu_api.names import DRIVER
from dracpu_api.resources import RESOURCE_CLAIMS

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]

OWN, OTHER = NODES
FOREIGN: Final = "gpu.example.com"
KIND: Final = {"apiVersion": RESOURCE_CLAIMS.api_version, "kind": RESOURCE_CLAIMS.kind}
MOST: Final = 32  # results of an allocation


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Guarded]:
    """An API server that also serves the versions of claims from before v1."""
    folder = tmp_path_factory.mktemp("guarded")
    older = "--runtime-config=resource.k8s.io/v1beta1=true,resource.k8s.io/v1beta2=true"
    async with guarded_server(folder, options=older) as running:
        yield running


@pytest.fixture
def unlimited(server: Guarded) -> Client:
    """The first node's agent, with every right that RBAC can give."""
    return server.unlimited(OWN)


@asynccontextmanager
async def claim(
    server: Guarded, name: str, results: list[Json], devices: list[Json] | None = None
) -> AsyncIterator[Json]:
    """A claim that the scheduler has allocated for a pod; `devices` are the entries that drivers have written."""
    request = {"name": "main", "exactly": {"deviceClassName": DRIVER}}
    made = await server.admin.good(
        "POST", CLAIMS, {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}}
    )
    status: Json = {}
    if results:
        node = next((result["pool"] for result in results if result["driver"] == DRIVER), OWN)
        terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
        allocation = {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": terms}}
        user = {"resource": "pods", "name": "user", "uid": "11111111-1111-4111-8111-111111111111"}
        status = {"allocation": allocation, "reservedFor": [user], "devices": devices or []}
        made = await server.admin.good("PUT", f"{CLAIMS}/{name}/status", {**made, "status": status})
    try:
        yield made
    finally:
        await server.admin.good("PUT", f"{CLAIMS}/{name}/status", {**(await server.claim(name)), "status": {}})
        await server.admin.good("DELETE", f"{CLAIMS}/{name}")


def device(number: int, *, node: str = OWN, driver: str = DRIVER) -> Json:
    """The identity of a device in an allocation and in the entries of drivers."""
    return {"driver": driver, "pool": node, "device": f"cpudev{number:03}"}


def result(number: int, **where: str) -> Json:
    return {"request": "main", **device(number, **where)}


def entry(number: int, cpus: str, **where: str) -> Json:
    return {**device(number, **where), "data": {"cpuset": cpus}}


def reference(made: Json) -> ClaimRef:
    return ClaimRef("default", made["metadata"]["name"], made["metadata"]["uid"])


def grant(number: int, cpus: str, node: str = OWN) -> CpuGrant:
    return CpuGrant(request="main", pool=node, device=f"cpudev{number:03}", share_id=None, cpus=CpuSet.parse(cpus))


async def until_entries(server: Guarded, name: str, *entries: Json) -> None:
    """Waits until a claim has these entries."""

    async def has_them() -> bool:
        return entries_of(await server.claim(name)) == list(entries)

    await eventually(has_them)


def entries_of(found: Json) -> list[Json]:
    """Returns the entries of a claim without the fields that are null."""
    entries = found["status"].get("devices") or []
    return [{key: value for key, value in item.items() if value is not None} for item in entries]


async def test_the_agent_shows_the_cpus_of_claims_of_its_node(server: Guarded) -> None:
    async with claim(server, "shown", [result(2), result(3)]) as made, server.agent(OWN) as api:
        writer = DeviceStatusWriter(api, DRIVER)
        async with background(writer.run()):
            writer.set(reference(made), [grant(2, "2"), grant(3, "3")])
            await until_entries(server, "shown", entry(2, "2"), entry(3, "3"))
            writer.set(reference(made), [grant(3, "4-5")])
            await until_entries(server, "shown", entry(3, "4-5"))
            writer.set(reference(made), [])
            await until_entries(server, "shown")


async def test_the_agent_leaves_the_entries_of_other_drivers_where_they_are(server: Guarded) -> None:
    where = {"driver": FOREIGN}
    results = [result(0, **where), result(1), result(2, **where), result(3)]
    others = [entry(2, "card", **where), entry(0, "card", **where)]
    async with claim(server, "mixed", results, others) as made, server.agent(OWN) as api:
        for grants in ([grant(3, "3"), grant(1, "1")], [grant(1, "7")], []):
            sent = device_status(DRIVER, reference(made), grants)
            answer = await api.apply(RESOURCE_CLAIMS, sent, namespace="default", subresource="status")
            found = entries_of(answer)
            assert [item for item in found if item["driver"] == FOREIGN] == others
            assert len(found) == len(others) + len(grants)


async def test_the_text_of_another_drivers_data_does_not_matter(server: Guarded, unlimited: Client) -> None:
    """Server-side apply writes the JSON in all entries anew, sorted and without blanks."""
    async with claim(server, "blanks", [result(0, driver=FOREIGN), result(1)]) as made:
        made["status"]["devices"] = [{**device(0, driver=FOREIGN), "data": {"b": 1, "a": [None, 1.5]}}]
        await server.admin.good("PUT", f"{CLAIMS}/blanks/status", json.dumps(made, indent=1))
        sent = {**KIND, **device_status(DRIVER, reference(made), [grant(1, "1")])}
        answer = await unlimited.good("PATCH", f"{CLAIMS}/blanks/status", sent, "apply", fieldManager="agent")
        assert len(answer["status"]["devices"]) == 2


@pytest.mark.parametrize("others", ["parameters", "data"])
async def test_the_agent_shows_cpus_beside_json_whose_keys_are_not_sorted(server: Guarded, others: str) -> None:
    """Go programs write JSON in the order of their types' fields."""
    unsorted = {"kind": "Example", "apiVersion": "v1"}
    theirs = {**device(0, driver=FOREIGN), **({"data": unsorted} if others == "data" else {})}
    async with claim(server, "unsorted", [result(1), result(0, driver=FOREIGN)], [theirs]) as made:
        if others == "parameters":
            await give_parameters(server, made, unsorted)
        async with server.agent(OWN) as api:
            writer = DeviceStatusWriter(api, DRIVER)
            async with background(writer.run()):
                for cpus in ("1", "2-3"):
                    writer.set(reference(made), [grant(1, cpus)])
                    await until_entries(server, "unsorted", theirs, entry(1, cpus))


async def give_parameters(server: Guarded, made: Json, parameters: Json) -> None:
    """Allocates a claim anew, with opaque parameters."""
    opaque = {"driver": DRIVER, "parameters": parameters}
    devices = {**made["status"]["allocation"]["devices"], "config": [{"source": "FromClass", "opaque": opaque}]}
    status = {**made["status"], "allocation": {**made["status"]["allocation"], "devices": devices}}
    path = f"{CLAIMS}/{made['metadata']['name']}/status"
    await server.admin.good("PUT", path, {**made, "status": {}})
    deallocated = await server.claim(made["metadata"]["name"])
    await server.admin.good("PUT", path, {**deallocated, "status": status})


Change = Callable[[Json], None]
CHANGES: Final[dict[str, tuple[Change, str]]] = {}


def forbidden(words: str) -> Callable[[Change], Change]:
    """Registers a change of a claim's status that an agent may not make, with a part of the message."""

    def register(change: Change) -> Change:
        CHANGES[change.__name__] = (change, words)
        return change

    return register


_NOT_OWN = "cannot write the status of devices that are not its own"
_ONLY_DEVICES = "cannot write anything but devices"


@forbidden(_NOT_OWN)
def an_entry_of_another_driver_is_added(status: Json) -> None:
    status["devices"].append(entry(1, "0", driver=FOREIGN))


@forbidden(_NOT_OWN)
def an_entry_of_another_driver_is_changed(status: Json) -> None:
    status["devices"][0]["data"] = {"forged": True}


@forbidden(_NOT_OWN)
def an_entry_of_another_driver_gets_another_field(status: Json) -> None:
    status["devices"][0]["networkData"] = {"interfaceName": "eth0"}


@forbidden(_NOT_OWN)
def an_entry_of_another_driver_loses_a_field(status: Json) -> None:
    del status["devices"][0]["data"]


@forbidden(_NOT_OWN)
def an_entry_of_another_driver_is_replaced(status: Json) -> None:
    status["devices"][0]["device"] = "cpudev001"


@forbidden(_NOT_OWN)
def an_entry_of_another_driver_is_removed(status: Json) -> None:
    del status["devices"][0]


@forbidden(_NOT_OWN)
def an_entry_of_another_nodes_device_is_added(status: Json) -> None:
    status["devices"].append(entry(3, "0", node=OTHER))


@forbidden(_NOT_OWN)
def all_entries_are_null(status: Json) -> None:
    status["devices"] = None


@forbidden(_ONLY_DEVICES)
def the_claim_is_reserved_for_another_pod(status: Json) -> None:
    uid = "22222222-2222-4222-8222-222222222222"
    status["reservedFor"].append({"resource": "pods", "name": "thief", "uid": uid})


@forbidden(_ONLY_DEVICES)
def the_reservation_is_null(status: Json) -> None:
    status["reservedFor"] = None


@forbidden(_ONLY_DEVICES)
def the_claim_is_deallocated(status: Json) -> None:
    status.update(allocation=None, reservedFor=None, devices=None)


@pytest.mark.parametrize("name", CHANGES)
async def test_an_agent_cannot_change_the_rest_of_a_claims_status(
    server: Guarded, unlimited: Client, name: str
) -> None:
    change, words = CHANGES[name]
    results = [result(0, driver=FOREIGN), result(1, driver=FOREIGN), result(2), result(3, node=OTHER)]
    devices = [entry(0, "card", driver=FOREIGN), entry(2, "2")]
    async with claim(server, "attacked", results, devices) as made:
        wanted = copy.deepcopy(made["status"])
        change(wanted)
        for version in ("v1", "v1beta1", "v1beta2"):
            path = f"{CLAIMS}/attacked/status".replace("/v1/", f"/{version}/", 1)
            replaced = {**made, "apiVersion": f"resource.k8s.io/{version}", "status": wanted, "spec": {}}
            for method, body, how in (("PATCH", {"status": wanted}, "merge"), ("PUT", replaced, "")):
                assert words in await unlimited.refused(method, path, body, how)
        assert await server.claim("attacked") == made
        assert await server.holder(OWN).refused("PATCH", f"{CLAIMS}/attacked/status", {"status": wanted}, "merge")
        assert await server.claim("attacked") == made


@pytest.mark.parametrize("where", [{"node": OTHER}, {"driver": FOREIGN}])
async def test_an_agent_cannot_write_the_status_of_a_claim_without_a_device_of_its_node(
    server: Guarded, unlimited: Client, where: dict[str, str]
) -> None:
    async with claim(server, "elsewhere", [result(2, **where)]) as made:
        wanted = {"status": {"devices": [entry(2, "0-7", **where)]}}
        refusal = await unlimited.refused("PATCH", f"{CLAIMS}/elsewhere/status", wanted, "merge")
        assert f"the agent of node {OWN} cannot write the status of a claim that has none of its devices" in refusal
        await server.holder(OWN).refused("PATCH", f"{CLAIMS}/elsewhere/status", wanted, "merge")
        assert await server.claim("elsewhere") == made


async def test_an_agent_cannot_allocate_a_claim(server: Guarded, unlimited: Client) -> None:
    async with claim(server, "unallocated", []) as made:
        wanted = {"status": {"allocation": {"devices": {"results": [result(2)]}}}}
        refusal = await unlimited.refused("PATCH", f"{CLAIMS}/unallocated/status", wanted, "merge")
        assert "has none of its devices" in refusal
        assert await server.claim("unallocated") == made


async def test_a_token_without_a_node_cannot_write_claims(server: Guarded) -> None:
    async with claim(server, "unbound", [result(2)]) as made:
        wanted = device_status(DRIVER, reference(made), [grant(2, "2")])
        await server.holder("").refused("PATCH", f"{CLAIMS}/unbound/status", wanted, "merge")
        refusal = await server.unlimited("").refused("PATCH", f"{CLAIMS}/unbound/status", wanted, "merge")
        assert "the agent's token names no node" in refusal
        assert await server.claim("unbound") == made


async def test_claims_of_the_largest_size_can_be_written(server: Guarded) -> None:
    """The cost of a policy's expressions is limited, and grows with the size of the claim."""
    drivers = [FOREIGN] * (MOST - 1) + [DRIVER]
    results = [result(number, driver=driver) for number, driver in enumerate(drivers)]
    longest = {"data": {"long": "x" * 10_000}, "conditions": most_conditions()}
    devices = [{**device(number, driver=driver), **longest} for number, driver in enumerate(drivers)]
    async with claim(server, "large", results, devices) as made, server.agent(OWN) as api:
        sent = device_status(DRIVER, reference(made), [grant(MOST - 1, "1")])
        answer = await api.apply(RESOURCE_CLAIMS, sent, namespace="default", subresource="status")
        assert len(answer["status"]["devices"]) == MOST


def most_conditions() -> list[Json]:
    """Returns as many conditions as an entry can have."""
    return [
        {
            "type": f"Type{number}",
            "status": "True",
            "reason": "x" * 1024,
            "message": "x" * 1000,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        for number in range(8)
    ]
