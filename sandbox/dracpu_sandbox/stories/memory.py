"""The actions and checks of stories about memory and hugepages."""

from collections.abc import Mapping
from typing import Final

from dracpu_api.names import (
    API_GROUP,
    API_VERSION,
    ATTRIBUTE_NUMA_NODE,
    CAPACITY_CPU,
    CAPACITY_SIZE,
    CLASSES_OF_MEMORY,
    DRIVER,
    DRIVER_MEMORY,
)
from dracpu_sandbox.client import STRATEGIC
from dracpu_sandbox.node.cgroups import NoMemoryError
from dracpu_sandbox.resources import CLAIM_TEMPLATES, PODS, SLICES, JsonObject
from dracpu_sandbox.stories import manifests
from dracpu_sandbox.stories.manifests import CONTAINER, NAMESPACE
from dracpu_sandbox.stories.story import Story

MI: Final = 1 << 20
GI: Final = 1 << 30
SMALL: Final = 2 * MI  # bytes of a hugepage

_MEMORY, _SMALL, _LARGE = CLASSES_OF_MEMORY
# what a pod requests -> the DeviceClass and the name of the capacity
_REQUESTS: Final[Mapping[str, tuple[str, str]]] = {
    "cpus": (DRIVER, CAPACITY_CPU),
    "memory": (_MEMORY, CAPACITY_SIZE),
    "pages-2mi": (_SMALL, CAPACITY_SIZE),
    "pages-1gi": (_LARGE, CAPACITY_SIZE),
}


async def offer(story: Story) -> None:
    """Lets every node offer its memory, and waits until it does."""
    await story.configure(memory={"enabled": True})

    async def offered() -> bool:
        slices = [item["spec"] for item in await story.client.list(SLICES)]
        names = {
            (spec["nodeName"], device["name"])
            for spec in slices
            if spec["driver"] == DRIVER_MEMORY
            for device in spec.get("devices") or ()
        }
        return all((node, "memory-numa000") in names for node in story.nodes)

    await story.until("every node offers its memory", offered)


async def pod(
    story: Story, name: str, *, limits: Mapping[str, str] | None = None, mount: str = "", **amounts: str
) -> None:
    """Creates a pod that requests amounts of `cpus`, `memory`, `pages_2mi` and `pages_1gi` of one NUMA node in a claim,
    and has these limits in its spec. Its hugepages are mounted at the path `mount`, if there is one."""
    asked = {name.replace("_", "-"): amount for name, amount in amounts.items()}
    mounted = f", with hugepages at {mount}" if mount else ""
    story.report(f"pod {name} requests {_words(asked)} of one NUMA node{mounted}{_limited(limits)}")
    await story.client.create(CLAIM_TEMPLATES, _template(name, asked, mount))
    made = manifests.pod(name, {CONTAINER: []}, template=name)
    await story.client.create(PODS, _with_limits(made, limits))


async def pod_without_claim(story: Story, name: str, limits: Mapping[str, str]) -> None:
    """Creates a pod with these limits in its spec, and no claim."""
    story.report(f"pod {name} has no claim{_limited(limits)}")
    await story.client.create(PODS, _with_limits(manifests.pod(name, {CONTAINER: []}), limits))


async def resize(story: Story, name: str, **limits: str) -> None:
    """Changes the limits of a running pod in place, and its requests with them, so that its QoS class stays."""
    story.report(f"pod {name} is resized: {_words(limits)}")
    container = {"name": CONTAINER, "resources": {"limits": limits, "requests": limits}}
    patch = {"spec": {"containers": [container]}}
    await story.client.patch(PODS, name, patch, NAMESPACE, subresource="resize", kind=STRATEGIC)


async def takes(story: Story, name: str, size: int, page: int = 0) -> bool:
    """Lets the container of a pod take memory; returns whether it gets pages. One that the kernel kills has ended."""
    try:
        await story.node(story.node_of(name)).take(NAMESPACE, name, CONTAINER, size, page=page)
    except NoMemoryError:
        return False
    return True


async def until_killed(story: Story, name: str) -> None:
    """Waits until the container of a pod has been killed for its memory, and runs again."""

    async def ends() -> list[str]:
        status = (await story.client.get(PODS, name, NAMESPACE)).get("status") or {}
        containers = status.get("containerStatuses") or ()
        return [(item.get("lastState") or {}).get("terminated", {}).get("reason", "") for item in containers]

    async def killed() -> bool:
        return "OOMKilled" in await ends()

    await story.until(f"{name} was killed for its memory", killed, ends)
    await story.until_running(name)


def limit(story: Story, name: str, file: str, *, of_pod: bool = False) -> str:
    """Returns the content of a file in the cgroup of a pod's container, or in that of the pod."""
    cgroup = story.node(story.node_of(name)).cgroup_of(NAMESPACE, name, CONTAINER)
    return ((cgroup.parent if of_pod else cgroup) / file).read_text().strip()


async def until_limit(story: Story, name: str, file: str, expected: object, *, of_pod: bool = False) -> None:
    """Waits until a file in the cgroup of a pod's container, or in that of the pod, has this content."""

    def seen() -> str:
        return limit(story, name, file, of_pod=of_pod)

    place = f"the cgroup of pod {name}" if of_pod else name
    await story.until(f"{file} of {place} is {expected}", lambda: seen() == str(expected), seen)


def expects_limit(story: Story, name: str, file: str, expected: object) -> None:
    """Fails the story unless a file in the cgroup of a pod's container has this content."""
    found = limit(story, name, file)
    story.expects(f"{file} of {name} is {expected}", found == str(expected), found)


def expects_mount(story: Story, name: str, path: str, *options: str) -> None:
    """Fails the story unless hugepages are mounted in a pod's container at this path, with these options."""
    mounts = story.node(story.node_of(name)).container_of(NAMESPACE, name, CONTAINER).mounts
    found = [option for mount in mounts if mount.destination == path for option in mount.options]
    story.expects(f"{name} has hugepages at {path}: {', '.join(options)}", set(options) <= set(found), found)


def _template(name: str, asked: Mapping[str, str], mount: str) -> JsonObject:
    requests = {
        request: {"deviceClassName": _REQUESTS[request][0], "capacity": {"requests": {_REQUESTS[request][1]: amount}}}
        for request, amount in asked.items()
    }
    spec = manifests.claim_spec(requests)
    spec["devices"]["constraints"] = [{"matchAttribute": ATTRIBUTE_NUMA_NODE}]
    if mount:
        parameters = {"apiVersion": f"{API_GROUP}/{API_VERSION}", "kind": "MemoryClaimParameters", "mount": mount}
        pages = [request for request in asked if request.startswith("pages")]
        spec["devices"]["config"] = [{"requests": pages, "opaque": {"driver": DRIVER_MEMORY, "parameters": parameters}}]
    made = manifests.claim_template(name, {})
    made["spec"] = {"spec": spec}
    return made


def _with_limits(made: JsonObject, limits: Mapping[str, str] | None) -> JsonObject:
    for container in made["spec"]["containers"]:
        container["resources"] |= {"limits": dict(limits), "requests": dict(limits)} if limits else {}
    return made


def _words(amounts: Mapping[str, str]) -> str:
    return ", ".join(f"{name}: {amount}" for name, amount in amounts.items())


def _limited(limits: Mapping[str, str] | None) -> str:
    return f", and limits in its spec: {_words(limits)}" if limits else ""
