"""kopf's handlers of the custom resources.

They handle raw events only: kopf's other kinds of handlers write annotations or finalizers onto the objects, and an
index of 5,000 objects takes minutes to build. kopf does not repeat an event whose handler failed, so handlers only
record the object and decide nothing.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import kopf

from dracpu_api.resources import CONFIGS, CPU_NODES
from dracpu_operator.known.fleet import Fleet


def registry_for(fleet: Fleet, login: Callable[[], Awaitable[kopf.ConnectionInfo]]) -> kopf.OperatorRegistry:
    """The handlers, which record what they receive in `fleet`."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def log_in(**_: Any) -> kopf.ConnectionInfo:
        return await login()

    @kopf.on.event(CONFIGS.group, CONFIGS.version, CONFIGS.plural, registry=registry)
    async def config(event: kopf.RawEvent, name: str, uid: str, **_: Any) -> None:
        if event["type"] == "DELETED":
            fleet.remove_config(name, uid)
        else:
            fleet.store_config(event["object"])

    @kopf.on.event(CPU_NODES.group, CPU_NODES.version, CPU_NODES.plural, registry=registry)
    async def cpu_node(event: kopf.RawEvent, name: str, uid: str, **_: Any) -> None:
        if event["type"] == "DELETED":
            fleet.remove_cpu_node(name, uid)
        else:
            fleet.store_cpu_node(event["object"])

    return registry
