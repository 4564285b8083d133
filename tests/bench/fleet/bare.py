"""The bare client: it makes the operator's first writes and nothing else, as many at a time as the operator."""

import time
from collections.abc import Iterable, Mapping
from typing import Any

from dracpu_api.resources import CPU_NODES, Json
from fleet.api import Api, each


async def write(api: Api, cpu_nodes: Mapping[str, Json], parallel: int) -> float:
    """Writes all CpuNodes; returns the seconds."""
    began = time.monotonic()
    await each(cpu_nodes.items(), lambda item: api.apply(CPU_NODES.path(item[0]), item[1]), parallel)
    return time.monotonic() - began


def copies(written: Iterable[Json]) -> dict[str, dict[str, Any]]:
    """The bodies of the operator's writes, from the CpuNodes that they have made."""
    return {
        raw["metadata"]["name"]: {
            "apiVersion": CPU_NODES.api_version,
            "kind": CPU_NODES.kind,
            "metadata": {key: raw["metadata"][key] for key in ("name", "labels", "annotations", "ownerReferences")},
            "spec": raw["spec"],
        }
        for raw in written
    }
