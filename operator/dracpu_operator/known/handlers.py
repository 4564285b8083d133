"""kopf's handlers of configs.

They handle raw events only: kopf's other kinds of handlers write annotations or finalizers onto the objects, and an
index of 5,000 objects takes minutes to build. kopf does not repeat an event whose handler failed, so handlers only
record the object and decide nothing.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import kopf

from dracpu_api.resources import CONFIGS, resource_version
from dracpu_operator.known.fleet import Fleet


def registry_for(fleet: Fleet, login: Callable[[], Awaitable[kopf.AiohttpSession]]) -> kopf.OperatorRegistry:
    """The handlers, which record what they receive in `fleet`."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def log_in(**_: Any) -> kopf.AiohttpSession:
        return await login()

    @kopf.on.event(CONFIGS.group, CONFIGS.version, CONFIGS.plural, registry=registry)
    async def config(event: kopf.RawEvent, name: str, uid: str, **_: Any) -> None:
        if event["type"] == "DELETED":
            fleet.config_table.remove(name, uid, resource_version(event["object"]))
        else:
            fleet.store_config(event["object"], watched=True)

    return registry
