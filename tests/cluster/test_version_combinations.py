"""CRDs, operator and agents of the present and the next version, in every combination, on a real API server.

The API server runs on this host's loopback; operator and agents are processes; scheduler, controllers, kubelets and
runtimes are simulated. Only a real API server adds the defaults of a new CRD to objects that are stored already, and
drops fields that an older CRD does not have.
"""

import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
from lab.paths import Paths
from next_version import PRESENT, SETTINGS, Version, former_version, next_version
from skewed_cluster import NODES, SkewedCluster, given, skewed_cluster

from dracpu_sandbox.resources import CPU_NODES, conditions_of

PROGRAMS: Final = tuple(Paths.default().bin / name for name in ("etcd", "kube-apiserver"))
FIRST, SECOND = NODES
# each setting that the present version does not know, with another value than its default
NEW_SETTINGS: Final = {"parkIdle": True, "power": "fast", "weights": {"a": 1}, "allocation": {"order": "highest"}}


@pytest.fixture(scope="session")
def coming(tmp_path_factory: pytest.TempPathFactory) -> Version:
    """The next version."""
    return next_version(tmp_path_factory.mktemp("versions") / "next")


@pytest.fixture(scope="session")
def former(tmp_path_factory: pytest.TempPathFactory) -> Version:
    """The former version."""
    return former_version(tmp_path_factory.mktemp("versions") / "former")


@pytest.fixture
async def skewed(short_path: Path) -> AsyncIterator[SkewedCluster]:
    """Two nodes with everything in the present version. It is not the fixture `cluster`, so that these tests run before
    the emulated nodes are started."""
    async with skewed_cluster(PROGRAMS, short_path) as started:
        yield started


async def test_no_combination_with_the_next_version_changes_a_node(skewed: SkewedCluster, coming: Version) -> None:
    await walk(skewed, PRESENT, coming)


async def test_no_combination_with_the_former_version_changes_a_node(short_path: Path, former: Version) -> None:
    async with skewed_cluster(PROGRAMS, short_path, former) as cluster:
        await walk(cluster, former, PRESENT)


async def walk(cluster: SkewedCluster, old: Version, new: Version) -> None:
    """Asserts in every combination of two versions that it changes nothing by itself while no setting of the newer one
    is used, and that a change by a user reaches the nodes."""
    cpus = await cluster.run_pod("held", 2, FIRST), await cluster.run_pod("beside", 3, SECOND)
    slices, strategies = await cluster.slices(), itertools.cycle(("distributed", "packed"))
    for crds, operator, agents in (  # each step replaces one part; together they are all combinations
        (new, old, old),
        (new, new, old),
        (new, new, new),
        (new, old, new),
        (old, old, new),
        (old, new, new),
        (old, new, old),
        (old, old, old),
    ):
        before, strategy = given(await cluster.cpu_nodes()), next(strategies)
        if crds is not cluster.crds:
            await cluster.install(crds)
        if operator is not cluster.operator:
            await cluster.operate(operator)
        if agents is not cluster.agents:
            await cluster.run_agents(agents)
        await cluster.reconciled()
        await cluster.applied()
        names = f"CRDs {crds.name}, operator {operator.name}, agents {agents.name}"
        assert given(await cluster.cpu_nodes()) == before, names
        await cluster.edit({"allocation": {"strategy": strategy}})
        await cluster.applied()
        for item in (await cluster.cpu_nodes()).values():
            assert item["spec"]["settings"]["allocation"]["strategy"] == strategy, names
        assert await cluster.slices() == slices, names
        assert (cluster.cpus_of("held", FIRST), cluster.cpus_of("beside", SECOND)) == cpus, names
        assert (await cluster.condition("Accepted"))["status"] == "True", names
        assert (await cluster.condition("Degraded"))["status"] == "False", names


