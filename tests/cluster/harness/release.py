"""Our chart in the cluster, installed by helm with images that the nodes have from the start."""

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
CONFIG: Final = "default"  # the CpuDriverConfig that the chart makes

IMAGES: Final = {"agent": "localhost/dracpu-agent", "operator": "localhost/dracpu-operator"}
TAG: Final = "lab"

# what the tests' default config says unless a test says otherwise: the rollout is not what most of them are about
QUICK: Final[Mapping[str, Any]] = {"rollout": {"maxUnavailable": "100%", "settleSeconds": 1}}


def values(operator_node: str) -> dict[str, Any]:
    """The chart's values: nothing is ever pulled, and the operator stays where no test pulls the plug."""
    made: dict[str, Any] = {
        component: {"image": {"repository": repository, "tag": TAG, "pullPolicy": "Never"}}
        for component, repository in IMAGES.items()
    }
    made["operator"]["nodeSelector"] = {"kubernetes.io/hostname": operator_node}
    made["defaultConfig"] = {"spec": QUICK}
    return made


def install(lab: Lab, wanted: Mapping[str, Any]) -> None:
    """`helm install`; an upgrade where an older chart or other values stand; nothing where these do."""
    described = _digest(wanted)
    if _stands(lab) == described:
        return
    settings = [word for name, value in wanted.items() for word in ("--set-json", f"{name}={json.dumps(value)}")]
    words = ("upgrade", "--install", RELEASE, str(CHART), "--namespace", NAMESPACE, "--create-namespace")
    lab.helm(*words, *settings, "--description", described, timeout=360)


def _stands(lab: Lab) -> str:
    """What was installed last, when that went well."""
    try:
        release = json.loads(lab.helm("status", RELEASE, "--namespace", NAMESPACE, "--output", "json"))
    except CommandFailedError as error:
        if "release: not found" not in error.printed:
            raise
        return ""
    info: dict[str, str] = release["info"]
    return info["description"] if info["status"] == "deployed" else ""


def _digest(wanted: Mapping[str, Any]) -> str:
    """Of the chart and its values; helm keeps it as the release's description."""
    digest = hashlib.sha256(json.dumps(wanted, sort_keys=True).encode())
    for file in sorted(path for path in CHART.rglob("*") if path.is_file()):
        digest.update(f"{file.relative_to(CHART)}\0".encode() + file.read_bytes())
    return f"chart {digest.hexdigest()[:16]}"
