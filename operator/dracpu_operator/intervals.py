"""The operator's intervals and time limits, in seconds; in one place, so that tests can shorten them."""

from dataclasses import dataclass
from typing import Final

from dracpu_api.settings import REMOVAL_SECONDS

# How long after a scheduler has chosen a device the claim may be allocated: plugins at Permit hold a pod for up to 15
# minutes; then, up to Kubernetes 1.35, VolumeBinding waits for volumes for up to 10 minutes by default; only then
# DynamicResources writes the allocation. Five minutes more are for repeated requests, and for clocks that differ.
FOLLOWING_SECONDS: Final = 1800.0


@dataclass(frozen=True, slots=True)
class Intervals:
    """How often, how soon and how late things are done."""

    debounce: float = 0.1  # from a change to its reconcile: 5,000 agents answer at once, a node pool is relabelled
    gathering: float = 0.25  # from events of Nodes and pods to the next ones, so that each does not wake the process
    first_recheck: float = 15.0  # to the first list that finds deletions: no watch was running during the first list
    recheck: float = 300.0  # between two such lists
    node_is_fresh: float = 10.0  # a CpuNode is created only for a Node that was seen within this time
    following: float = FOLLOWING_SECONDS  # claims, after a node has replaced its devices
    status: float = 5.0  # between two writes of a status in which only counts change
    status_urgent: float = 1.0  # between two writes of a status in which conditions change
    trouble: float = 30.0  # the age at which a node's trouble is reported: agents and runtimes restart
    silence: float = 300.0  # likewise for an agent that has never reported: its image has to be pulled first
    unanswered: float = 120.0  # likewise for settings that a ready agent has not answered
    removal: float = REMOVAL_SECONDS  # the grace time of a node that no config selects, where a config has none
    agent_report: float = 60.0  # between two writes of one node's status.agent
    refusal_cap: float = 300.0  # the longest time until a refused write of one CpuNode is repeated
    discovery: float = 60.0  # until the API server has to describe the custom resources
    blind: float = 120.0  # without a watch, until the operator reports that it is not ready
    retry_first: float = 0.5
    retry_cap: float = 30.0
    writers: int = 16  # requests at a time
    uninterrupted: float = 1.0  # writes of CpuNodes, until a changed Node or config stops the rest of them