async def test_defaults_that_the_api_server_adds_to_the_settings_of_nodes_change_no_node(
    skewed: SkewedCluster, tmp_path: Path
) -> None:
    """No release may add such defaults, but an operator must not answer them by removing what it does not know."""
    newer = next_version(tmp_path / "next", defaults_for_nodes=True)
    cpus, slices = await skewed.run_pod("held", 2, FIRST), await skewed.slices()
    before = {name: {**item, "spec": None} for name, item in given(await skewed.cpu_nodes()).items()}

    async def unchanged() -> None:
        after = await skewed.cpu_nodes()
        assert {name: {**item, "spec": None} for name, item in given(after).items()} == before
        assert await skewed.slices() == slices
        assert skewed.cpus_of("held", FIRST) == cpus

    async def ignored() -> None:
        for item in (await skewed.cpu_nodes()).values():
            assert "settings.parkIdle" in item["status"].get("ignoredSettings", ())
            assert item["spec"]["settings"]["parkIdle"] is False

    await skewed.install(newer)
    await skewed.eventually(ignored)
    await skewed.reconciled()
    await unchanged()
    await skewed.operate(newer)
    await skewed.run_agents(newer)
    await skewed.applied()
    await unchanged()


async def test_new_settings_reach_nodes_through_an_older_operator_and_stay_when_programs_are_rolled_back(
    skewed: SkewedCluster, coming: Version
) -> None:
    await skewed.install(coming)
    await skewed.edit({**NEW_SETTINGS, "rollout": {"drainSeconds": 7}})

    async def ignored() -> None:
        for item in (await skewed.cpu_nodes()).values():
            assert set(item["status"].get("ignoredSettings", ())) == set(SETTINGS)
        config = await skewed.config()
        assert config["status"]["nodes"] == {
            "selected": 2,
            "applied": 0,
            "progressing": 2,
            "failed": 0,
            "withoutAgent": 0,
        }
        progressing = await skewed.condition("Progressing")
        assert (progressing["status"], progressing["reason"]) == ("True", "SettingsIgnored")
        assert ", ".join(SETTINGS) in progressing["message"]

    await skewed.eventually(ignored)
    cpus = await skewed.run_pod("held", 2, FIRST)
    before, slices = given(await skewed.cpu_nodes()), await skewed.slices()
    for item in before.values():
        settings = item["spec"]["settings"]
        assert {name: settings[name] for name in ("parkIdle", "power", "weights")}.items() <= NEW_SETTINGS.items()
        assert settings["allocation"]["order"] == "highest"

    async def unchanged() -> None:
        assert given(await skewed.cpu_nodes()) == before
        assert await skewed.slices() == slices
        assert skewed.cpus_of("held", FIRST) == cpus

    await skewed.run_agents(coming)
    await skewed.applied()
    await unchanged()
    for item in (await skewed.cpu_nodes()).values():
        status = item["status"]
        assert (status["phase"], status["bootId"], status.get("ignoredSettings")) == ("Resting", "next", None)
    await skewed.operate(coming)
    await skewed.applied()
    await unchanged()
    estimated = (await skewed.config())["status"]["estimate"]

    await skewed.operate(PRESENT)  # a rollback of the programs; the CRDs stay
    await skewed.reconciled()
    await skewed.applied()
    await unchanged()
    assert (await skewed.config())["status"]["estimate"] == estimated
    await skewed.run_agents(PRESENT)
    await skewed.eventually(ignored)
    await unchanged()
    for item in (await skewed.cpu_nodes()).values():
        assert item["status"]["bootId"] == "next"  # a former agent does not take away what it does not know


async def test_an_older_operator_keeps_what_it_does_not_know_when_it_rolls_a_change_out(
    skewed: SkewedCluster, coming: Version
) -> None:
    await skewed.install(coming)
    await skewed.operate(coming)
    await skewed.run_agents(coming)
    await skewed.edit({**NEW_SETTINGS, "rollout": {"drainSeconds": 7}})
    await skewed.applied()
    before = await skewed.cpu_nodes()
    assert {item["spec"].get("drainSeconds") for item in before.values()} == {7}

    await skewed.operate(PRESENT)
    await skewed.edit({"allocation": {"strategy": "distributed"}})
    await skewed.applied()

    for name, item in (await skewed.cpu_nodes()).items():
        wanted = before[name]["spec"]
        settings = {**wanted["settings"], "allocation": {**wanted["settings"]["allocation"], "strategy": "distributed"}}
        assert item["metadata"]["uid"] == before[name]["metadata"]["uid"]
        assert item["spec"]["settings"] == settings
        assert item["spec"]["drainSeconds"] == 7


