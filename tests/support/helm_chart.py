"""Renders the chart with helm, for tests of its manifests."""

import os
import shutil
import subprocess
import sysconfig
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).parents[2]
CHART: Final = ROOT / "charts" / "dra-cpu-operator"
NAMESPACE: Final = "dra-cpu-system"
KUBERNETES: Final = "1.37.0"  # fixed, because the default differs between builds of helm

HOOK: Final = "helm.sh/hook"

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast where libyaml is installed

Manifest = dict[str, Any]


class RefusedError(Exception):
    """Helm did not render the chart; the message is what it printed."""


class HelmMissingError(Exception):
    """No helm was found; the message names the ways to get one."""


class _Strict(_LOADER):  # type: ignore[misc]  # which of the two it is depends on the machine
    """Refuses a mapping that has a key twice, as the API server does; yaml would take the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Returns the mapping."""
        keys = [key.value for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"{node.start_mark}: a key is there twice: {keys}"
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


@dataclass(frozen=True)
class Rendered:
    """All manifests of a rendered chart."""

    manifests: tuple[Manifest, ...]

    def of_kind(self, kind: str) -> list[Manifest]:
        """Returns the manifests of a kind."""
        return [manifest for manifest in self.manifests if manifest["kind"] == kind]

    def only(self, kind: str) -> Manifest:
        """Returns the only manifest of a kind."""
        (manifest,) = self.of_kind(kind)
        return manifest

    def named(self, kind: str, name: str) -> Manifest:
        """Returns the manifest of a kind with a name."""
        (manifest,) = (manifest for manifest in self.of_kind(kind) if manifest["metadata"]["name"] == name)
        return manifest

    def hooks(self) -> list[Manifest]:
        """Returns the hooks, in the order in which helm creates them."""
        found = [manifest for manifest in self.manifests if HOOK in manifest["metadata"].get("annotations", {})]
        return sorted(found, key=lambda hook: int(hook["metadata"]["annotations"][f"{HOOK}-weight"]))


def pod_of(workload: Manifest) -> Manifest:
    """Returns the spec of a workload's pods."""
    spec: Manifest = workload["spec"]["template"]["spec"]
    return spec


def container_of(workload: Manifest) -> Manifest:
    """Returns the only container of a workload's pods."""
    (only,) = pod_of(workload)["containers"]
    container: Manifest = only
    return container


def rights_of(role: Manifest) -> dict[tuple[str, str], set[str]]:
    """Returns a role's verbs by API group and resource."""
    return {
        (group, resource): set(rule["verbs"])
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def helm_program() -> str:
    """Finds the helm that was installed with this Python, or else the one on PATH or in the test cluster's cache."""
    cache_folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    lab = cache_folder / "dra-cpu-operator" / "lab" / "bin"
    folders = (sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath), str(lab))
    found = shutil.which("helm", path=os.pathsep.join(folders))
    if found is None:
        raise HelmMissingError("helm is missing: put it on PATH (`make venv` installs it on Linux on x86_64 only)")
    return found


@cache
def render(*values: str, kubernetes: str = KUBERNETES, chart: Path = CHART, namespace: str = NAMESPACE) -> Rendered:
    """Renders the chart with values as `--set` takes them; raises RefusedError."""
    settings = [word for value in values for word in ("--set", value)]
    words = ["template", "dra", str(chart), "--namespace", namespace, "--kube-version", kubernetes, *settings]
    return Rendered(tuple(manifest for manifest in yaml.load_all(_run(*words), Loader=_Strict) if manifest))


def package(folder: Path) -> Path:
    """Packages the chart as a release does; returns the archive."""
    _run("package", str(CHART), "--destination", str(folder))
    (archive,) = folder.glob("*.tgz")
    return archive


def _run(*words: str) -> str:
    done = subprocess.run([helm_program(), *words], capture_output=True, check=False, text=True, timeout=30)
    if done.returncode:
        raise RefusedError(done.stderr)
    return done.stdout
