"""The built-in control plane: an API server with scheduler and controllers in this process."""

import contextlib
from collections.abc import AsyncGenerator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from dracpu_sandbox.apiserver.refusal import bad_request
from dracpu_sandbox.apiserver.server import ApiServer
from dracpu_sandbox.client import KubeClient
from dracpu_sandbox.controllers import manager
from dracpu_sandbox.controllers.scheduling import Scheduler
from dracpu_sandbox.errors import SandboxError
from dracpu_sandbox.resources import JsonObject

Parts = dict[str, Coroutine[Any, Any, None]]  # coroutines that must run, by name


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """The address of an API server, and the parts of the sandbox that must run with it."""

    name: str
    kubeconfig: JsonObject
    parts: Callable[[KubeClient], Parts]


@contextlib.asynccontextmanager
async def built_in(port: int, logs: Callable[[str, str, str], str]) -> AsyncGenerator[ControlPlane]:
    """Runs the API server in this process, with its objects in memory."""

    def logs_of(namespace: str, pod: str, container: str) -> str:
        try:
            return logs(namespace, pod, container)
        except SandboxError as error:
            raise bad_request(str(error)) from error

    async with ApiServer(port) as server:
        server.logs = logs_of
        yield ControlPlane(f"API server on {server.url}, scheduler, controllers", server.kubeconfig(), our_parts)


def our_parts(client: KubeClient) -> Parts:
    """Returns the scheduler and the controllers of the sandbox."""
    return {"scheduler": Scheduler(client).run(), "controllers": manager.run(client)}
