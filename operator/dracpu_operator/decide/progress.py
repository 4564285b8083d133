"""Counts how far the nodes of a config are with its settings. The time is an argument."""

from collections.abc import Mapping
from dataclasses import dataclass

from dracpu_api.conditions import Phase
from dracpu_operator.decide.records import CpuNode, Trouble
from dracpu_operator.decide.rollout import budget
from dracpu_operator.decide.selection import Selected


@dataclass(frozen=True, slots=True)
class Moment:
    """The time of a reconcile, and how old a trouble must be to be reported: agents and runtimes restart, which takes
    some seconds and is not worth a message."""

    now: str  # all three are RFC 3339 in UTC, which sorts as text
    trouble_before: str
    silence_before: str  # likewise where no agent has reported yet: its image has to be pulled

    def has_lasted(self, trouble: Trouble, phase: Phase | None) -> bool:
        """True when a node's trouble is old enough to be reported."""
        return trouble.since <= (self.silence_before if phase is None else self.trouble_before)


@dataclass(frozen=True, slots=True)
class Progress:
    """The nodes of a config, counted and sorted by how far they are."""

    selected: int
    applied: int
    changing: tuple[CpuNode, ...]  # they were given the present settings and have not applied them yet
    failed: tuple[CpuNode, ...]
    troubled: tuple[CpuNode, ...]  # of the others, those that cannot serve claims
    waiting: int  # they were not given the present settings yet
    serving: int  # claims can get CPUs of these
    limit: int  # so many may be unavailable
    has_recent_trouble: bool  # somewhere there is trouble that is not old enough to be reported

    @property
    def progressing(self) -> int:
        """Nodes that neither applied the present settings nor failed."""
        return self.selected - self.applied - len(self.failed)


def progress_of(selected: Selected, cpu_nodes: Mapping[str, CpuNode], moment: Moment) -> Progress:
    """Counts the nodes of a config."""
    wanted = selected.config.wanted
    revision = wanted.revision if wanted else None
    present = [cpu_nodes[node.name] for node in selected.nodes if node.name in cpu_nodes]
    failed = tuple(cpu_node for cpu_node in present if cpu_node.phase is Phase.FAILED)
    given = [cpu_node for cpu_node in present if cpu_node.given == revision]
    applied = [
        cpu_node for cpu_node in given if cpu_node.arrived and cpu_node.phase not in {Phase.SETTLING, Phase.FAILED}
    ]
    finished = {cpu_node.name for cpu_node in (*applied, *failed)}
    troubled = [cpu_node for cpu_node in present if _has_trouble(cpu_node, moment)]
    return Progress(
        selected=len(selected.nodes),
        applied=len(applied),
        changing=tuple(cpu_node for cpu_node in given if cpu_node.name not in finished),
        failed=failed,
        troubled=tuple(cpu_node for cpu_node in troubled if cpu_node.phase is not Phase.FAILED),
        waiting=len(selected.nodes) - len(given),
        serving=sum(_serves(cpu_node) and not _has_trouble(cpu_node, moment) for cpu_node in present),
        limit=budget(wanted.spec.rollout, len(selected.nodes)) if wanted else 1,
        has_recent_trouble=any(cpu_node.troubles for cpu_node in present if not _has_trouble(cpu_node, moment)),
    )


def _serves(cpu_node: CpuNode) -> bool:
    return cpu_node.applied is not None and cpu_node.phase is not Phase.SETTLING


def _has_trouble(cpu_node: CpuNode, moment: Moment) -> bool:
    return any(moment.has_lasted(trouble, cpu_node.phase) for trouble in cpu_node.troubles)
