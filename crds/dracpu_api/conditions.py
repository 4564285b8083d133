"""The words of both objects' statuses: phases, conditions and their reasons.

Programs compare them and documentation quotes them. A message beside a reason explains it to people and may change.
"""

from enum import StrEnum
from typing import Final


class Phase(StrEnum):
    """CpuNode: how far a node is with its settings."""

    PENDING = "Pending"
    SETTLING = "Settling"
    DRAINING = "Draining"
    READY = "Ready"
    FAILED = "Failed"


class NodeCondition(StrEnum):
    """CpuNode: the types of its conditions."""

    CONFIG_APPLIED = "ConfigApplied"
    KUBELET_REGISTERED = "KubeletRegistered"
    RUNTIME_CONNECTED = "RuntimeConnected"
    SLICES_PUBLISHED = "SlicesPublished"
    STATE_HEALTHY = "StateHealthy"
    MEMORY_READY = "MemoryReady"  # present only where the settings enable memory
    PAGES_SHARED = "PagesSharedWithKubelet"  # present only while it is true
    NOT_COUNTED = "NotCounted"  # present only while it is true


REMARKS: Final = frozenset({NodeCondition.PAGES_SHARED, NodeCondition.NOT_COUNTED})  # present only while they are true


class NodeReason(StrEnum):
    """CpuNode: the reasons of its conditions. SlicesPublished may also have a reason of the API server."""

    # ConfigApplied
    APPLIED = "Applied"
    CPUS_NOT_GROUPED = "CPUsNotGrouped"
    DRAINING = "Draining"
    NO_SETTINGS = "NoSettings"
    REFUSED = "Refused"  # also of KubeletRegistered
    RESERVED_CPUS_HELD = "ReservedCPUsHeld"
    SETTLING = "Settling"
    # KubeletRegistered
    REGISTERED = "Registered"
    STATIC_CPU_MANAGER = "StaticCPUManager"
    WAITING = "Waiting"  # also of SlicesPublished
    # RuntimeConnected
    CONNECTED = "Connected"
    CONNECTED_WITHOUT_UPDATES = "ConnectedWithoutUpdates"
    CPUSET_NOT_DELEGATED = "CpusetNotDelegated"
    DISCONNECTED = "Disconnected"
    # SlicesPublished
    FEATURE_GATE_DISABLED = "FeatureGateDisabled"
    FIELDS_DROPPED = "FieldsDropped"
    PUBLISHED = "Published"
    WITHDRAWN = "Withdrawn"
    # StateHealthy
    CLAIMS_FROZEN = "ClaimsFrozen"
    CPUS_FORBIDDEN = "CPUsForbidden"
    CPUS_INCOMPLETE = "CPUsIncomplete"
    CPUS_ISOLATED = "CPUsIsolated"
    CPUS_OFFLINE = "CPUsOffline"
    HEALTHY = "Healthy"
    MACHINE_UNREADABLE = "MachineUnreadable"
    REBUILT = "Rebuilt"
    WRITE_FAILED = "WriteFailed"
    # MemoryReady
    LIMITS_NOT_WRITABLE = "LimitsNotWritable"
    MEMORY_UNREADABLE = "MemoryUnreadable"
    NOT_SERVED = "NotServed"
    PROMISE_NOT_KEPT = "PromiseNotKept"
    PROVISION_INCOMPLETE = "ProvisionIncomplete"
    READY = "Ready"
    STATIC_MEMORY_MANAGER = "StaticMemoryManager"
    # PagesSharedWithKubelet
    PAGES_ALLOCATABLE = "PagesAllocatable"
    # NotCounted
    REQUESTS_BELOW_CLAIMS = "RequestsBelowClaims"


class AgentReason(StrEnum):
    """CpuNode: the reasons in status.agent that do not come from the agent's pod."""

    NO_DAEMON_SET = "NoDaemonSet"
    NO_POD = "NoPod"
    NOT_WANTED = "NotWanted"
    READY = "Ready"


class ConfigCondition(StrEnum):
    """CpuDriverConfig: the types of its conditions, in the order in which people read them."""

    ACCEPTED = "Accepted"
    PROGRESSING = "Progressing"
    AVAILABLE = "Available"
    DEGRADED = "Degraded"
    CONFLICTED = "Conflicted"


class ConfigReason(StrEnum):
    """CpuDriverConfig: the reasons of its conditions; most are also reasons of Events."""

    # Accepted
    INVALID = "Invalid"
    VALID = "Valid"
    # Progressing
    COMPLETE = "Complete"
    INCOMPLETE = "Incomplete"
    NOT_ACCEPTED = "NotAccepted"
    NO_NODES = "NoNodes"  # also of Available
    PAUSED = "Paused"
    ROLLING_OUT = "RollingOut"
    SETTINGS_IGNORED = "SettingsIgnored"
    STOPPED = "Stopped"
    # Available
    ENOUGH_NODES = "EnoughNodes"
    TOO_FEW_NODES = "TooFewNodes"
    # Degraded
    AGENTS_NOT_READY = "AgentsNotReady"
    MEMORY_NOT_READY = "MemoryNotReady"
    NODES_FAILED = "NodesFailed"
    NODES_FROZEN = "NodesFrozen"
    NODES_IN_TROUBLE = "NodesInTrouble"
    NODES_LEAVING = "NodesLeaving"
    NODES_REFUSED = "NodesRefused"
    NO_FAILURES = "NoFailures"
    # Conflicted
    NO_CONFLICT = "NoConflict"
    SAME_PRIORITY = "SamePriority"
