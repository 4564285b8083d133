"""Whether a node was given the present settings of a config. Pure."""

from dracpu_operator.decide.records import Config, CpuNode


def was_given(config: Config, cpu_node: CpuNode) -> bool:
    """True when the CpuNode has the present settings of the config."""
    return config.wanted is not None and cpu_node.given == config.wanted.revision
