"""What goes when something else goes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from api_caller import CONFIG_MAPS, CRDS, THING, THINGS, Caller, config_map, thing

from dracpu_sandbox.apiserver.store import Change

NAMESPACES = "/api/v1/namespaces"


class Tidied(Caller):
    """Waits for what the collector does."""

    async def until(self, condition: Callable[[], object]) -> None:
        changed = asyncio.Event()

        def hear(storage: str, change: Change) -> None:
            changed.set()

        self.server.objects.store.listeners.append(hear)
        async with asyncio.timeout(10):
            while not condition():
                changed.clear()
                await changed.wait()

    def there(self, storage: str = "configmaps") -> set[str]:
        return {one.key[1] for one in self.server.objects.store.all(storage)}


@pytest.fixture
async def api() -> AsyncIterator[Tidied]:
    async with Tidied(THING) as caller:
        yield caller


async def owned(api: Tidied, name: str, *owners: dict[str, Any], blocks: bool = False, **metadata: Any) -> Any:
    """A config map with such owners."""
    references = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": one["metadata"]["name"],
            "uid": one["metadata"]["uid"],
            "blockOwnerDeletion": blocks,
        }
        for one in owners
    ]
    return await api.create(CONFIG_MAPS, config_map(name, ownerReferences=references, **metadata))


async def test_what_is_owned_goes_with_its_owner_and_what_that_owned_too(api: Tidied) -> None:
    owner = await api.create(CONFIG_MAPS, config_map("owner"))
    middle = await owned(api, "middle", owner)
    await owned(api, "leaf", middle)
    await api.create(CONFIG_MAPS, config_map("free"))
    await api.delete(f"{CONFIG_MAPS}/owner")
    await api.until(lambda: api.there() == {"free"})


async def test_what_has_another_owner_stays(api: Tidied) -> None:
    first, second = [await api.create(CONFIG_MAPS, config_map(name)) for name in ("first", "second")]
    await owned(api, "shared", first, second)
    await owned(api, "lone", first)
    await api.delete(f"{CONFIG_MAPS}/first")
    await api.until(lambda: "lone" not in api.there())
    assert api.there() == {"second", "shared"}


async def test_what_is_owned_by_nothing_that_exists_goes_at_once(api: Tidied) -> None:
    gone = {"metadata": {"name": "gone", "uid": "11111111-1111-4111-8111-111111111111"}}
    await owned(api, "lost", gone)
    await api.until(lambda: api.there() == set())


@pytest.mark.parametrize("policy", ["Foreground", "Orphan"])
async def test_other_ways_to_delete_than_in_the_background_are_refused(api: Tidied, policy: str) -> None:
    await api.create(CONFIG_MAPS, config_map("a"))
    refusal = await api.refused("DELETE", f"{CONFIG_MAPS}/a", {"propagationPolicy": policy})
    assert (refusal["code"], "KUBEBUILDER_ASSETS" in refusal["message"]) == (400, True)
    assert api.there() == {"a"}


async def test_a_namespace_goes_when_all_that_is_in_it_is_gone(api: Tidied) -> None:
    await api.create(NAMESPACES, {"metadata": {"name": "other"}})
    inside = CONFIG_MAPS.replace("default", "other")
    await api.create(inside, config_map("quick"))
    await api.create(inside, config_map("slow", finalizers=["x.dev/slow"]))
    await api.create(CONFIG_MAPS, config_map("outside"))
    doomed = await api.delete(f"{NAMESPACES}/other")
    assert doomed["status"]["phase"] == "Terminating"
    await api.until(lambda: api.there() == {"slow", "outside"})
    refusal = await api.refused("POST", inside, config_map("late"))
    assert (refusal["code"], refusal["reason"]) == (403, "Forbidden")
    await api.patch(f"{inside}/slow", {"metadata": {"finalizers": None}})
    await api.until(lambda: "other" not in api.there("namespaces"))
    assert api.there() == {"outside"}


async def test_a_definition_goes_when_all_that_it_defined_is_gone(api: Tidied) -> None:
    await api.create(THINGS, {**thing(), "metadata": {"name": "one", "finalizers": ["x.dev/slow"]}})
    await api.delete(f"{CRDS}/things.things.dev")
    await api.until(lambda: "deletionTimestamp" in things(api)[0]["metadata"])
    await api.patch(f"{THINGS}/one", {"metadata": {"finalizers": None}})
    await api.until(lambda: "things.things.dev" not in api.there("customresourcedefinitions.apiextensions.k8s.io"))
    assert (await api.refused("GET", THINGS))["code"] == 404


def things(api: Tidied) -> list[dict[str, Any]]:
    return [one.object for one in api.server.objects.store.all("things.things.dev")]
