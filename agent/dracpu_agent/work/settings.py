"""Applies the settings of the CpuNode, or refuses them and says why."""

from typing import Any

import structlog

from dracpu_agent.cluster.events import Events, Subject
from dracpu_agent.errors import SettingsRefusedError
from dracpu_agent.node import NodeState
from dracpu_agent.observe.metrics import Metrics
from dracpu_agent.report.conditions import Condition
from dracpu_agent.work.changes import Changes
from dracpu_api.conditions import NodeCondition, NodeReason
from dracpu_api.settings import SettingsError, decode_spec

log = structlog.get_logger("settings")

_NO_SETTINGS = Condition(
    NodeCondition.CONFIG_APPLIED, False, NodeReason.NO_SETTINGS, "no CpuDriverConfig selects this node"
)


class ApplySettings:
    """Takes the CpuNode's spec over into the node; `condition` says what came of it."""

    def __init__(self, node: NodeState, metrics: Metrics, events: Events, changes: Changes) -> None:
        self._node = node
        self._metrics = metrics
        self._events = events
        self._changes = changes
        self._refused: dict[str, Any] | None = None
        self.condition = _NO_SETTINGS
        # True until the CpuNode has been read, and while its settings cannot be decoded: without former settings it is
        # not known what a newer agent has published, and that stays as it is
        self.are_unknown = True

    def resumed(self) -> None:
        """The node works with the settings of the last checkpoint until the API server answers."""
        if self._node.spec is not None:
            self.condition = Condition(
                NodeCondition.CONFIG_APPLIED,
                True,
                NodeReason.APPLIED,
                "the settings of the last checkpoint are in force",
            )

    def apply(self, spec: dict[str, Any] | None) -> None:
        """The CpuNode's spec has changed, or there is no CpuNode."""
        self._refused = None
        self.are_unknown = False
        if spec is None:
            self._node.deconfigure()
            self.condition = _NO_SETTINGS
            return
        try:
            decoded = decode_spec(spec)
            self._node.configure(decoded)
        except SettingsError as error:
            self.are_unknown = True
            kept = "published devices stay, and no further claim is prepared until the agent is upgraded"
            self._refuse(spec, str(error), kept)
            return
        except SettingsRefusedError as error:
            self._refuse(spec, str(error))
            return
        settings = decoded.settings
        log.info(
            "settings applied",
            revision=decoded.revision,
            mode=settings.mode,
            reserved=str(self._node.cpus.reserved),
            settling=self._node.settling,
            outstanding=len(decoded.outstanding),
        )
        if settings.ignored:
            log.warning("settings ignored that this version of the agent does not know", settings=settings.ignored)
        self.condition = Condition(NodeCondition.CONFIG_APPLIED, True, NodeReason.APPLIED)
        self._metrics.set_config(config=decoded.config_name, mode=settings.mode, group_by=settings.group_by)
        self._changes.report()

    def retry(self) -> None:
        """Tries refused settings again: the claim that prevented them may have ended."""
        if self._refused is not None:
            self.apply(self._refused)

    def _refuse(self, spec: dict[str, Any], why: str, otherwise: str = "") -> None:
        """`otherwise` says what happens when there are no former settings."""
        self._refused = spec
        kept = "the former settings stay in force" if self._node.spec else otherwise
        message = f"{why}; {kept}" if kept else why
        refused = Condition(NodeCondition.CONFIG_APPLIED, False, NodeReason.REFUSED, message)
        if refused == self.condition:
            return
        log.error("settings refused", error=why)
        self.condition = refused
        subject = Subject.cpu_node(self._node.node_name)
        self._events.emit(subject, "Warning", "SettingsRefused", "Configure", why)
        self._changes.report()
