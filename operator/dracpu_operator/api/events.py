"""Kubernetes Events about configs."""

from datetime import UTC, datetime

from dracpu_api.events import NAMESPACE, Event, event_body
from dracpu_api.resources import CONFIGS, EVENTS
from dracpu_operator.api.cluster import FIELD_MANAGER, Cluster
from dracpu_operator.decide.records import Config


class ConfigEvents:
    """Creates the Events. `instance`, which each of them names, is the operator's pod."""

    def __init__(self, cluster: Cluster, instance: str) -> None:
        self._cluster = cluster
        self._instance = instance

    async def create(self, config: Config, event: Event) -> None:
        """Creates an Event about a config."""
        regarding = {
            "apiVersion": CONFIGS.api_version,
            "kind": CONFIGS.kind,
            "name": config.name,
            "uid": config.uid,
        }
        body = event_body(
            event, regarding=regarding, controller=FIELD_MANAGER, instance=self._instance, at=datetime.now(UTC)
        )
        await self._cluster.create(EVENTS, body, namespace=NAMESPACE)
