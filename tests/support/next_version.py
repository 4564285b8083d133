"""Versions of this project for tests of upgrades: the present one, a former one from the repository's history, and the
next one, which is made from the present one.

The next version is a copy in which small patches add to each object what a release may add: settings with defaults in
the CRD, one of them in `allocation`, a setting that is an object, a mode, a field of `rollout`, a field of the spec and
one of the status of CpuNodes, a phase, and conditions. It is made as docs/dev/how-to-add.md describes, with one
exception: the new settings have their defaults in the CRD, too, which is the harder case for the present version.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

PROJECT: Final = Path(__file__).parents[2]
# the last commit before programs of two versions worked together as docs/user/install.md describes
FORMER: Final = "b8d05b2a29c1a8b671dd1e01655cf45c3d53ce41"
NEXT: Final = "99.0.0"  # what agents of the next version report as their version
# a field of each kind that the present version does not know
SETTINGS: Final = ("settings.allocation.order", "settings.parkIdle", "settings.power", "settings.weights")

_FOLDERS: Final = ("agent", "charts", "crds", "operator", "requirements", "tools")
_FILES: Final = ("Dockerfile.agent", "Dockerfile.operator", "LICENSE", "README.md", "pyproject.toml")
_CODE: Final = ("agent", "crds", "operator")

_ENUMS: Final = '''class Power(StrEnum):
    """What the next version does to the frequency of CPUs."""

    BALANCED = "balanced"
    FAST = "fast"


class Order(StrEnum):
    """In which order the next version gives CPUs."""

    LOWEST = "lowest"
    HIGHEST = "highest"


'''

# file -> texts that are in it exactly once, each with the text that replaces it
_PATCHES: Final[Mapping[str, Sequence[tuple[str, str]]]] = {
    "agent/dracpu_agent/version.py": [('__version__ = "0.1.0"', f'__version__ = "{NEXT}"')],
    "charts/dra-cpu-operator/Chart.yaml": [
        ("\nversion: 0.1.0", f"\nversion: {NEXT}"),
        ("\nappVersion: 0.1.0", f"\nappVersion: {NEXT}"),
    ],
    "crds/dracpu_api/settings.py": [
        (
            "_LATER_SETTINGS: Final[Mapping[str, str]] = {}",
            '_LATER_SETTINGS: Final[Mapping[str, str]] = {"parkIdle": "park_idle", "power": "power", '
            '"weights": "weights"}',
        ),
        (
            "_LATER_ALLOCATION: Final[Mapping[str, str]] = {}",
            '_LATER_ALLOCATION: Final[Mapping[str, str]] = {"order": "order"}',
        ),
        ('    INDIVIDUAL = "individual"\n', '    INDIVIDUAL = "individual"\n    WEIGHTED = "weighted"\n'),
        (
            "@dataclass(frozen=True, slots=True)\nclass Allocation:",
            f"{_ENUMS}@dataclass(frozen=True, slots=True)\nclass Allocation:",
        ),
        (
            "    prefer_uncore_cache: bool = True\n",
            "    prefer_uncore_cache: bool = True\n    order: Order = Order.LOWEST\n",
        ),
        (
            "    node_allocatable: bool = False\n",
            "    node_allocatable: bool = False\n"
            "    park_idle: bool = False\n"
            "    power: Power = Power.BALANCED\n"
            "    weights: Mapping[str, int] | None = field(default=None, hash=False)\n",
        ),
        ("self.group_by if self.mode is Mode.GROUPED else", "self.group_by if self.mode is not Mode.INDIVIDUAL else"),
        (
            "    settle_seconds: int = SETTLE_SECONDS\n",
            "    settle_seconds: int = SETTLE_SECONDS\n    drain_seconds: int = 0\n",
        ),
        (
            '        settle_seconds=reader.integer("settleSeconds", default=SETTLE_SECONDS),\n',
            '        settle_seconds=reader.integer("settleSeconds", default=SETTLE_SECONDS),\n'
            '        drain_seconds=reader.integer("drainSeconds", default=0),\n',
        ),
        (
            '        "settleSeconds": spec.settle_seconds,\n',
            '        "settleSeconds": spec.settle_seconds,\n'
            '        **({"drainSeconds": spec.drain_seconds} if spec.drain_seconds else {}),\n',
        ),
        (
            '            prefer_uncore_cache=allocation.flag("preferUncoreCache", default=True),\n',
            '            prefer_uncore_cache=allocation.flag("preferUncoreCache", default=True),\n'
            '            order=allocation.choice("order", Order, Order.LOWEST),\n',
        ),
        (
            '        node_allocatable=reader.flag("nodeAllocatable", default=False),\n',
            '        node_allocatable=reader.flag("nodeAllocatable", default=False),\n'
            '        park_idle=reader.flag("parkIdle", default=False),\n'
            '        power=reader.choice("power", Power, Power.BALANCED),\n'
            '        weights=dict(reader.nested("weights", optional=True).unknown()) or None,\n',
        ),
    ],
    "crds/dracpu_api/device_names.py": [
        (
            "settings.group_by if settings.mode is Mode.GROUPED",
            "settings.group_by if settings.mode is not Mode.INDIVIDUAL",
        )
    ],
    "crds/dracpu_api/conditions.py": [
        ('    FAILED = "Failed"\n', '    FAILED = "Failed"\n    RESTING = "Resting"\n'),
        (
            '    STATE_HEALTHY = "StateHealthy"\n',
            '    STATE_HEALTHY = "StateHealthy"\n    POWER_MANAGED = "PowerManaged"\n',
        ),
        ('    CONFLICTED = "Conflicted"\n', '    CONFLICTED = "Conflicted"\n    AUDITED = "Audited"\n'),
    ],
    "crds/dracpu_api/objects/parts.py": [
        ("import GroupBy, Mode, Publish, Strategy", "import GroupBy, Mode, Order, Power, Publish, Strategy"),
        (
            "    prefer_uncore_cache: StrictBool = True\n",
            '    order: Order = Order.LOWEST\n    """A field of the next version."""\n'
            "    prefer_uncore_cache: StrictBool = True\n",
        ),
        (
            "    node_allocatable: StrictBool = False\n",
            '    park_idle: StrictBool = False\n    """A field of the next version."""\n'
            '    power: Power = Power.BALANCED\n    """A field of the next version."""\n'
            '    weights: dict[str, Int] | None = None\n    """A field of the next version."""\n'
            "    node_allocatable: StrictBool = False\n",
        ),
    ],
    "crds/dracpu_api/objects/models.py": [
        (
            "    paused: StrictBool = False\n",
            '    drain_seconds: SettleSeconds = 0\n    """A field of the next version."""\n'
            "    paused: StrictBool = False\n",
        ),
        (
            "    settings: Settings\n",
            '    drain_seconds: SettleSeconds = 0\n    """A field of the next version."""\n    settings: Settings\n',
        ),
        (
            "    agent_version: str | None = None\n",
            '    boot_id: str | None = None\n    """A field of the next version."""\n'
            "    agent_version: str | None = None\n",
        ),
        (
            "    nodes: FleetNodes | None = None\n",
            '    estimate: str | None = None\n    """A field of the next version."""\n'
            "    nodes: FleetNodes | None = None\n",
        ),
    ],
    "crds/dracpu_api/objects/definitions.py": [
        (
            '        "spec.nodeAllocatable",\n',
            '        "spec.nodeAllocatable",\n        "spec.parkIdle",\n        "spec.power",\n'
            '        "spec.allocation.order",\n        "spec.rollout.drainSeconds",\n',
        )
    ],
    "agent/dracpu_agent/devices/publish.py": [("case Mode.GROUPED:", "case Mode.GROUPED | Mode.WEIGHTED:")],
    "agent/dracpu_agent/devices/grouping.py": [
        ("if settings.mode is not Mode.GROUPED:", "if settings.mode is Mode.INDIVIDUAL:")
    ],
    "agent/dracpu_agent/report/node_status.py": [
        ('        "agentVersion": version,\n', '        "agentVersion": version,\n        "bootId": "next",\n'),
        (
            "    return Phase.DRAINING if node.draining() else Phase.READY\n",
            "    ready = Phase.RESTING if node.spec.settings.park_idle else Phase.READY\n"
            "    return Phase.DRAINING if node.draining() else ready\n",
        ),
    ],
    "agent/dracpu_agent/report/conditions.py": [
        (
            "        _state(node, standing),\n",
            '        _state(node, standing),\n        Condition(NodeCondition.POWER_MANAGED, True, "Managed"),\n',
        )
    ],
    "agent/dracpu_agent/cluster/status_plan.py": [
        ('"agentVersion", "topology",', '"agentVersion", "bootId", "topology",')
    ],
    "operator/dracpu_operator/decide/plan.py": [
        (
            "        wanted.spec.rollout.settle_seconds,\n",
            "        wanted.spec.rollout.settle_seconds,\n        drain_seconds=wanted.spec.rollout.drain_seconds,\n",
        )
    ],
    "operator/dracpu_operator/decide/summary.py": [
        (
            '        "observedGeneration": config.generation,\n        "nodes": {\n',
            '        "observedGeneration": config.generation,\n        "estimate": "next",\n        "nodes": {\n',
        ),
        (
            "        ConfigCondition.CONFLICTED: _conflicted(selected),\n",
            "        ConfigCondition.CONFLICTED: _conflicted(selected),\n"
            "        ConfigCondition.AUDITED: Verdict(True, ConfigReason.VALID),\n",
        ),
    ],
}

# A mistake that a release must not contain: defaults in the CRD of CpuNodes, which the API server adds to each node's
# settings. With these, operators up to the former version removed all CpuNodes.
_DEFAULTS_FOR_NODES: Final[Mapping[str, Sequence[tuple[str, str]]]] = {
    "crds/dracpu_api/objects/definitions.py": [
        (
            """wide=True),
        ),
    ),
)
""",
            """wide=True),
        ),
        defaults=frozenset(
            {"spec.settings.parkIdle", "spec.settings.power", "spec.settings.allocation.order"}
        ),
    ),
)
""",
        )
    ]
}


class HistoryError(Exception):
    """The repository lacks a commit, as a shallow clone does."""


class NextVersionError(Exception):
    """A patch does not fit the present version: somebody has changed the text that it replaces."""


@dataclass(frozen=True, slots=True)
class Version:
    """A version of the project, in a folder like that of the repository."""

    name: str
    root: Path

    @property
    def environment(self) -> dict[str, str]:
        """This process's environment, in which Python imports the packages of this version."""
        return {**os.environ, "PYTHONPATH": self.python_path}

    @property
    def python_path(self) -> str:
        """The value of PYTHONPATH for this version's programs; it precedes what is installed."""
        return os.pathsep.join(str(self.root / folder) for folder in _CODE)

    @property
    def number(self) -> str:
        """What agents of this version report as their version."""
        (found,) = re.findall(r'__version__ = "(.+)"', (self.root / "agent/dracpu_agent/version.py").read_text())
        return str(found)

    def crds(self) -> list[dict[str, Any]]:
        """Returns the CustomResourceDefinitions."""
        return [yaml.safe_load(file.read_text()) for file in sorted((self.root / "crds").glob("*.yaml"))]

    def python(self, code: str) -> str:
        """Runs Python code with this version's packages, and returns its output."""
        words = (sys.executable, "-c", code)
        return subprocess.run(words, env=self.environment, check=True, capture_output=True, text=True).stdout


