"""What kopf calls, about custom resources. Events only: handlers of other kinds write annotations or finalizers onto
the objects, and an index over 5,000 of them takes minutes to build. `on.event` is never repeated, so handlers note and
decide nothing."""

from collections.abc import Awaitable, Callable
from typing import Any

import kopf

from dracpu_api.names import API_GROUP, API_VERSION
from dracpu_operator.known.fleet import Fleet


def registry_for(fleet: Fleet, login: Callable[[], Awaitable[kopf.ConnectionInfo]]) -> kopf.OperatorRegistry:
    """The handlers, feeding one fleet."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def log_in(**_: Any) -> kopf.ConnectionInfo:
        return await login()

    @kopf.on.event(API_GROUP, API_VERSION, "cpudriverconfigs", registry=registry)
    async def config(event: kopf.RawEvent, name: str, uid: str, **_: Any) -> None:
        if event["type"] == "DELETED":
            fleet.lose_config(name, uid)
        else:
            fleet.see_config(event["object"])

    @kopf.on.event(API_GROUP, API_VERSION, "cpunodes", registry=registry)
    async def cpu_node(event: kopf.RawEvent, name: str, uid: str, **_: Any) -> None:
        if event["type"] == "DELETED":
            fleet.lose_cpu_node(name, uid)
        else:
            fleet.see_cpu_node(event["object"])

    return registry
