"""What the agent knows of a driver: which devices it offers, how it grants claims, and what its claims hold.

Registration, slices, Prepare and Unprepare, checkpoint, CDI files, audit, lingering and health work on this interface,
and know neither CPUs nor memory. A new driver is a class of its own in this room, with a class for its claims.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol

from dracpu_agent.claims.cpu_asks import CpuRequest
from dracpu_agent.claims.cpu_claim import CpuClaim, CpuLedger
from dracpu_agent.claims.grant import ClaimRef, Grant
from dracpu_agent.claims.ledger import C, Ledger
from dracpu_agent.claims.request import A, ClaimRequest, Json
from dracpu_agent.devices.device import Capacity, Device, Taint
from dracpu_agent.placement.container import AtCreation, Container
from dracpu_agent.placement.proof import Use
from dracpu_agent.topology.topology import Topology
from dracpu_api.names import DriverNames
from dracpu_api.settings import CpuNodeSpec

if TYPE_CHECKING:
    from dracpu_agent.claims.memory_sizes import MemorySizes


class BesideCpus(Protocol):
    """A driver whose memory the devices of CPUs can offer beside their CPUs. Such a claim is one of the driver dra.cpu,
    which records both together; how much memory there is to promise is known here."""

    def capacities_beside_cpus(self) -> Mapping[str, tuple[Capacity, ...]]:
        """The capacities to publish now, by the device of CPUs that has them."""

    @property
    def closes_cpus(self) -> bool:
        """True while devices of CPUs stay published, closed to new claims, before they lose these capacities."""

    def memory_for(self, request: CpuRequest) -> "Sequence[MemorySizes | None]":
        """The memory for each ask of a claim of CPUs, in their order; raises a ClaimError when a part is not there."""

    def used(self, claim: CpuClaim) -> Sequence[Mapping[str, Any]]:
        """How much of the memory of a claim of CPUs its containers use; nothing where that is not known."""

    def problems_of_cpus(self) -> Mapping[str, str]:
        """Device of CPUs -> why pods should not rely on its memory now."""


class Driver(ABC, Generic[A, C]):
    """One kind of resource of the node. It reads its ledger; only `Holding` changes what claims hold."""

    names: ClassVar[DriverNames]
    claim_type: type[C]

    def __init__(self, ledger: Ledger[C]) -> None:
        self.ledger = ledger

    # ---- what it offers, and what claims get

    @abstractmethod
    def devices(self, taints: tuple[Taint, ...]) -> tuple[Device, ...]:
        """The devices to publish now, with these taints; none without settings."""

    @property
    def offers(self) -> bool:
        """False where the settings turn the driver off: then it has no slices, not even an empty one."""
        return True

    @abstractmethod
    def read(self, ref: ClaimRef, claim: Json) -> ClaimRequest[A]:
        """Reads what a ResourceClaim asks of this driver; raises ClaimRefusedError."""

    @abstractmethod
    def choose(self, request: ClaimRequest[A]) -> tuple[Grant, ...]:
        """The grants for a claim; raises a ClaimError when it cannot be granted."""

    def beside_cpus(self, _claims: CpuLedger) -> BesideCpus | None:
        """Connects the driver with the claims of CPUs, which may have something of this driver. Returns what the
        devices of CPUs can offer beside CPUs; None where they offer CPUs alone."""
        return None

    def concerns(self, use: Use) -> bool:
        """Whether a container's use of a claim gives it something of this driver."""
        return use.claim.driver == self.names.driver

    @property
    def aligns(self) -> bool:
        """True where grants should be close to the devices of other drivers that the claim has."""
        return False

    def aligned(self, request: ClaimRequest[A], _roots: Mapping[str, frozenset[str]]) -> ClaimRequest[A]:
        """The request with the PCIe roots, by request name, that its grants should be close to."""
        return request

    def limits(self, container: Container, devices: frozenset[str]) -> Mapping[str, str]:
        """The contents that the files of the cgroup v2 of a container with these CDI devices, which concern the driver,
        must have; perhaps it has no such device. Two drivers must not return the same file. The runtime repeats every
        file that was ever set for a container, so a file that was returned once is returned, perhaps with another
        content, as long as the container runs."""
        return {}

    def admit(
        self, container: Container, devices: frozenset[str], others: Sequence[tuple[Container, frozenset[str]]]
    ) -> None:
        """Raises PlacementError when a container that is about to be created must not use these CDI devices, which
        concern the driver, beside the `others`, which use some of the same claims."""

    def at_creation(self, container: Container, devices: frozenset[str]) -> AtCreation:
        """The settings that a container with these CDI devices, which concern the driver, gets only at its creation;
        raises PlacementError."""
        return AtCreation()

    # ---- settings

    def check(self, spec: CpuNodeSpec) -> None:
        """Raises SettingsRefusedError when these settings cannot be applied here."""

    def configure(self, spec: CpuNodeSpec) -> None:
        """Applies settings that `check` has accepted."""

    def deconfigure(self) -> None:
        """No config selects this node any more: nothing is offered, claims keep what they hold."""

    @property
    def settling(self) -> bool:
        """True while the former devices stay published, closed to new claims, before others replace them."""
        return False

    def settled(self) -> bool:
        """The former devices have been closed to new claims for long enough; False when the driver was not settling."""
        return False

    def draining(self) -> tuple[ClaimRef, ...]:
        """Claims of devices that the slices do not show any more."""
        return ()

    # ---- change

    def update(self) -> None:
        """Follows a change of the settings, the machine or the ledger."""

    def follow_topology(self, topology: Topology) -> None:
        """The CPUs of the machine have changed; `update` follows."""

    def adopted(self) -> None:
        """The ledger has got a claim of an earlier agent."""

    def state(self) -> Any:
        """What else must survive a restart, as JSON; None: nothing."""
        return None

    def restore(self, state: Any) -> None:
        """Takes over the `state` of an earlier agent, perhaps of another version."""

    # ---- how it stands

    def status(self) -> Mapping[str, Any]:
        """The fields of the CpuNode's status that show this driver alone."""
        return {}

    def used(self, claim: C) -> Sequence[Mapping[str, Any]]:
        """The use of a claim by its containers, for the command `state`; nothing where that is not known."""
        return ()

    def problems(self) -> Mapping[str, str]:
        """Device -> why pods should not rely on it now; the kubelet shows this on every pod that has the device."""
        return {}
