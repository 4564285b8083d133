"""Which CpuNodes have to be created, changed and deleted. Pure: nodes, configs and CpuNodes in, changes and removals
out."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from dracpu_api.settings import CpuNodeSpec
from dracpu_operator.decide.outstanding import ClaimsByNode, outstanding
from dracpu_operator.decide.records import Config, CpuNode, Node
from dracpu_operator.decide.rollout import Member, next_nodes
from dracpu_operator.decide.selection import Selected, select


@dataclass(frozen=True, slots=True)
class Change:
    """A node that is given the settings of a config now."""

    node: Node
    config: Config
    current: CpuNode | None

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
        return before.settings.representation == self.config.wanted.settings.representation


@dataclass(frozen=True, slots=True)
class Plan:
    """The writes to make, and the nodes of each config."""

    selected: Mapping[str, Selected]  # by the config's name
    changes: tuple[Change, ...]
    removals: tuple[CpuNode, ...]


def make_plan(nodes: Mapping[str, Node], configs: Mapping[str, Config], cpu_nodes: Mapping[str, CpuNode]) -> Plan:
    """Decides for all nodes at once, in the order of their names."""
    # nodes of a config that is not valid keep its last valid settings
    held: dict[str, list[Node]] = {config.name: [] for config in configs.values() if config.wanted is None}
    free: list[Node] = []
    for name in sorted(nodes):
        spec = cpu_nodes[name].spec if name in cpu_nodes else None
        (free if spec is None or spec.config_name not in held else held[spec.config_name]).append(nodes[name])
    selected = select(free, configs.values())
    removals = _removals(nodes, selected.values(), free, cpu_nodes)
    removed = {cpu_node.name for cpu_node in removals}
    changes = [change for followed in selected.values() for change in _changes(followed, cpu_nodes, removed)]
    kept = {name: Selected(configs[name], followers) for name, followers in held.items()}
    return Plan({**selected, **kept}, tuple(changes), tuple(removals))


def spec_of(change: Change, claims: ClaimsByNode) -> CpuNodeSpec:
    """The spec to write for a change. `claims` is not needed when the node keeps its devices."""
    wanted = change.config.wanted
    assert wanted is not None
    if change.keeps_devices:
        assert change.current is not None
        assert change.current.spec is not None
        listed = change.current.spec.outstanding
    else:
        listed = outstanding(claims.get(change.node.name, ()), wanted.settings)
    return CpuNodeSpec(
        change.config.name,
        change.config.generation,
        wanted.settings,
        wanted.revision,
        listed,
        wanted.spec.rollout.settle_seconds,
    )


def with_current_claims(cpu_node: CpuNode, claims: ClaimsByNode) -> CpuNodeSpec | None:
    """The spec with an up-to-date list of outstanding claims; None when the list is up to date already.

    The list follows from the claims alone. What the agent reports may be older than its settings.
    """
    assert cpu_node.spec is not None
    before = cpu_node.spec.outstanding
    listed = outstanding(claims.get(cpu_node.name, ()), cpu_node.spec.settings, before)
    return None if listed == before else replace(cpu_node.spec, outstanding=listed)


def _removals(
    nodes: Mapping[str, Node], selected: Iterable[Selected], free: Iterable[Node], cpu_nodes: Mapping[str, CpuNode]
) -> list[CpuNode]:
    """CpuNodes of nodes that no config selects any more, and of Nodes that were created again with another UID.

    A CpuNode that no Node owns was not created by the operator and stays. When a Node is deleted, the garbage collector
    removes its CpuNode.
    """
    chosen = {node.name for followed in selected for node in followed.nodes}
    unselected = {node.name for node in free} - chosen
    return [
        cpu_node
        for name, cpu_node in cpu_nodes.items()
        if cpu_node.owner is not None and name in nodes and (cpu_node.owner != nodes[name].uid or name in unselected)
    ]


def _changes(selected: Selected, cpu_nodes: Mapping[str, CpuNode], removed: set[str]) -> list[Change]:
    config = selected.config
    assert config.wanted is not None
    members = [Member(node.name, None if node.name in removed else cpu_nodes.get(node.name)) for node in selected.nodes]
    due = set(next_nodes(config.wanted.spec.rollout, config.wanted.revision, members)) - removed
    return [
        Change(node, config, member.cpu_node)
        for node, member in zip(selected.nodes, members, strict=True)
        if node.name in due or _needs_correction(config, node, member.cpu_node)
    ]


def _needs_correction(config: Config, node: Node, cpu_node: CpuNode | None) -> bool:
    """True when the CpuNode has the right revision but is wrong otherwise: it names another config, the Node does not
    own it, or somebody has edited its settings. A correction uses no budget."""
    if cpu_node is None or cpu_node.spec is None or config.wanted is None or cpu_node.given != config.wanted.revision:
        return False
    return (cpu_node.spec.config_name, cpu_node.spec.settings, cpu_node.owner) != (
        config.name,
        config.wanted.settings,
        node.uid,
    )