async def test_a_mode_that_operator_and_agents_do_not_know_freezes_the_nodes_until_they_are_upgraded_again(
    skewed: SkewedCluster, coming: Version
) -> None:
    cpus = await skewed.run_pod("held", 2, FIRST)
    await skewed.install(coming)
    await skewed.operate(coming)
    await skewed.run_agents(coming)
    await skewed.edit({"mode": "weighted"})
    await skewed.applied()
    before, slices = given(await skewed.cpu_nodes()), await skewed.slices()

    async def frozen() -> None:
        accepted, degraded = await skewed.condition("Accepted"), await skewed.condition("Degraded")
        assert (accepted["status"], accepted["reason"]) == ("False", "Invalid")
        assert "spec.mode" in accepted["message"]
        assert (degraded["status"], degraded["reason"]) == ("True", "NodesFrozen")
        assert "2 nodes are left as they are" in degraded["message"]
        assert all(f"{name}: spec.settings.mode must be one of grouped" in degraded["message"] for name in NODES)

    async def refused() -> None:
        for item in (await skewed.cpu_nodes()).values():
            applied = conditions_of(item)["ConfigApplied"]
            assert (item["status"]["phase"], applied["status"]) == ("Failed", "False")
            assert "published devices stay" in applied["message"]

    await skewed.operate(PRESENT)
    await skewed.eventually(frozen)
    await skewed.run_agents(PRESENT)
    await skewed.eventually(refused)
    await skewed.eventually(frozen)
    await skewed.reconciled()
    assert given(await skewed.cpu_nodes()) == before
    assert await skewed.slices() == slices
    assert skewed.cpus_of("held", FIRST) == cpus

    await skewed.edit({"mode": "grouped"})  # also when the config itself can be decoded again
    await skewed.reconciled()
    assert given(await skewed.cpu_nodes()) == before

    async def made_again() -> None:
        item = (await skewed.cpu_nodes()).get(SECOND, {"spec": {}})
        assert item["spec"].get("settings", {}).get("mode") == "grouped"
        assert (item.get("status") or {}).get("phase") == "Ready"

    # docs: this is how to go on with the older version
    await skewed.client.delete(CPU_NODES, SECOND)
    await skewed.eventually(made_again)
    await skewed.run_pod("later", 1, SECOND)

    await skewed.edit({"mode": "weighted"})  # and this is how to go on with the newer one
    await skewed.run_agents(coming)
    await skewed.operate(coming)
    await skewed.applied()
    after = given(await skewed.cpu_nodes())
    assert after[FIRST]["uid"] == before[FIRST]["uid"]
    assert {name: item for name, item in (await skewed.slices()).items() if item["nodeName"] == FIRST} == {
        name: item for name, item in slices.items() if item["nodeName"] == FIRST
    }
    assert skewed.cpus_of("held", FIRST) == cpus


async def test_older_crds_take_new_settings_away_and_roll_no_node_anew(skewed: SkewedCluster, coming: Version) -> None:
    """As `helm rollback` does, which installs the older CRDs, too."""
    await skewed.install(coming)
    await skewed.operate(coming)
    await skewed.run_agents(coming)
    await skewed.edit({**NEW_SETTINGS, "rollout": {"drainSeconds": 7}})
    await skewed.applied()
    cpus = await skewed.run_pod("held", 2, FIRST)
    before, slices = given(await skewed.cpu_nodes()), await skewed.slices()

    for version in (PRESENT, coming):
        await skewed.install(version)
        await skewed.operate(version)
        await skewed.run_agents(version)
        await skewed.applied()
        for name, item in given(await skewed.cpu_nodes()).items():
            assert {**item, "spec": None} == {**before[name], "spec": None}
            assert item["spec"]["revision"] == before[name]["spec"]["revision"]
            assert item["spec"]["settings"].keys().isdisjoint(NEW_SETTINGS.keys() - {"allocation"})
        assert await skewed.slices() == slices
        assert skewed.cpus_of("held", FIRST) == cpus
