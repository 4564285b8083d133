"""Installs the project's chart with helm. The nodes have the images from the start."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from lab.cluster import Lab
from lab.errors import CommandFailedError

PROJECT: Final = Path(__file__).parents[3]
CHART: Final = PROJECT / "charts" / "dra-cpu-operator"
NAMESPACE: Final = "dra-cpu-system"
RELEASE: Final = "dra"
CONFIG: Final = "default"  # the CpuDriverConfig that the chart creates

IMAGES: Final = {"agent": "localhost/dracpu-agent", "operator": "localhost/dracpu-operator"}
TAG: Final = "lab"

# a rollout without waiting, for all tests that are not about the rollout itself
QUICK: Final[Mapping[str, Any]] = {"rollout": {"maxUnavailable": "100%", "settleSeconds": 1}}


def values(operator_node: str) -> dict[str, Any]:
    """Returns the chart's values: images are never pulled, and the operator runs on a node that no test restarts."""
    chart_values: dict[str, Any] = {
        component: {"image": {"repository": repository, "tag": TAG, "pullPolicy": "Never"}}
        for component, repository in IMAGES.items()
    }
    chart_values["agent"]["memory"] = {"enabled": True, "provision": True}
    chart_values["operator"]["nodeSelector"] = {"kubernetes.io/hostname": operator_node}
    chart_values["defaultConfig"] = {"spec": QUICK}
    return chart_values


def install(lab: Lab, wanted: Mapping[str, Any]) -> None:
    """Installs the chart, or upgrades the release; does nothing when this chart with these values is installed."""
    description = _description(wanted)
    if _installed_description(lab) == description:
        return
    settings = [word for name, value in wanted.items() for word in ("--set-json", f"{name}={json.dumps(value)}")]
    words = ("upgrade", "--install", RELEASE, str(CHART), "--namespace", NAMESPACE, "--create-namespace")
    lab.helm(*words, *settings, "--description", description, timeout=360)


def _installed_description(lab: Lab) -> str:
    """Returns the description of the installed release; "" when there is none or its installation failed."""
    try:
        release = json.loads(lab.helm("status", RELEASE, "--namespace", NAMESPACE, "--output", "json"))
    except CommandFailedError as error:
        if "release: not found" not in error.printed:
            raise
        return ""
    info: dict[str, str] = release["info"]
    return info["description"] if info["status"] == "deployed" else ""


def _description(wanted: Mapping[str, Any]) -> str:
    """Returns a digest of the chart and its values, which helm stores as the release's description."""
    digest = hashlib.sha256(json.dumps(wanted, sort_keys=True).encode())
    for file in sorted(path for path in CHART.rglob("*") if path.is_file()):
        digest.update(f"{file.relative_to(CHART)}\0".encode() + file.read_bytes())
    return f"chart {digest.hexdigest()[:16]}"
