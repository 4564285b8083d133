"""The commands that the chart's hooks run: what to do is decided elsewhere, here it is asked for and done."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from dracpu_api.errors import ApiError, ConflictError, NotFoundError, UnavailableError
from dracpu_api.resources import CONFIGS, CPU_NODES, RESOURCE_CLAIMS, Json, Resource
from dracpu_operator.api import access
from dracpu_operator.api.cluster import Cluster
from dracpu_operator.decide.default_config import CHART, Action, decide
from dracpu_operator.decide.uninstalling import Holder, all_holders, holders_of, holders_on
from dracpu_operator.errors import HeldError

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Patience:
    """In seconds."""

    served: float = 60.0  # until the API server answers, and serves resources that were installed a moment ago
    released: float = 15.0  # until agents and controllers have seen that pods are gone
    between: float = 1.0


async def default_config(kubeconfig: Path | None, manifest: Json, patience: Patience | None = None) -> str:
    """Makes or changes the chart's config; returns what was done, in words."""
    patience = patience or Patience()
    async with Cluster(await access.load(kubeconfig)) as cluster:
        return await _patiently(lambda: _put(cluster, manifest), patience, NotFoundError, ConflictError)


async def uninstall_check(kubeconfig: Path | None, patience: Patience | None = None) -> list[Holder]:
    """What holds CPUs; looks again for a while, since what has just ended is still on its way out."""
    patience = patience or Patience()
    ends = asyncio.get_running_loop().time() + patience.released
    async with Cluster(await access.load(kubeconfig)) as cluster:
        while True:
            holders = await _patiently(lambda: _holders(cluster), patience)
            if not holders or asyncio.get_running_loop().time() >= ends:
                return holders
            await asyncio.sleep(patience.between)


def refuse(holders: list[Holder]) -> None:
    """Raises when something holds CPUs."""
    if holders:
        count = "1 claim holds" if len(holders) == 1 else f"{len(holders)} claims hold"
        raise HeldError(
            f"{count} CPUs: delete the pods that use them, or the claims themselves, first. To uninstall all the same: "
            "helm uninstall --no-hooks"
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
    # not found here means that the kind is not served yet: a config that does not exist is made
    body = {"metadata": {**manifest["metadata"], **({"uid": uid} if uid else {})}, "spec": manifest["spec"]}
    written = await cluster.apply(CONFIGS, body, manager=CHART, force=False)
    if existing is None:
        return f"CpuDriverConfig {name}: created"
    changed = written["metadata"]["generation"] != existing["metadata"]["generation"]
    return f"CpuDriverConfig {name}: {'updated' if changed else 'is as the chart says'}"


async def _read(cluster: Cluster, name: str) -> Json | None:
    try:
        return await cluster.read(CONFIGS, name)
    except NotFoundError:
        return None


async def _holders(cluster: Cluster) -> list[Holder]:
    # CpuNodes first: a claim that is given CPUs meanwhile is in the second list
    named = await _all(cluster, CPU_NODES, holders_on)
    return all_holders(await _all(cluster, RESOURCE_CLAIMS, holders_of), named)


async def _all(cluster: Cluster, resource: Resource, holders: Callable[[Json], list[Holder]]) -> list[Holder]:
    try:
        return [one async for raw in cluster.items(resource) for one in holders(raw)]
    except NotFoundError:  # where the kind is not served, there is nothing of it
        return []


async def _patiently(ask: Callable[[], Awaitable[_T]], patience: Patience, *others: type[ApiError]) -> _T:
    """Asks again while the API server does not answer, or answers with an error that time may mend."""
    ends = asyncio.get_running_loop().time() + patience.served
    while True:
        try:
            return await ask()
        except ApiError as error:
            if not isinstance(error, (UnavailableError, *others)) or asyncio.get_running_loop().time() >= ends:
                raise
        await asyncio.sleep(patience.between)
