"""Which CpuNodes are deleted because no config selects their nodes any more, and when. Pure: the time is an argument.

A node that loses its CpuNode loses its devices, so this is a change like any other: `paused` holds it back, the budget
of the config that the node followed limits it, and it comes after a grace time in which a label may come back or a
mistake may be corrected. The time is stored on the CpuNode when the grace begins, and not changed afterwards, so that
an operator that restarts continues. A node uses the budget during its grace: so at most maxUnavailable nodes lose their
devices per grace time.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from dracpu_api.objects.models import Rollout
from dracpu_operator.decide.agents import Agents
from dracpu_operator.decide.records import TIME_FORMAT, Config, CpuNode
from dracpu_operator.decide.rollout import Member, budget, unavailable


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


def removals_of(
    rollout: Rollout, members: Sequence[Member], leaving: Sequence[CpuNode], now: datetime, agents: Agents, grace: float
) -> Removals:
    """Decides for the nodes that follow one config, or followed it: `members` are those that it selects, `leaving`
    those that no config selects, `grace` the seconds that they keep their devices when the rollout does not define
    it."""
    if rollout.paused:
        return Removals()
    ends = {cpu_node.name: remove_at(cpu_node) for cpu_node in leaving}
    room = budget(rollout, len(members) + len(leaving)) - unavailable(members) - len(charged(leaving, agents))
    marks: dict[str, str] = {}
    due, times = [], []
    for cpu_node in leaving:
        at = ends[cpu_node.name]
        if at is not None and at <= now:
            due.append(cpu_node)
        elif at is not None:
            times.append(at)
        elif not _uses_budget(cpu_node, agents) or room > 0:
            room -= _uses_budget(cpu_node, agents)
            seconds = grace if rollout.removal_seconds is None else rollout.removal_seconds
            at = now + timedelta(seconds=seconds)
            marks[cpu_node.name] = at.strftime(TIME_FORMAT)
            times.append(at)
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
    try:
        return datetime.strptime(cpu_node.remove_after, TIME_FORMAT).replace(tzinfo=UTC)
    except ValueError:
        return None


def _uses_budget(cpu_node: CpuNode, agents: Agents) -> bool:
    """True unless the node offers nothing: it has applied nothing yet, or is to have no agent."""
    return cpu_node.applied is not None and agents.is_wanted(cpu_node.name)
