"""What the controllers share: the objects that they follow, and the Events that they write."""

from collections.abc import Callable, Coroutine
from typing import Any, Final

from dracpu_sandbox.client import KubeClient
from dracpu_sandbox.events import EventRecorder
from dracpu_sandbox.following import Following
from dracpu_sandbox.resources import CLAIM_TEMPLATES, CLAIMS, PODS, JsonObject

Duty = Callable[[], Coroutine[Any, Any, None]]  # something that is still to be done

MANAGER: Final = "resource_claim"


class Cluster:
    """The followed objects and the Events of all controllers."""

    def __init__(self, client: KubeClient) -> None:
        self.client = client
        self.pods = Following(client, PODS)
        self.claims = Following(client, CLAIMS)
        self.templates = Following(client, CLAIM_TEMPLATES)
        self.events = EventRecorder(client, MANAGER)

    @property
    def followed(self) -> tuple[Following, ...]:
        """All that is followed."""
        return self.pods, self.claims, self.templates

    async def write_claim(self, claim: JsonObject, subresource: str = "") -> JsonObject:
        """Replaces a claim, whose new version is known at once."""
        typed = {"apiVersion": CLAIMS.api_version, "kind": CLAIMS.kind, **claim}  # items of a list have neither
        written = await self.client.replace(CLAIMS, typed, subresource)
        self.claims.wrote(written)
        return written
