"""Kubernetes Events about configs and CpuNodes."""

from datetime import UTC, datetime

import structlog

from dracpu_api.errors import ApiError
from dracpu_api.events import NAMESPACE, Event, event_body
from dracpu_api.resources import CONFIGS, CPU_NODES, EVENTS, Resource
from dracpu_operator.api.cluster import FIELD_MANAGER, Cluster
from dracpu_operator.decide.records import Config, CpuNode

log = structlog.get_logger()


class Events:
    """Creates the Events. `instance`, which each of them names, is the operator's pod."""

    def __init__(self, cluster: Cluster, instance: str) -> None:
        self._cluster = cluster
        self._instance = instance

    async def about_config(self, config: Config, event: Event) -> None:
        """Logs an Event about a config, and creates it."""
        write_log = log.warning if event.severity == "Warning" else log.info
        write_log(event.note, config=config.name, reason=event.reason)
        await self._create(CONFIGS, config.name, config.uid, event)

    async def about_cpu_node(self, cpu_node: CpuNode, event: Event) -> None:
        """Logs an Event about a CpuNode, and creates it."""
        write_log = log.warning if event.severity == "Warning" else log.info
        write_log(event.note, node=cpu_node.name, reason=event.reason)
        await self._create(CPU_NODES, cpu_node.name, cpu_node.uid, event)

    async def _create(self, resource: Resource, name: str, uid: str, event: Event) -> None:
        regarding = {"apiVersion": resource.api_version, "kind": resource.kind, "name": name, "uid": uid}
        now = datetime.now(UTC)
        body = event_body(event, regarding=regarding, controller=FIELD_MANAGER, instance=self._instance, at=now)
        try:
            await self._cluster.create(EVENTS, body, namespace=NAMESPACE)
        except ApiError as error:  # it is not repeated: the object's status has the same information
            log.warning(
                "an Event was not created", kind=resource.kind, name=name, reason=event.reason, error=str(error)
            )
