"""What helm does with the chart's objects on a real API server. No node is needed, as no pod has to run."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
from guarded_server import POLICIES, Client, admin_of, assets
from helm_chart import CHART, NAMESPACE, helm_program

from dracpu_sandbox.binaries import real

RELEASE: Final = "dra"
CLASSES: Final = "/apis/resource.k8s.io/v1/deviceclasses"


class Helm:
    """Runs helm, without the hooks: nothing would run their Jobs."""

    def __init__(self, kubeconfig: Path, admin: Client) -> None:
        self._kubeconfig = kubeconfig
        self._admin = admin

    async def __call__(self, command: str, *words: str) -> None:
        """Runs a command on the release, which must succeed."""
        options = ("--namespace", NAMESPACE, "--kubeconfig", str(self._kubeconfig), "--no-hooks")
        home = {"HOME": str(self._kubeconfig.parent), "PATH": os.environ["PATH"]}
        process = await asyncio.create_subprocess_exec(
            helm_program(), command, RELEASE, *words, *options, stderr=asyncio.subprocess.PIPE, env=home
        )
        _, printed = await process.communicate()
        assert process.returncode == 0, printed.decode()

    async def names(self, path: str) -> set[str]:
        """Returns the names of the objects of a kind."""
        return {item["metadata"]["name"] for item in (await self._admin.good("GET", path))["items"]}

    async def delete(self, path: str) -> None:
        """Deletes an object as an administrator does."""
        await self._admin.good("DELETE", path)


@pytest.fixture
async def helm(tmp_path: Path) -> AsyncIterator[Helm]:
    run = tmp_path / "run"
    async with real(assets(tmp_path), run, 0) as plane, admin_of(plane, run) as admin:
        yield Helm(run / "kubeconfig", admin)


async def test_a_rollback_to_a_release_without_policies_deletes_them_and_an_upgrade_creates_them(helm: Helm) -> None:
    policies = {"dracpu-agent-own-slices", "dracpu-agent-own-claims", "dracpu-agent-own-cpunode"}
    await helm("install", str(CHART), "--create-namespace", "--set", "admissionPolicy.create=false")
    assert not await helm.names(POLICIES)
    await helm("upgrade", str(CHART), "--reset-values")
    assert await helm.names(POLICIES) == policies
    await helm("rollback", "1")
    assert not await helm.names(POLICIES)
    await helm("upgrade", str(CHART), "--reset-values")
    assert await helm.names(POLICIES) == policies


async def test_a_device_class_that_was_deleted_before_uninstalling_comes_back_with_a_rollback(helm: Helm) -> None:
    await helm("install", str(CHART), "--create-namespace")
    await helm.delete(f"{CLASSES}/dra.cpu")
    await helm("rollback", "1")
    assert await helm.names(CLASSES) == {"dra.cpu"}
    await helm.delete(f"{CLASSES}/dra.cpu")
    await helm("uninstall")
    assert not await helm.names(POLICIES)
