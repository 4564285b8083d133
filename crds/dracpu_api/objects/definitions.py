"""The CRDs as YAML: the models' schemas, and the columns that kubectl shows of each object.

`files()` returns all that `make generate` writes into the repository: the CRDs in crds/, for `kubectl apply`, and the
same texts in the chart.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml
from pydantic import BaseModel

from dracpu_api.memory_kinds import ORDINARY
from dracpu_api.names import API_GROUP, API_VERSION
from dracpu_api.objects.models import CpuDriverConfig, CpuNode
from dracpu_api.objects.schema import structural

FOLDERS: Final = ("crds", "charts/dra-cpu-operator/crd-files")

_HEADER: Final = "# Made from crds/dracpu_api/objects by `make generate`; changes belong there.\n"


@dataclass(frozen=True)
class Column:
    """A column of `kubectl get`; wide ones show with `-o wide` only."""

    name: str
    path: str
    description: str
    type: str = "string"
    wide: bool = False

    def render(self) -> dict[str, Any]:
        """The column in the form of a CRD."""
        column: dict[str, Any] = {"name": self.name, "type": self.type, "jsonPath": self.path}
        if self.description:
            column["description"] = self.description
        if self.wide:
            column["priority"] = 1
        return column


@dataclass(frozen=True)
class CustomResource:
    """A custom resource: its names, its model and its columns."""

    model: type[BaseModel]
    plural: str
    short_name: str
    columns: tuple[Column, ...]
    defaults: frozenset[str] = frozenset()  # paths of the fields that the API server completes

    @property
    def kind(self) -> str:
        """The kind, which is the model's name."""
        return self.model.__name__


# A closed list. The API server adds a default to stored objects as soon as the CRD has it, while the programs of the
# former version still run: a field that is added later has its default in the models alone.
_CONFIG_DEFAULTS: Final = frozenset(
    {
        "spec",
        "spec.mode",
        "spec.groupBy",
        "spec.reservedCPUs",
        "spec.allocation",
        "spec.allocation.strategy",
        "spec.allocation.fullCores",
        "spec.allocation.preferUncoreCache",
        "spec.exposePCIeRoots",
        "spec.nodeAllocatable",
        "spec.nodeSelector",
        "spec.priority",
        "spec.rollout",
        "spec.rollout.maxUnavailable",
        "spec.rollout.paused",
        "spec.rollout.settleSeconds",
        "status.nodes.selected",
        "status.nodes.applied",
        "status.nodes.progressing",
        "status.nodes.failed",
        "status.cpus.total",
        "status.cpus.reserved",
        "status.cpus.exclusive",
        "status.cpus.available",
    }
)


def _of_memory(name: str) -> str:
    """A column shows one item of a list: that about ordinary memory."""
    return f'.status.memory[?(@.kind=="{ORDINARY}")].{name}'


AGE: Final = Column("Age", ".metadata.creationTimestamp", "", type="date")

CUSTOM_RESOURCES: Final = (
    CustomResource(
        CpuDriverConfig,
        plural="cpudriverconfigs",
        short_name="cpucfg",
        columns=(
            Column("Mode", ".spec.mode", "How CPUs are offered"),
            Column("GroupBy", ".spec.groupBy", "What one device stands for in grouped mode"),
            Column("Reserved", ".spec.reservedCPUs", "CPUs that are never offered; empty: each node's lowest core"),
            Column("Nodes", ".status.nodes.selected", "Nodes that follow this config", type="integer"),
            Column("Applied", ".status.nodes.applied", "Nodes that have applied it", type="integer"),
            Column("Failed", ".status.nodes.failed", "Nodes that could not apply it", type="integer"),
            Column("Available", ".status.cpus.available", "CPUs that claims can still get", type="integer"),
            AGE,
            Column(
                "Strategy",
                ".spec.allocation.strategy",
                "Whether a claim's CPUs are close together or spread",
                wide=True,
            ),
            Column(
                "Priority",
                ".spec.priority",
                "A node follows the config with the highest one",
                type="integer",
                wide=True,
            ),
            Column("Memory", _of_memory("total"), "Memory of its nodes, without hugepages", wide=True),
            Column("Promised", _of_memory("promised"), "Memory that claims hold, without hugepages", wide=True),
        ),
        defaults=_CONFIG_DEFAULTS,
    ),
    CustomResource(
        CpuNode,
        plural="cpunodes",
        short_name="cpun",
        columns=(
            Column("Config", ".spec.config.name", "The CpuDriverConfig that the node follows"),
            Column("Mode", ".spec.settings.mode", "How CPUs are offered"),
            Column("CPUs", ".status.topology.counts.cpus", "CPUs that are online", type="integer"),
            Column("Reserved", ".status.cpus.reserved", "CPUs that are never offered"),
            Column("Exclusive", ".status.cpus.exclusive", "CPUs that claims hold"),
            Column("Claims", ".status.claimsTotal", "Claims that hold CPUs or memory", type="integer"),
            Column("Phase", ".status.phase", "Pending, Settling, Draining, Ready or Failed"),
            Column(
                "Agent-Ready", ".status.agent.ready", "Whether the pod of the node's agent is ready", type="boolean"
            ),
            AGE,
            Column("Shared", ".status.cpus.shared", "CPUs that all other containers run on", wide=True),
            Column("Runtime", ".status.runtime.version", "The container runtime's version", wide=True),
            Column("Version", ".status.agentVersion", "The agent's version", wide=True),
        ),
    ),
)


def crds() -> dict[str, str]:
    """The YAML text of each CustomResourceDefinition, by file name."""
    return {f"{resource.plural}.yaml": _yaml(definition(resource)) for resource in CUSTOM_RESOURCES}


def files() -> dict[str, str]:
    """The text of each CRD, by its path in the repository; every folder has the same files."""
    return {f"{folder}/{name}": text for folder in FOLDERS for name, text in crds().items()}


def definition(resource: CustomResource) -> dict[str, Any]:
    """The CustomResourceDefinition of one resource."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{resource.plural}.{API_GROUP}",
            # uninstalling the chart must not delete every config of the cluster
            "annotations": {"helm.sh/resource-policy": "keep"},
        },
        "spec": {
            "group": API_GROUP,
            "scope": "Cluster",
            "names": {
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
                "plural": resource.plural,
                "singular": resource.kind.lower(),
                "shortNames": [resource.short_name],
                "categories": ["dra-cpu"],
            },
            "versions": [
                {
                    "name": API_VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [column.render() for column in resource.columns],
                    "schema": {"openAPIV3Schema": _top_level(resource)},
                }
            ],
        },
    }


def _top_level(resource: CustomResource) -> dict[str, Any]:
    """The schema of a resource's model. The API server knows apiVersion, kind and metadata by itself, so that only
    their types are left."""
    schema = structural(resource.model, resource.defaults)
    for name in ("apiVersion", "kind", "metadata"):
        schema["properties"][name] = {"type": schema["properties"][name]["type"]}
    return schema


class _Dumper(yaml.SafeDumper):
    """Writes repeated values in full instead of as YAML anchors, and indents lists."""

    def ignore_aliases(self, data: object) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _yaml(document: Mapping[str, Any]) -> str:
    return _HEADER + yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=118, allow_unicode=True)
