"""Which CpuNodes are deleted because no config selects their nodes any more, and when. Pure: the time is an argument.

A node that loses its CpuNode loses its devices, so this is a change like any other: `paused` holds it back, the budget
of the config that the node followed limits it, and it comes after a grace time in which a label may come back or a
mistake may be corrected. The time is stored on the CpuNode when the grace begins, and not changed afterwards, so that
an operator that restarts continues. A node uses the budget during its grace: so at most maxUnavailable nodes lose their
devices per grace time.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from dracpu_api.objects.models import Rollout
from dracpu_api.settings import REMOVAL_SECONDS
from dracpu_operator.decide.agents import Agents
from dracpu_operator.decide.records import Config, CpuNode
from dracpu_operator.decide.rollout import Member, budget, unavailable
from dracpu_operator.decide.times import TIME_FORMAT, time_of


@dataclass(frozen=True, slots=True)
class Group:
    """The nodes that follow one config, or followed it."""

    members: Sequence[Member]  # those that it selects
    leaving: Sequence[CpuNode]  # those that no config selects any more
    changing: int = 0  # so many of the members are given other settings now, and use the budget from now on


@dataclass(frozen=True, slots=True)
class Removals:
    """What to do with the nodes that no config selects."""

    marks: Mapping[str, str] = field(default_factory=dict)  # by node: the time to store on its CpuNode
    due: tuple[CpuNode, ...] = ()  # to delete now
    next_at: datetime | None = None  # when the next grace time ends

    def joined(self, other: "Removals") -> "Removals":
        """Both together."""
        times = [at for at in (self.next_at, other.next_at) if at is not None]
        return Removals({**self.marks, **other.marks}, self.due + other.due, min(times, default=None))


def removals_of(rollout: Rollout, group: Group, now: datetime, agents: Agents, grace: float) -> Removals:
    """Decides for the nodes of a group; `grace` are the seconds that they keep their devices when the rollout does not
    define it.

    A node whose grace time ends while the budget is used otherwise begins another one, of at least the default time.
    This happens when the budget was reduced meanwhile, or when settings have failed on other nodes.
    """
    if rollout.paused:
        return Removals()
    seconds = grace if rollout.removal_seconds is None else rollout.removal_seconds
    ends_at = now + timedelta(seconds=seconds)
    room = budget(rollout, len(group.members) + len(group.leaving)) - unavailable(group.members) - group.changing
    marks: dict[str, str] = {}
    due, times = [], []
    for cpu_node, at in sorted(((node, remove_at(node)) for node in group.leaving), key=_first_to_end):
        has_room = room > 0 or not _uses_budget(cpu_node, agents)
        room -= _uses_budget(cpu_node, agents) and (has_room or at is not None)
        if at is not None and at > now:
            times.append(at)
        elif at is not None and has_room:
            due.append(cpu_node)
        elif at is not None or has_room:
            end = ends_at if at is None else max(ends_at, now + timedelta(seconds=REMOVAL_SECONDS))
            marks[cpu_node.name] = end.strftime(TIME_FORMAT)
            times.append(end)
    return Removals(marks, tuple(due), min(times, default=None))


def charged(leaving: Iterable[CpuNode], agents: Agents) -> list[CpuNode]:
    """Those of the nodes that use the budget: their grace time runs."""
    return [cpu_node for cpu_node in leaving if remove_at(cpu_node) is not None and _uses_budget(cpu_node, agents)]


def by_config(leaving: Iterable[CpuNode], configs: Collection[str]) -> dict[str, list[CpuNode]]:
    """The leaving nodes by the config that they followed; those of deleted configs, too."""
    grouped: dict[str, list[CpuNode]] = {name: [] for name in configs}
    for cpu_node in leaving:
        grouped.setdefault(cpu_node.config_name, []).append(cpu_node)
    return grouped


def rollout_of(config: Config | None) -> Rollout:
    """The rollout of a config; the default when the config was deleted."""
    return Rollout() if config is None or config.wanted is None else config.wanted.spec.rollout


def remove_at(cpu_node: CpuNode) -> datetime | None:
    """The end of the grace time that is stored on the CpuNode; None when there is none, or it cannot be read."""
    return time_of(cpu_node.remove_after)


def _first_to_end(leaving: tuple[CpuNode, datetime | None]) -> tuple[bool, str, str]:
    cpu_node, at = leaving
    return at is None, cpu_node.remove_after, cpu_node.name


def _uses_budget(cpu_node: CpuNode, agents: Agents) -> bool:
    """True unless the node offers nothing: it has applied nothing yet, or is to have no agent."""
    return cpu_node.applied is not None and agents.is_wanted(cpu_node.name)
