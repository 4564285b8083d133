"""The commands that the chart's Jobs run: `default-config` and `uninstall-check`.

decide/default_config.py and decide/uninstalling.py decide; here their input is read and their decisions are carried
out.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from dracpu_api.errors import ApiError, ConflictError, NotFoundError, NotServedError, UnavailableError
from dracpu_api.resources import CONFIGS, CPU_NODES, RESOURCE_CLAIMS, Json, Resource
from dracpu_operator.api import access
from dracpu_operator.api.cluster import Cluster
from dracpu_operator.decide.default_config import CHART, Action, decide
from dracpu_operator.decide.uninstalling import Holder, all_holders, holders_of_claim, holders_of_node, summary
from dracpu_operator.errors import HeldError

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Waits:
    """How long the commands wait, in seconds."""

    served: float = 60.0  # for an API server that serves the kinds that were installed a moment ago
    released: float = 15.0  # for agents and controllers that have yet to notice that pods are gone
    between: float = 1.0  # two attempts


async def default_config(kubeconfig: Path | None, manifest: Json, waits: Waits | None = None) -> str:
    """Creates or updates the chart's config; returns a sentence about what was done."""
    waits = waits or Waits()
    async with Cluster(await access.load(kubeconfig)) as cluster:
        return await _retried(lambda: _put(cluster, manifest), waits, ConflictError)


async def uninstall_check(kubeconfig: Path | None, waits: Waits | None = None) -> list[Holder]:
    """Returns the claims that hold CPUs or memory. While there are any it looks again for a while: those of pods that
    have just ended are about to be released."""
    waits = waits or Waits()
    ends = asyncio.get_running_loop().time() + waits.released
    async with Cluster(await access.load(kubeconfig)) as cluster:
        while True:
            holders = await _retried(lambda: _holders(cluster), waits)
            if not holders or asyncio.get_running_loop().time() >= ends:
                return holders
            await asyncio.sleep(waits.between)


def require_none(holders: list[Holder]) -> None:
    """Raises HeldError when claims hold CPUs or memory."""
    if holders:
        raise HeldError(
            f"{summary(holders)}: delete the pods that use them, or the claims themselves, first. To uninstall "
            "nevertheless: helm uninstall --no-hooks"
        )


async def _put(cluster: Cluster, manifest: Json) -> str:
    name = manifest["metadata"]["name"]
    existing = await _read(cluster, name)
    decision = decide(existing)
    if decision.action is Action.LEAVE:
        return (
            f"CpuDriverConfig {name}: left as it is: {decision.reason}. To have it follow the chart's values again, "
            "delete it and run helm upgrade"
        )
    uid = None if existing is None else existing["metadata"]["uid"]
    body = {"metadata": {**manifest["metadata"], **({"uid": uid} if uid else {})}, "spec": manifest["spec"]}
    written = await cluster.apply(CONFIGS, body, manager=CHART, force=False)
    if existing is None:
        return f"CpuDriverConfig {name}: created"
    changed = written["metadata"]["generation"] != existing["metadata"]["generation"]
    return f"CpuDriverConfig {name}: {'updated' if changed else 'has the values of the chart already'}"


async def _read(cluster: Cluster, name: str) -> Json | None:
    try:
        return await cluster.read(CONFIGS, name)
    except NotFoundError:
        return None


async def _holders(cluster: Cluster) -> list[Holder]:
    # CpuNodes first: a claim that is given devices between the two lists is in the second one
    reported = await _all(cluster, CPU_NODES, holders_of_node)
    return all_holders(await _all(cluster, RESOURCE_CLAIMS, holders_of_claim), reported)


async def _all(cluster: Cluster, resource: Resource, holders: Callable[[Json], list[Holder]]) -> list[Holder]:
    try:
        return [holder async for raw in cluster.items(resource) for holder in holders(raw)]
    except NotServedError:  # so there are no objects of the kind
        return []


async def _retried(attempt: Callable[[], Awaitable[_T]], waits: Waits, *others: type[ApiError]) -> _T:
    """Repeats an attempt while the API server does not answer, or answers with one of the `others`."""
    ends = asyncio.get_running_loop().time() + waits.served
    while True:
        try:
            return await attempt()
        except ApiError as error:
            if not isinstance(error, (UnavailableError, *others)) or asyncio.get_running_loop().time() >= ends:
                raise
        await asyncio.sleep(waits.between)
