"""Every room refuses a forbidden import from the moment that a module is put into it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ("agent", "crds", "operator", "sandbox")

# a room of the product, and what none of its modules may import
FORBIDDEN = [
    ("dracpu_api", "pydantic"),
    ("dracpu_api", "asyncio"),
    ("dracpu_operator.decide", "asyncio"),
    ("dracpu_operator.decide", "time"),
    ("dracpu_operator.decide", "kubernetes_asyncio"),
    ("dracpu_operator.decide", "structlog"),
    ("dracpu_operator.decide", "dracpu_operator.known.fleet"),
    ("dracpu_operator.decide", "dracpu_operator.api.cluster"),
    ("dracpu_operator.decide", "dracpu_operator.reconcile"),
    ("dracpu_operator.known", "aiohttp"),
    ("dracpu_operator.known", "kubernetes_asyncio"),
    ("dracpu_operator.known", "dracpu_operator.api.cluster"),
    ("dracpu_operator.api", "dracpu_operator.reconcile"),
    ("dracpu_operator.api", "dracpu_agent.node"),
    *(
        (f"dracpu_agent.{room}", forbidden)
        for room in ("claims", "placement", "devices", "allocation", "topology")
        for forbidden in ("asyncio", "os", "time", "structlog", "grpc", "dracpu_agent.host.sysfs", "dracpu_agent.node")
    ),
    ("dracpu_agent.topology", "dracpu_agent.allocation.machine"),
    ("dracpu_agent.allocation", "dracpu_agent.devices.grouping"),
    ("dracpu_agent.devices", "dracpu_agent.placement.board"),
    ("dracpu_agent.placement", "dracpu_agent.claims.ledger"),
    ("dracpu_agent.kubelet", "dracpu_agent.runtime.plugin"),
    ("dracpu_agent.cdi", "dracpu_agent.cluster.client"),
    ("dracpu_agent.checkpoint", "dracpu_agent.host.sysfs"),
    ("dracpu_agent.cluster", "dracpu_agent.report.conditions"),
    ("dracpu_agent.http1", "dracpu_agent.claims.ledger"),
    ("dracpu_agent.runtime", "grpc"),
    ("dracpu_agent.report", "dracpu_agent.work.settings"),
    ("dracpu_agent.work", "dracpu_agent.app"),
    ("dracpu_agent.work", "pydantic"),
    ("dracpu_agent.work", "dracpu_api.objects.models"),
    ("dracpu_agent.cluster", "aiohttp"),
]

# packages in which every module has its place in the layers
FULLY_LAYERED = ["dracpu_agent", "dracpu_api", "dracpu_operator"]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The report of import-linter about a copy of the sources, into whose rooms modules with forbidden imports were
    put."""
    copy = tmp_path_factory.mktemp("sources")
    shutil.copy(ROOT / "pyproject.toml", copy)
    for folder in SOURCES:
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for room, forbidden in FORBIDDEN:
        module = _folder(copy, room) / f"{_module(forbidden)}.py"
        module.write_text(f'"""A new module."""\n\nimport {forbidden}\n')
    for package in FULLY_LAYERED:
        (_folder(copy, package) / "beside_the_rooms.py").write_text('"""A new module."""\n')
    path = os.pathsep.join(str(copy / folder) for folder in SOURCES)
    command = [sys.executable, "-c", "import importlinter.cli as cli; cli.lint_imports_command()", "--no-cache"]
    finished = subprocess.run(
        command, cwd=copy, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert finished.returncode == 1, finished.stdout + finished.stderr
    return " ".join(finished.stdout.split())  # long names are wrapped


@pytest.mark.parametrize(("room", "forbidden"), FORBIDDEN)
def test_a_new_module_with_a_forbidden_import_is_refused(report: str, room: str, forbidden: str) -> None:
    assert f"{room}.{_module(forbidden)} -> {forbidden} " in report


@pytest.mark.parametrize("package", FULLY_LAYERED)
def test_a_new_module_beside_the_rooms_is_refused(report: str, package: str) -> None:
    assert f"{package}.beside_the_rooms" in report


def _folder(root: Path, room: str) -> Path:
    package, *parts = room.split(".")
    (folder,) = (root / source / package for source in SOURCES if (root / source / package).is_dir())
    return folder.joinpath(*parts)


def _module(forbidden: str) -> str:
    return f"imports_{forbidden.replace('.', '_')}"
