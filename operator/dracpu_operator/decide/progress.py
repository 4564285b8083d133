"""Counts how far the nodes of a config are with its settings. The time is an argument."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from dracpu_api.conditions import Phase
from dracpu_operator.decide.agents import UNKNOWN, Agents
from dracpu_operator.decide.records import Agent, CpuNode, Trouble
from dracpu_operator.decide.rollout import Member, budget
from dracpu_operator.decide.selection import Selected
from dracpu_operator.decide.up_to_date import Members

_NONE: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class Moment:
    """The time of a reconcile, and how old a trouble must be to be reported: agents and runtimes restart, which takes
    some seconds and is not worth a message."""

    now: str  # all are RFC 3339 in UTC, which sorts as text
    trouble_before: str
    silence_before: str  # likewise where no agent has reported yet: its image has to be pulled
    unanswered_before: str = ""  # likewise for settings that an agent has not answered

    def has_lasted(self, trouble: Trouble, phase: Phase | None) -> bool:
        """True when a node's trouble is old enough to be reported."""
        return trouble.since <= (self.silence_before if phase is None else self.trouble_before)


@dataclass(frozen=True, slots=True)
class Progress:
    """The nodes of a config, counted and sorted by how far they are."""

    selected: int
    without_agent: int  # the config's selector takes them, but they are to have no agent
    applied: int
    changing: tuple[CpuNode, ...]  # they were given the present settings and are about to apply them
    failed: tuple[CpuNode, ...]
    down: tuple[Agent, ...]  # of the others, those without a ready agent
    unanswered: tuple[CpuNode, ...]  # of the others, those whose agents have not answered the present settings
    troubled: tuple[CpuNode, ...]  # of the others, those that cannot serve claims
    memory_troubled: tuple[CpuNode, ...]  # of the others, those that cannot serve claims of memory
    refused: tuple[tuple[str, str], ...]  # nodes whose CpuNode the API server refused, and why
    frozen: tuple[CpuNode, ...]  # their CpuNodes cannot be decoded, so they are left as they are
    leaving: tuple[CpuNode, ...]  # no config selects them any more
    ignored: tuple[CpuNode, ...]  # their agents do not know a setting
    waiting: int  # they can be given the present settings, and were not yet
    busy: int  # they are about to apply the present settings, or wait for their turn
    stuck: int  # they use the budget until somebody acts
    serving: int  # claims can get CPUs of these
    limit: int  # so many may be unavailable
    paused: bool  # the rollout is paused
    has_recent_trouble: bool  # somewhere there is trouble that is not old enough to be reported

    @property
    def progressing(self) -> int:
        """Nodes that neither applied the present settings nor failed."""
        return self.selected - self.applied - len(self.failed)


