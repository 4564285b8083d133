"""Whether a node has the present settings of a config. Pure.

Equal revisions are not the only evidence. A program of another version makes another revision of settings in which a
field has its default. And a CRD that is upgraded, or rolled back, adds fields to a config that is stored already, or
takes some away, although nobody has changed the config: its generation stays.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from dracpu_operator.decide.agents import Agents
from dracpu_operator.decide.records import Agent, Config, CpuNode
from dracpu_operator.decide.rollout import Member


class Members:
    """The nodes that follow configs, remembered from one reconcile to the next: records never change, so a member is
    the same as before unless one of the records that it is made of was replaced."""

    def __init__(self) -> None:
        self._configs: dict[str, Config] = {}  # a config is replaced by an equal one when its status is written
        self._members: dict[str, tuple[Config, Member]] = {}

    def of(
        self, config: Config, names: Iterable[str], cpu_nodes: Mapping[str, CpuNode], agents: Agents
    ) -> list[Member]:
        """Those of a config, in the order of `names`."""
        if config == (same := self._configs.get(config.name)):
            config = same
        self._configs[config.name] = config
        members = []
        for name in names:
            cpu_node, agent = cpu_nodes.get(name), agents.of(name)
            known = self._members.get(name)
            if (
                known is None
                or known[0] is not config
                or known[1].cpu_node is not cpu_node
                or known[1].agent is not agent
            ):
                known = self._members[name] = config, member_of(config, name, cpu_node, agent)
            members.append(known[1])
        return members

    def keep(self, nodes: Collection[str]) -> None:
        """Forgets nodes that do not exist any more."""
        if len(self._members) > len(nodes):
            self._members = {name: known for name, known in self._members.items() if name in nodes}


def member_of(config: Config, name: str, cpu_node: CpuNode | None, agent: Agent | None) -> Member:
    """A node that follows the config. A CpuNode that cannot be decoded is left as it is, as if it were up to date."""
    if cpu_node is None:
        return Member(name, None, agent)
    fixed = bool(cpu_node.unreadable) or is_up_to_date(cpu_node, config)
    return Member(name, cpu_node, agent, fixed, is_edited(cpu_node, config))


def is_up_to_date(cpu_node: CpuNode, config: Config) -> bool:
    """True when the node was given the settings of the config as they are now."""
    spec, wanted = cpu_node.spec, config.wanted
    if spec is None or wanted is None:
        return False
    if spec.revision == wanted.revision:
        return True
    if spec.config_name != config.name:
        return False
    if spec.settings == wanted.settings:
        return True
    return _has_same_known_settings(cpu_node, config) and is_from(cpu_node, config)


def is_edited(cpu_node: CpuNode, config: Config) -> bool:
    """True when somebody else has changed the settings of a CpuNode that has the config's revision."""
    spec, wanted = cpu_node.spec, config.wanted
    if spec is None or wanted is None or spec.revision != wanted.revision:
        return False
    return not _has_same_known_settings(cpu_node, config)


def is_from(cpu_node: CpuNode, config: Config) -> bool:
    """True when the settings were taken from the present generation of the config, and not of one with the same name
    that was deleted."""
    spec = cpu_node.spec
    if spec is None or (spec.config_name, spec.config_generation) != (config.name, config.generation):
        return False
    return not cpu_node.given_at or cpu_node.given_at >= config.created


def _has_same_known_settings(cpu_node: CpuNode, config: Config) -> bool:
    assert cpu_node.spec is not None
    assert config.wanted is not None
    settings, wanted = cpu_node.spec.settings, config.wanted.settings
    return replace(settings, unknown=wanted.unknown) == wanted
