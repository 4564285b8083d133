"""Kubernetes Events about configs."""

import secrets
from datetime import UTC, datetime
from typing import Final

from dracpu_api.resources import CONFIGS, EVENTS
from dracpu_operator.api.cluster import FIELD_MANAGER, Cluster
from dracpu_operator.decide.records import Config
from dracpu_operator.decide.status_changes import Announcement

_NOTE_BYTES: Final = 1024  # events.k8s.io/v1 refuses longer notes
_NAMESPACE: Final = "default"  # Kubernetes: Events about objects without a namespace


class ConfigEvents:
    """Creates the Events; each names `instance`, the operator's pod, as its source."""

    def __init__(self, cluster: Cluster, instance: str) -> None:
        self._cluster = cluster
        self._instance = instance[:128]  # the API server refuses longer ones

    async def create(self, config: Config, announcement: Announcement) -> None:
        """Creates an Event about a config."""
        name = f"{config.name[:230].rstrip('.-')}.{secrets.token_hex(8)}"
        body = {
            "metadata": {"name": name, "namespace": _NAMESPACE},
            "eventTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "reportingController": FIELD_MANAGER,
            "reportingInstance": self._instance,
            "type": announcement.severity,
            "reason": announcement.reason,
            "action": "Reconcile",
            "note": announcement.note.encode()[:_NOTE_BYTES].decode(errors="ignore"),
            "regarding": {
                "apiVersion": CONFIGS.api_version,
                "kind": CONFIGS.kind,
                "name": config.name,
                "uid": config.uid,
            },
        }
        await self._cluster.create(EVENTS, body, namespace=_NAMESPACE)
