"""Runs helm as a person would, and returns all its output."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lab.cluster import Lab
from lab.host import Argument, run
from lab.network import network_command

from harness.release import CHART, NAMESPACE, RELEASE

# as the docs describe an upgrade: it takes the chart's new defaults and keeps the values that were given before
KEEPING_VALUES: Final = "--reset-then-reuse-values"


@dataclass(frozen=True, slots=True)
class Helm:
    """Runs helm with the administrator's rights, in the namespace of the release."""

    lab: Lab

    def run(self, *words: Argument, timeout: float = 360) -> str:
        """Returns helm's standard output and standard error; helm prints the logs of hooks to the latter."""
        command = (self.lab.paths.bin / "helm", "--kubeconfig", self.lab.paths.kubeconfig, "--namespace", NAMESPACE)
        shell = ("sh", "-c", 'exec "$@" 2>&1', "sh")
        return run(*network_command(self.lab.paths, *shell, *command, *words), timeout=timeout)

    def upgrade(self, *options: str, values: Mapping[str, Any] | None = None, chart: Path = CHART) -> str:
        """Upgrades the release. `values` are changes by dotted name; all other values stay."""
        changed = [f"--set-json={name}={json.dumps(value)}" for name, value in (values or {}).items()]
        return self.run("upgrade", RELEASE, chart, KEEPING_VALUES, *changed, *options)

    def uninstall(self, *options: str) -> str:
        """Uninstalls the release."""
        return self.run("uninstall", RELEASE, *options)

    def listed(self, *options: str) -> dict[str, str]:
        """Returns the status of each release that `helm list` prints, by name."""
        releases = json.loads(self.run("list", "--output", "json", *options))
        return {release["name"]: release["status"] for release in releases}

    def revision(self) -> str:
        """Returns the revision in the last line of the release's history."""
        return str(json.loads(self.run("history", RELEASE, "--output", "json"))[-1]["revision"])
