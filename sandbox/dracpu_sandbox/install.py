"""Creates the objects that the chart installs: CRDs, the DeviceClasses, and a first CpuDriverConfig."""

import asyncio
from collections.abc import Iterator
from typing import Final

from dracpu_api.names import CLASSES_OF_MEMORY, DRIVER, DRIVER_MEMORY
from dracpu_api.objects.definitions import CUSTOM_RESOURCES, definition
from dracpu_sandbox.client import ConflictError, KubeClient, KubeError
from dracpu_sandbox.errors import SandboxError
from dracpu_sandbox.resources import CONFIGS, CPU_NODES, CRDS, DEVICE_CLASSES, NAMESPACES, JsonObject, Resource

NAMESPACE: Final = "dra-cpu-system"
DEFAULT_CONFIG: Final[JsonObject] = {
    "apiVersion": CONFIGS.api_version,
    "kind": CONFIGS.kind,
    "metadata": {"name": "default"},
    # no pods of other users are waiting, so a change of devices may settle quickly
    "spec": {"rollout": {"settleSeconds": 1}},
}

_NAMESPACES: Final = ("default", NAMESPACE)  # a real API server may not have created `default` yet
_SERVED_SECONDS: Final = 10.0
_NOT_YET: Final = (404, 429)  # 429: its storage "is (re)initializing"
_LOOK_SECONDS: Final = 0.05


async def install(client: KubeClient, config: JsonObject | None) -> None:
    """Creates all objects that the nodes and the operator need."""
    for resource in CUSTOM_RESOURCES:
        await _ensure(client, CRDS, definition(resource))
    for name in _NAMESPACES:
        await _ensure(client, NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    for device_class in device_classes():
        await _ensure(client, DEVICE_CLASSES, device_class)
    for served in (CONFIGS, CPU_NODES):
        await _until_served(client, served)
    if config is not None:
        await _ensure(client, CONFIGS, config)


def device_classes() -> Iterator[JsonObject]:
    """Yields the DeviceClasses that claims refer to."""
    yield _device_class(DRIVER, f'device.driver == "{DRIVER}"')
    attributes = 'device.attributes["resource.kubernetes.io"]'
    for name, page_size in zip(CLASSES_OF_MEMORY, ("", "2Mi", "1Gi"), strict=True):
        pages = f' && {attributes}.pageSize == "{page_size}"' if page_size else ""
        expression = (
            f'device.driver == "{DRIVER_MEMORY}" && {attributes}.hugeTLB == {str(bool(page_size)).lower()}{pages}'
        )
        yield _device_class(name, expression)


def _device_class(name: str, expression: str) -> JsonObject:
    return {
        "apiVersion": DEVICE_CLASSES.api_version,
        "kind": DEVICE_CLASSES.kind,
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


async def _ensure(client: KubeClient, resource: Resource, body: JsonObject) -> None:
    try:
        await client.create(resource, body)
    except ConflictError:
        return


async def _until_served(client: KubeClient, resource: Resource) -> None:
    """Waits, because a real API server serves a new kind some moments after it has accepted the definition."""
    try:
        async with asyncio.timeout(_SERVED_SECONDS):
            while True:
                try:
                    await client.list(resource)
                except KubeError as error:
                    if error.code not in _NOT_YET:
                        raise
                    await asyncio.sleep(_LOOK_SECONDS)
                else:
                    return
    except TimeoutError as error:
        raise SandboxError(f"the API server does not serve {resource.plural}.{resource.group}") from error
