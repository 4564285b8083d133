"""Names that users' manifests, dashboards and other drivers rely on."""

from dataclasses import dataclass
from typing import Final

DRIVER: Final = "dra.cpu"
DRIVER_MEMORY: Final = "dra.memory"
CLASSES_OF_MEMORY: Final = (DRIVER_MEMORY, "dra.hugepages-2m", "dra.hugepages-1g")  # DeviceClasses
API_GROUP: Final = "dra.cpu"
API_VERSION: Final = "v1alpha1"

CAPACITY_CPU: Final = f"{DRIVER}/cpu"
CAPACITY_SIZE: Final = "size"  # of memory: claims name it without a domain
# of CPUs' devices that offer memory, too: the kind of memory, and its capacity
CAPACITIES_BESIDE_CPUS: Final = {kind: f"{DRIVER}/{kind}" for kind in ("memory", "hugepages_2Mi", "hugepages_1Gi")}

ATTRIBUTE_NUMA_NODE: Final = "resource.kubernetes.io/numaNode"  # the standard one: other drivers match on it
ATTRIBUTE_PCIE_ROOT: Final = "resource.kubernetes.io/pcieRoot"
ATTRIBUTE_SOCKET: Final = f"{DRIVER}/socketID"
ATTRIBUTE_NUM_CPUS: Final = f"{DRIVER}/numCPUs"
ATTRIBUTE_SMT: Final = f"{DRIVER}/smtEnabled"
ATTRIBUTE_CPU: Final = f"{DRIVER}/cpuID"
ATTRIBUTE_CORE: Final = f"{DRIVER}/coreID"
ATTRIBUTE_L3: Final = f"{DRIVER}/cacheL3ID"
ATTRIBUTE_CORE_TYPE: Final = f"{DRIVER}/coreType"
ATTRIBUTE_PAGE_SIZE: Final = "resource.kubernetes.io/pageSize"
ATTRIBUTE_HUGE_TLB: Final = "resource.kubernetes.io/hugeTLB"
ATTRIBUTE_TIER: Final = f"{DRIVER_MEMORY}/tier"
ATTRIBUTE_CPULESS: Final = f"{DRIVER_MEMORY}/cpuless"
ATTRIBUTES_NUMA_LEGACY: Final = (f"{DRIVER}/numaNodeID", "dra.net/numaNode")

TAINT_NOT_READY: Final = f"{DRIVER}/not-ready"
TAINT_SETTLING: Final = f"{DRIVER}/settling"
TAINT_OFFLINE: Final = f"{DRIVER}/offline"

# annotations of CpuNodes, which the operator writes
ANNOTATION_GIVEN_AT: Final = f"{API_GROUP}/given-at"  # when the node was given its settings
# when the node was last given settings that may replace its devices
ANNOTATION_DEVICES_CHANGED_AT: Final = f"{API_GROUP}/devices-changed-at"
ANNOTATION_AGENT_WAS_READY: Final = f"{API_GROUP}/agent-was-ready"  # whether its agent was ready at that time
ANNOTATION_REMOVE_AFTER: Final = f"{API_GROUP}/remove-after"  # when the CpuNode is deleted, unless the node is selected

VARIABLES: Final = "DRA"  # the environment variables of all drivers begin with it


@dataclass(frozen=True, slots=True)
class DriverNames:
    """The names of a driver that users, the kubelet and the runtime see."""

    driver: str  # at the kubelet, in slices, and in claims and their parameters
    cdi_kind: str
    variables: str  # the prefix of the environment variables that its CDI devices set

    def cdi_device(self, claim_uid: str, request: str | None) -> str:
        """The CDI device of a claim, or of one of its requests when it has several."""
        name = f"{self.cdi_kind}=claim-{claim_uid}"
        return name if request is None else f"{name}-{request}"

    def variable(self, claim_uid: str, request: str | None) -> str:
        """The environment variable of a claim, or of one of its requests when it has several."""
        name = f"{self.variables}{claim_uid}"
        return name if request is None else f"{name}_{request.replace('-', '_')}"


CPUS: Final = DriverNames(DRIVER, "dra.k8s.io/cpu", "DRA_CPUSET_")
MEMORY: Final = DriverNames(DRIVER_MEMORY, "dra.k8s.io/memory", "DRAMEMORY_")
