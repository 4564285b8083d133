"""helm as a person types it, with all that it prints."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from lab.cluster import Lab
from lab.host import Argument, run
from lab.network import network_command

from harness.release import CHART, NAMESPACE, RELEASE

# the docs' way to upgrade: the chart's new defaults, and the values that were given before
KEEPING_VALUES: Final = "--reset-then-reuse-values"


@dataclass(frozen=True, slots=True)
class Helm:
    """helm with the administrator's rights, in the namespace of our release."""

    lab: Lab

    def run(self, *words: Argument, timeout: float = 360) -> str:
        """Returns what helm prints to both its outputs: the logs of hooks come on the second."""
        command = (self.lab.paths.bin / "helm", "--kubeconfig", self.lab.paths.kubeconfig, "--namespace", NAMESPACE)
        shell = ("sh", "-c", 'exec "$@" 2>&1', "sh")
        return run(*network_command(self.lab.paths, *shell, *command, *words), timeout=timeout)

    def upgrade(self, *options: str, values: Mapping[str, Any] | None = None) -> str:
        """Upgrades our release; `values` change by their dotted names, the others stay."""
        changed = [f"--set-json={name}={json.dumps(value)}" for name, value in (values or {}).items()]
        return self.run("upgrade", RELEASE, CHART, KEEPING_VALUES, *changed, *options)

    def uninstall(self, *options: str) -> str:
        """Uninstalls our release."""
        return self.run("uninstall", RELEASE, *options)

    def listed(self, *options: str) -> dict[str, str]:
        """The status of each release that `helm list` shows."""
        shown = json.loads(self.run("list", "--output", "json", *options))
        return {release["name"]: release["status"] for release in shown}

    def revision(self) -> str:
        """The number in the last line of our release's history."""
        return str(json.loads(self.run("history", RELEASE, "--output", "json"))[-1]["revision"])
