"""Which CpuNodes have to be created, changed and deleted. Pure: nodes, configs and CpuNodes in, changes and removals
out."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from dracpu_api.settings import REMOVAL_SECONDS, CpuNodeSpec
from dracpu_operator.decide.agents import UNKNOWN, Agents
from dracpu_operator.decide.outstanding import ClaimsByNode, outstanding
from dracpu_operator.decide.records import Config, CpuNode, Node
from dracpu_operator.decide.removals import Group, Removals, by_config, charged, removals_of, rollout_of
from dracpu_operator.decide.rollout import Member, next_nodes, takes_place
from dracpu_operator.decide.selection import Claimants, Selected, select
from dracpu_operator.decide.up_to_date import Members


@dataclass(frozen=True, slots=True)
class Change:
    """A node that is given the settings of a config now."""

    node: Node
    config: Config
    current: CpuNode | None
    was_ready: bool | None = None  # whether the agent was ready before settings were changed; None: it is not known

    @property
    def keeps_devices(self) -> bool:
        """True when the node certainly publishes the same kind of devices before and after the change.

        While settings are not applied yet, it is not known what the node publishes. A node without a CpuNode may have
        had one before, and claims outlive it.
        """
        before = None if self.current is None else self.current.spec
        if self.current is None or before is None or not self.current.arrived:
            return False
        assert self.config.wanted is not None
        now, then = self.config.wanted.settings, before.settings
        return (now.representation, now.memory_representation) == (then.representation, then.memory_representation)


@dataclass(frozen=True, slots=True)
class Plan:
    """The writes to make, and the nodes of each config."""

    selected: Mapping[str, Selected]  # by the config's name
    changes: tuple[Change, ...]
    removals: tuple[CpuNode, ...]
    marks: Mapping[
        str, str
    ]  # by node: the time after which its CpuNode is deleted; "" when it is not deleted after all
    next_removal: datetime | None  # when to decide again, because the grace time of a node ends


@dataclass(frozen=True, slots=True)
class Memory:
    """What was computed about single nodes in former reconciles. Decisions are the same without it, and take longer."""

    claimants: Claimants = field(default_factory=Claimants)
    members: Members = field(default_factory=Members)

    def keep(self, nodes: Collection[str]) -> None:
        """Forgets nodes that do not exist any more."""
        self.claimants.keep(nodes)
        self.members.keep(nodes)


@dataclass(frozen=True, slots=True)
class Situation:
    """What decisions depend on besides the objects."""

    now: datetime
    agents: Agents = UNKNOWN
    blocked: Collection[str] = ()  # nodes whose CpuNode cannot be written at the moment
    refused: Collection[str] = ()  # nodes whose CpuNode the API server refused to write the last time
    grace: float = REMOVAL_SECONDS  # the seconds that nodes keep their devices which no config selects any more
    memory: Memory = field(default_factory=Memory)


def make_plan(
    nodes: Mapping[str, Node], configs: Mapping[str, Config], cpu_nodes: Mapping[str, CpuNode], situation: Situation
) -> Plan:
    """Decides for all nodes at once, in the order of their names."""
    agents, memory = situation.agents, situation.memory
    memory.keep(nodes)
    free, kept = _sorted_by_freedom(nodes, configs, cpu_nodes)
    selected = select(free, configs.values(), agents, memory.claimants)
    for each in configs.values():
        selected.setdefault(each.name, Selected(each))  # a config that cannot be decoded has a status, too
    for name, followers in kept.items():
        if name in configs:
            selected[name].nodes.extend(followers)
    orphans = {
        name: cpu_node
        for name, cpu_node in cpu_nodes.items()
        if name in nodes and _is_orphan(cpu_node, nodes[name].uid)
    }
    situation = replace(situation, blocked={*situation.blocked, *orphans})  # deleted before they are created again
    leaving = by_config(_unselected(free, selected.values(), cpu_nodes, orphans), configs)
    present = {name: cpu_node for name, cpu_node in cpu_nodes.items() if name not in orphans} if orphans else cpu_nodes
    removals = Removals()
    changes: list[Change] = []
    for name in {**selected, **leaving}:
        followed, config = selected.get(name), configs.get(name)
        members: list[Member] = []
        changed: list[Change] = []
        if followed is not None:
            members = memory.members.of(followed.config, [node.name for node in followed.nodes], present, agents)
            followed.leaving.extend(leaving[name])
            changed = [*_changes(followed, members, situation)]
            changes += changed
        group = Group(members, changing=_places(members, changed), leaving=leaving[name])
        removals = removals.joined(removals_of(rollout_of(config), group, situation.now, agents, situation.grace))
    marks = {**removals.marks, **dict.fromkeys(_returned(selected.values(), cpu_nodes), "")}
    return Plan(selected, tuple(changes), (*orphans.values(), *removals.due), marks, removals.next_at)


def small_configs_first(changes: Sequence[Change]) -> list[Change]:
    """The changes in the order in which they are written: a node that a label moves to another config does not wait for
    15,000 nodes whose config was edited."""
    count = Counter(change.config.name for change in changes)
    return sorted(changes, key=lambda change: count[change.config.name])


def spec_of(change: Change, claims: ClaimsByNode) -> CpuNodeSpec:
    """The spec to write for a change. `claims` is not needed when the node keeps its devices. Fields of the spec that
    this version does not know stay as a newer operator has written them."""
    wanted = change.config.wanted
    assert wanted is not None
    before = None if change.current is None else change.current.spec
    if change.keeps_devices:
        assert before is not None
        listed = before.outstanding
    else:
        listed = outstanding(claims.get(change.node.name, ()), wanted.settings)
    return CpuNodeSpec(
        change.config.name,
        change.config.generation,
        wanted.settings,
        wanted.revision,
        listed,
        wanted.spec.rollout.settle_seconds,
        unknown={} if before is None else before.unknown,
    )


def with_current_claims(cpu_node: CpuNode, claims: ClaimsByNode) -> CpuNodeSpec | None:
    """The spec with an up-to-date list of outstanding claims; None when the list is up to date already.

    The list follows from the claims alone. What the agent reports may be older than its settings.
    """
    assert cpu_node.spec is not None
    before = cpu_node.spec.outstanding
    listed = outstanding(claims.get(cpu_node.name, ()), cpu_node.spec.settings, before)
    return None if listed == before else replace(cpu_node.spec, outstanding=listed)


def _sorted_by_freedom(
    nodes: Mapping[str, Node], configs: Mapping[str, Config], cpu_nodes: Mapping[str, CpuNode]
) -> tuple[list[Node], dict[str, list[Node]]]:
    """The nodes that may follow any config, and those that stay as they are, by the config that their CpuNode names:
    the config, or the CpuNode itself, cannot be decoded."""
    free: list[Node] = []
    kept: dict[str, list[Node]] = {}
    for name in sorted(nodes):
        cpu_node = cpu_nodes.get(name)
        config = None if cpu_node is None else configs.get(cpu_node.config_name)
        if cpu_node is not None and (cpu_node.unreadable or (config is not None and config.wanted is None)):
            kept.setdefault(cpu_node.config_name, []).append(nodes[name])
        else:
            free.append(nodes[name])
    return free, kept


def _is_orphan(cpu_node: CpuNode, node_uid: str) -> bool:
    """True when the Node was created again with another UID: the garbage collector is about to delete the CpuNode. When
    a Node is deleted, it deletes the CpuNode, too. A CpuNode that no Node owns was not created by the operator."""
    return cpu_node.owner is not None and cpu_node.owner != node_uid and not cpu_node.unreadable


def _unselected(
    free: Iterable[Node], selected: Iterable[Selected], cpu_nodes: Mapping[str, CpuNode], orphans: Collection[str]
) -> Iterator[CpuNode]:
    """The CpuNodes of nodes that no config selects. A node that a config selects and that is to have no agent keeps its
    CpuNode: a DaemonSet that was deleted may be created again."""
    chosen = {
        name for followed in selected for name in (*(node.name for node in followed.nodes), *followed.without_agent)
    }
    chosen.update(orphans)
    for node in free:
        cpu_node = cpu_nodes.get(node.name)
        if cpu_node is not None and cpu_node.owner is not None and node.name not in chosen:
            yield cpu_node


def _changes(selected: Selected, members: Sequence[Member], situation: Situation) -> Iterator[Change]:
    config = selected.config
    if config.wanted is None:
        return
    leaving = len(charged(selected.leaving, situation.agents))
    blocked, refused = situation.blocked, situation.refused
    due = set(next_nodes(config.wanted.spec.rollout, members, leaving=leaving, blocked=blocked, refused=refused))
    for node, member in zip(selected.nodes, members, strict=True):
        corrected = _needs_correction(config, node, member) and node.name not in blocked
        if node.name in due or corrected:
            # a node that the former settings may have taken down uses the budget until its agent is back
            was_ready = None if member.agent is None else member.agent.ready or member.went_down
            yield Change(node, config, member.cpu_node, was_ready)


def _places(members: Sequence[Member], changed: Iterable[Change]) -> int:
    """How many places of the budget the changes take. A correction is counted, too, although it needs none."""
    names = {change.node.name for change in changed}
    return sum(takes_place(member) for member in members if member.name in names)


def _returned(selected: Iterable[Selected], cpu_nodes: Mapping[str, CpuNode]) -> Iterator[str]:
    """Nodes that a config selects again before their grace time has ended."""
    for followed in selected:
        for name in (*(node.name for node in followed.nodes), *followed.without_agent):
            if name in cpu_nodes and cpu_nodes[name].remove_after:
                yield name


def _needs_correction(config: Config, node: Node, member: Member) -> bool:
    """True when the CpuNode has the right revision but is wrong otherwise: it names another config, the Node does not
    own it, or somebody has edited its settings. A correction uses no budget."""
    cpu_node = member.cpu_node
    if cpu_node is None or config.wanted is None or cpu_node.given != config.wanted.revision:
        return False
    return member.edited or (cpu_node.config_name, cpu_node.owner) != (config.name, node.uid)