PRESENT: Final = Version("present", PROJECT)


def former_version(folder: Path, commit: str = FORMER) -> Version:
    """Reads a former version from the repository's history into a folder, which must not exist yet."""
    folder.mkdir()
    archive = folder / "archive.tar"
    # any owner: tests run as root, and the clone may belong to somebody else
    git = ("git", "-c", "safe.directory=*", "-C", str(PROJECT))
    asked = subprocess.run(
        (*git, "archive", "-o", archive, commit, *_FOLDERS, *_FILES), check=False, capture_output=True
    )
    if asked.returncode != 0:
        raise HistoryError(
            f"commit {commit} cannot be read ({asked.stderr.decode().strip()}): the test upgrades from it, so it needs "
            "a clone with its whole history: run `git fetch --unshallow`"
        )
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    archive.unlink()
    return Version("former", folder)


def next_version(folder: Path, *, defaults_for_nodes: bool = False) -> Version:
    """Makes the next version in a folder, which must not exist yet; raises NextVersionError. `defaults_for_nodes`: its
    CRD of CpuNodes has defaults."""
    for name in _FOLDERS:
        shutil.copytree(PROJECT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in _FILES:
        shutil.copy(PROJECT / name, folder / name)
    for patches in (_PATCHES, _DEFAULTS_FOR_NODES if defaults_for_nodes else {}):
        for name, replacements in patches.items():
            file = folder / name
            file.write_text(patched(name, file.read_text(), replacements))
    made = Version("next", folder)
    generated = subprocess.run(
        (sys.executable, folder / "tools/generate.py"),
        env=made.environment,
        check=False,
        capture_output=True,
        text=True,
    )
    if generated.returncode != 0:
        raise NextVersionError(f"the CRDs of the next version cannot be generated: {generated.stderr}")
    return made


def patched(name: str, text: str, replacements: Sequence[tuple[str, str]]) -> str:
    """Returns a file's text with each text replaced that is in it exactly once; raises NextVersionError."""
    for before, after in replacements:
        count = text.count(before)
        if count != 1:
            raise NextVersionError(
                f"{name} has this text {count} times instead of once: adapt tests/support/next_version.py: {before!r}"
            )
        text = text.replace(before, after)
    if name.endswith(".py"):
        compile(text, name, "exec")
    return text
