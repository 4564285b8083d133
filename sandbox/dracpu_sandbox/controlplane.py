"""What a cluster is driven by: the built-in API server with scheduler and controllers, or the real binaries."""

import contextlib
from collections.abc import AsyncGenerator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from dracpu_sandbox.client import KubeClient
from dracpu_sandbox.errors import SandboxError
from dracpu_sandbox.resources import JsonObject

Parts = dict[str, Coroutine[Any, Any, None]]  # what has to run, by name


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """How to reach the API server, and what of ours has to run beside it."""

    name: str
    kubeconfig: JsonObject
    parts: Callable[[KubeClient], Parts]


@contextlib.asynccontextmanager
async def built_in(port: int, logs: Callable[[str, str, str], str]) -> AsyncGenerator[ControlPlane]:
    """Everything in this process, in memory."""
    from dracpu_sandbox.apiserver.refusal import bad_request  # noqa: PLC0415 - a real one may take its place
    from dracpu_sandbox.apiserver.server import ApiServer  # noqa: PLC0415 - likewise

    def logs_of(namespace: str, pod: str, container: str) -> str:
        try:
            return logs(namespace, pod, container)
        except SandboxError as error:
            raise bad_request(str(error)) from error

    async with ApiServer(port) as server:
        server.logs = logs_of
        yield ControlPlane(f"API server on {server.url}, scheduler, controllers", server.kubeconfig(), our_parts)


def our_parts(client: KubeClient) -> Parts:
    """The scheduler and the controllers of the sandbox."""
    return {"scheduler": our_scheduler(client), "controllers": our_controllers(client)}


async def our_scheduler(client: KubeClient) -> None:
    """Until cancelled."""
    from dracpu_sandbox.controllers.scheduling import Scheduler  # noqa: PLC0415 - a real one may take its place

    await Scheduler(client).run()


async def our_controllers(client: KubeClient) -> None:
    """Until cancelled."""
    from dracpu_sandbox.controllers import manager  # noqa: PLC0415 - real ones may take their place

    await manager.run(client)