def progress_of(
    selected: Selected,
    cpu_nodes: Mapping[str, CpuNode],
    moment: Moment,
    agents: Agents = UNKNOWN,
    refused: Mapping[str, str] = _NONE,
    remembered: Members | None = None,
) -> Progress:
    """Counts the nodes of a config. `refused` are the nodes whose CpuNode the API server refused, with its words."""
    names = [node.name for node in selected.nodes]
    everybody = (remembered or Members()).of(selected.config, names, cpu_nodes, agents)
    members = [member for member in everybody if not member.is_settled or member.name in refused]
    settled = len(everybody) - len(members)  # these have applied the settings, serve claims, and count nowhere else
    present = [cpu_node for member in members if (cpu_node := member.cpu_node) is not None]
    failed = {cpu_node.name for cpu_node in present if cpu_node.phase is Phase.FAILED}
    down = {member.name for member in members if member.name not in failed and _is_down(member, moment)}
    excluded = failed | down
    unanswered = {member.name for member in members if member.name not in excluded and _is_unanswered(member, moment)}
    applied = {member.name for member in members if _has_applied(member)}
    frozen = {cpu_node.name for cpu_node in present if cpu_node.unreadable}
    resting = applied | failed | down | unanswered | frozen
    troubled = {node.name for node in present if _has_lasting(node.troubles, node, moment)}
    memory_troubled = {node.name for node in present if _has_lasting(node.memory_troubles, node, moment)}
    without_service = troubled | down
    leaving = [cpu_node.name for cpu_node in selected.leaving]
    wanted = selected.config.wanted
    return Progress(
        selected=len(everybody),
        without_agent=len(selected.without_agent),
        applied=len(applied) + settled,
        changing=_of(present, {member.name for member in members if member.up_to_date} - resting),
        failed=_of(present, failed),
        down=tuple(member.agent for member in members if member.name in down and member.agent is not None),
        unanswered=_of(present, unanswered),
        troubled=_of(present, troubled - failed - down - unanswered),
        memory_troubled=_of(present, memory_troubled - failed - down - unanswered - troubled),
        refused=tuple((name, refused[name]) for name in (*names, *leaving) if name in refused),
        frozen=_of(present, frozen),
        leaving=tuple(selected.leaving),
        ignored=tuple(cpu_node for cpu_node in present if cpu_node.ignored and cpu_node.arrived),
        waiting=sum(not member.up_to_date and member.name not in down for member in members),
        busy=len(members) - len(resting),
        stuck=sum(member.unavailable and member.name in resting for member in members),
        serving=sum(_serves(cpu_node) and cpu_node.name not in without_service for cpu_node in present) + settled,
        limit=budget(wanted.spec.rollout, len(everybody) + len(selected.leaving)) if wanted else 1,
        paused=wanted is not None and wanted.spec.rollout.paused,
        has_recent_trouble=any(_may_become_trouble(member, moment) for member in members),
    )


def _of(cpu_nodes: list[CpuNode], names: set[str]) -> tuple[CpuNode, ...]:
    return tuple(cpu_node for cpu_node in cpu_nodes if cpu_node.name in names)


def _has_applied(member: Member) -> bool:
    cpu_node = member.cpu_node
    if cpu_node is None or not member.up_to_date or cpu_node.ignored:
        return False
    return cpu_node.arrived and cpu_node.phase not in {Phase.SETTLING, Phase.FAILED}


def _is_down(member: Member, moment: Moment) -> bool:
    """True when the agent has not been ready for longer than a restart takes."""
    if member.agent is None or member.agent.ready:
        return False
    starts = member.cpu_node is None or member.cpu_node.phase is None  # the image may have to be pulled
    return member.agent.since <= (moment.silence_before if starts else moment.trouble_before)


def _is_unanswered(member: Member, moment: Moment) -> bool:
    """True when the agent has not reacted to the settings for so long that it may be cut off from the API server."""
    cpu_node = member.cpu_node
    if cpu_node is None or cpu_node.arrived or cpu_node.unreadable or not cpu_node.given_at:
        return False
    if cpu_node.phase in {None, Phase.SETTLING}:
        return False
    return cpu_node.given_at <= moment.unanswered_before


def _may_become_trouble(member: Member, moment: Moment) -> bool:
    if member.is_down and not _is_down(member, moment):
        return True
    cpu_node = member.cpu_node
    if cpu_node is None:
        return False
    if cpu_node.given_at and not cpu_node.arrived and not _is_unanswered(member, moment):
        return True
    return any(
        bool(troubles) and not _has_lasting(troubles, cpu_node, moment)
        for troubles in (cpu_node.troubles, cpu_node.memory_troubles)
    )


def _serves(cpu_node: CpuNode) -> bool:
    return cpu_node.applied is not None and cpu_node.phase is not Phase.SETTLING


def _has_lasting(troubles: Iterable[Trouble], cpu_node: CpuNode, moment: Moment) -> bool:
    return any(moment.has_lasted(trouble, cpu_node.phase) for trouble in troubles)
