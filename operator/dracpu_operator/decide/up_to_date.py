"""Whether a node has the present settings of a config. Pure.

Equal revisions are not the only evidence. A program of another version makes another revision of settings in which a
field has its default. And a CRD that is upgraded, or rolled back, adds fields to a config that is stored already, or
takes some away, although nobody has changed the config: its generation stays.
"""

from dataclasses import replace

from dracpu_operator.decide.agents import Agents
from dracpu_operator.decide.records import Config, CpuNode
from dracpu_operator.decide.rollout import Member


def member_of(config: Config, name: str, cpu_node: CpuNode | None, agents: Agents) -> Member:
    """A node that follows the config. A CpuNode that cannot be decoded is left as it is, as if it were up to date."""
    fixed = cpu_node is not None and (bool(cpu_node.unreadable) or is_up_to_date(cpu_node, config))
    return Member(name, cpu_node, agents.of(name), fixed)


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
