"""Which config a node follows. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from dracpu_api.objects.models import NodeSelector, SelectorRequirement
from dracpu_operator.decide.agents import UNKNOWN, Agents
from dracpu_operator.decide.records import Config, CpuNode, Node

OS_LABEL: Final = "kubernetes.io/os"  # kubelet: set on every Node


@dataclass(frozen=True, slots=True)
class Selected:
    """A config with the nodes that follow it."""

    config: Config
    nodes: list[Node] = field(default_factory=list)
    without_agent: list[str] = field(default_factory=list)  # the selector takes them, and they are to have no agent
    leaving: list[CpuNode] = field(default_factory=list)  # of nodes that followed the config, and that none selects now
    lost: dict[str, list[str]] = field(default_factory=dict)  # config of the same priority -> nodes that follow it


class Claimants:
    """The configs that select each node, remembered from one reconcile to the next."""

    def __init__(self) -> None:
        self._configs: Sequence[Config] = ()  # valid ones, the one that wins first
        self._known: dict[str, tuple[Node, Sequence[Config]]] = {}

    def use(self, configs: Sequence[Config]) -> None:
        """Forgets all nodes when the configs are others than before."""
        if configs != self._configs:
            self._configs = configs
            self._known = {}

    def of(self, node: Node) -> Sequence[Config]:
        """The configs that select a node, the one that wins first."""
        known = self._known.get(node.name)
        if known is None or known[0] is not node:
            same = known is not None and known[0].labels == node.labels
            claimants = known[1] if known and same else [config for config in self._configs if follows(config, node)]
            known = self._known[node.name] = node, claimants
        return known[1]

    def keep(self, nodes: Collection[str]) -> None:
        """Forgets nodes that do not exist any more."""
        if len(self._known) > len(nodes):
            self._known = {name: known for name, known in self._known.items() if name in nodes}


def select(
    nodes: Iterable[Node], configs: Iterable[Config], agents: Agents = UNKNOWN, remembered: Claimants | None = None
) -> dict[str, Selected]:
    """Each valid config by name, with its nodes in the order given. A node that is to have no agent follows none."""
    ordered = sorted((config for config in configs if config.wanted is not None), key=precedence)
    selected = {config.name: Selected(config) for config in ordered}
    remembered = remembered or Claimants()
    remembered.use(ordered)
    for node in nodes:
        claimants = remembered.of(node)
        if not claimants:
            continue
        winner = claimants[0]
        if not agents.is_wanted(node.name):
            selected[winner.name].without_agent.append(node.name)
            continue
        selected[winner.name].nodes.append(node)
        for loser in claimants[1:]:
            if _priority(loser) == _priority(winner):
                selected[loser.name].lost.setdefault(winner.name, []).append(node.name)
    return selected


def precedence(config: Config) -> tuple[int, str, str]:
    """Sorts the config that wins first: the highest priority, then the oldest, then the first by name."""
    return (-_priority(config), config.created, config.name)


def follows(config: Config, node: Node) -> bool:
    """True when the config's selector takes the node. There is no agent but for Linux."""
    assert config.wanted is not None
    is_linux = node.labels.get(OS_LABEL, "linux") == "linux"
    return is_linux and matches(config.wanted.spec.node_selector, node.labels)


def matches(selector: NodeSelector, labels: Mapping[str, str]) -> bool:
    """As Kubernetes reads a label selector: all must hold, and NotIn holds where the label is absent."""
    return all(labels.get(key) == value for key, value in selector.match_labels.items()) and all(
        _holds(requirement, labels) for requirement in selector.match_expressions
    )


def _holds(requirement: SelectorRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None


def _priority(config: Config) -> int:
    assert config.wanted is not None
    return config.wanted.spec.priority
