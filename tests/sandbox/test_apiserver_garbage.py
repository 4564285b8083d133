"""Objects are deleted after their owner, their namespace or their definition."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from api_caller import CONFIG_MAPS, CRDS, THING, THINGS, Caller, config_map, thing

from dracpu_sandbox.apiserver.store import Change

NAMESPACES = "/api/v1/namespaces"


class Collected(Caller):
    """A caller that waits for the garbage collector."""

    async def until(self, condition: Callable[[], object]) -> None:
        changed = asyncio.Event()

        def on_change(storage: str, change: Change) -> None:
            changed.set()

        self.server.objects.store.listeners.append(on_change)
        async with asyncio.timeout(10):
            while not condition():
                changed.clear()
                await changed.wait()

    def names_of(self, storage: str = "configmaps") -> set[str]:
        return {stored.key[1] for stored in self.server.objects.store.all(storage)}


@pytest.fixture
async def api() -> AsyncIterator[Collected]:
    async with Collected(THING) as caller:
        yield caller


async def owned(api: Collected, name: str, *owners: dict[str, Any], **metadata: Any) -> Any:
    """Creates a config map with owners."""
    references = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
        }
        for owner in owners
    ]
    return await api.create(CONFIG_MAPS, config_map(name, ownerReferences=references, **metadata))


async def test_owned_objects_are_deleted_with_their_owner_at_all_levels(api: Collected) -> None:
    owner = await api.create(CONFIG_MAPS, config_map("owner"))
    middle = await owned(api, "middle", owner)
    await owned(api, "leaf", middle)
    await api.create(CONFIG_MAPS, config_map("free"))
    await api.delete(f"{CONFIG_MAPS}/owner")
    await api.until(lambda: api.names_of() == {"free"})


async def test_an_object_with_another_owner_stays(api: Collected) -> None:
    first, second = [await api.create(CONFIG_MAPS, config_map(name)) for name in ("first", "second")]
    await owned(api, "shared", first, second)
    await owned(api, "lone", first)
    await api.delete(f"{CONFIG_MAPS}/first")
    await api.until(lambda: "lone" not in api.names_of())
    assert api.names_of() == {"second", "shared"}


async def test_an_object_whose_owner_does_not_exist_is_deleted_at_once(api: Collected) -> None:
    gone = {"metadata": {"name": "gone", "uid": "11111111-1111-4111-8111-111111111111"}}
    await owned(api, "lost", gone)
    await api.until(lambda: api.names_of() == set())


@pytest.mark.parametrize("policy", ["Foreground", "Orphan"])
async def test_only_deletion_in_the_background_is_supported(api: Collected, policy: str) -> None:
    await api.create(CONFIG_MAPS, config_map("a"))
    refusal = await api.refused("DELETE", f"{CONFIG_MAPS}/a", {"propagationPolicy": policy})
    assert (refusal["code"], "KUBEBUILDER_ASSETS" in refusal["message"]) == (400, True)
    assert api.names_of() == {"a"}


async def test_a_namespace_is_removed_when_its_contents_are_gone(api: Collected) -> None:
    await api.create(NAMESPACES, {"metadata": {"name": "other"}})
    inside = CONFIG_MAPS.replace("default", "other")
    await api.create(inside, config_map("quick"))
    await api.create(inside, config_map("slow", finalizers=["x.dev/slow"]))
    await api.create(CONFIG_MAPS, config_map("outside"))
    deleted = await api.delete(f"{NAMESPACES}/other")
    assert deleted["status"]["phase"] == "Terminating"
    await api.until(lambda: api.names_of() == {"slow", "outside"})
    refusal = await api.refused("POST", inside, config_map("late"))
    assert (refusal["code"], refusal["reason"]) == (403, "Forbidden")
    await api.patch(f"{inside}/slow", {"metadata": {"finalizers": None}})
    await api.until(lambda: "other" not in api.names_of("namespaces"))
    assert api.names_of() == {"outside"}


async def test_a_definition_is_removed_when_its_objects_are_gone(api: Collected) -> None:
    await api.create(THINGS, {**thing(), "metadata": {"name": "one", "finalizers": ["x.dev/slow"]}})
    await api.delete(f"{CRDS}/things.things.dev")
    store = api.server.objects.store
    await api.until(lambda: "deletionTimestamp" in store.all("things.things.dev")[0].object["metadata"])
    await api.patch(f"{THINGS}/one", {"metadata": {"finalizers": None}})
    await api.until(lambda: "things.things.dev" not in api.names_of("customresourcedefinitions.apiextensions.k8s.io"))
    assert (await api.refused("GET", THINGS))["code"] == 404
