"""Holds the objects that all controllers watch, and the recorder of their Events."""

from collections.abc import Callable, Coroutine
from typing import Any, Final

from dracpu_sandbox.client import KubeClient
from dracpu_sandbox.events import EventRecorder
from dracpu_sandbox.following import Following
from dracpu_sandbox.resources import CLAIM_TEMPLATES, CLAIMS, PODS, JsonObject

Duty = Callable[[], Coroutine[Any, Any, None]]  # a change that a controller must still make

MANAGER: Final = "resource_claim"


class Cluster:
    """The watched objects and the Events of all controllers."""

    def __init__(self, client: KubeClient) -> None:
        self.client = client
        self.pods = Following(client, PODS)
        self.claims = Following(client, CLAIMS)
        self.templates = Following(client, CLAIM_TEMPLATES)
        self.events = EventRecorder(client, MANAGER)

    @property
    def followed(self) -> tuple[Following, ...]:
        """Returns the watched resources."""
        return self.pods, self.claims, self.templates

    async def write_claim(self, claim: JsonObject, subresource: str = "") -> JsonObject:
        """Replaces a claim, and makes the new version visible here before the watch reports it."""
        typed = {"apiVersion": CLAIMS.api_version, "kind": CLAIMS.kind, **claim}  # items of a list have neither
        written = await self.client.replace(CLAIMS, typed, subresource)
        self.claims.wrote(written)
        return written
