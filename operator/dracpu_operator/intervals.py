"""The operator's intervals and time limits, in seconds; in one place, so that tests can shorten them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Intervals:
    """The operator's intervals."""

    debounce: float = 0.2  # changes come in crowds: 5,000 agents answer, a node pool is relabelled
    first_recheck: float = 15.0  # what happened between the first list and the first watch
    recheck: float = 300.0  # deletions that a watch has missed
    node_is_fresh: float = 10.0  # a CpuNode made for a Node that is gone would be collected, and made again
    claims_first: float = 5.0  # between two lists of claims while nodes change their devices,
    claims_cap: float = 60.0  # doubling while nothing ends: claims may live for weeks
    status: float = 5.0  # between two writes of a status in which only counts change,
    status_urgent: float = 1.0  # or in which a condition does: one that flaps is told at that pace
    trouble: float = 30.0  # agents and runtimes restart: only what lasts longer is told,
    silence: float = 300.0  # and the agent of a new node has to be pulled and started first
    retry_first: float = 0.5
    retry_cap: float = 30.0
    writers: int = 16  # requests at a time
