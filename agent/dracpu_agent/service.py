"""Puts together what serves one driver: its sockets, slices, transactions, CDI files, audit and metrics."""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from dracpu_agent.cdi.files import CdiDirectory
from dracpu_agent.checkpoint.statefile import StateFile
from dracpu_agent.claims.held import HeldClaim
from dracpu_agent.claims.request import ClaimRequest
from dracpu_agent.cli.options import RunOptions
from dracpu_agent.cluster.claims import ApiClaimReader
from dracpu_agent.cluster.client import ApiClient
from dracpu_agent.cluster.device_status import DeviceStatusWriter
from dracpu_agent.cluster.events import Events
from dracpu_agent.cluster.slices.controller import SliceController
from dracpu_agent.drivers.holding import Holding
from dracpu_agent.kubelet.plugin import KubeletPlugin
from dracpu_agent.kubelet.registration import RegistrationStatus
from dracpu_agent.node import NodeState
from dracpu_agent.observe.metrics import Metrics
from dracpu_agent.placement.container import Limits
from dracpu_agent.report.conditions import Condition
from dracpu_agent.report.device_health import HealthOfDriver
from dracpu_agent.work.auditing import Auditor
from dracpu_agent.work.cdi_repair import CdiRepair
from dracpu_agent.work.changes import Changes
from dracpu_agent.work.lingering import Lingering
from dracpu_agent.work.outcomes import ClaimOutcomes
from dracpu_agent.work.transactions import ClaimTransactions


@dataclass(frozen=True, slots=True)
class Shared:
    """What the drivers of an agent share."""

    options: RunOptions
    api: ApiClient
    node: NodeState
    changes: Changes
    state_file: StateFile
    lingering: Lingering
    events: Events
    metrics: Metrics


class Companion(Protocol):
    """What a driver does beside serving its claims and its devices."""

    def background(self) -> Mapping[str, Callable[[], Coroutine[Any, Any, None]]]:
        """The tasks that run as long as the agent, by name."""

    async def recovered(self) -> None:
        """The claims of an earlier agent are in the ledger."""

    async def before_grant(self, request: ClaimRequest[Any]) -> None:
        """Reads what a driver compares with a claim that it is about to grant; raises ClaimError."""

    async def ready_claim(self, claim: HeldClaim[Any]) -> None:
        """Does what a claim of any driver needs before its Prepare is answered; raises ClaimError."""

    async def ready_pod(self, pod_uid: str) -> None:
        """Does what a pod needs before one of its containers is created; raises PlacementError."""

    async def check_resize(self, pod_uid: str) -> None:
        """Raises PlacementError when the kubelet must not change the resources of a pod now."""

    async def read_limits(self, pod_uid: str, container_id: str, limits: Limits) -> Mapping[str, str] | None:
        """The content that the cgroup of a container has in the files of these limits; None if that is not known."""

    def kubelet_registered(self) -> None:
        """The kubelet has registered the driver, perhaps after a restart."""

    def read_again(self) -> None:
        """Reads the machine at once instead of at the next poll."""

    def conditions(self) -> tuple[Condition, ...]:
        """The conditions that the CpuNode shows of it, if any."""


class DriverService:
    """Serves one driver's claims to the kubelet, and its devices to the API server."""

    def __init__(
        self,
        shared: Shared,
        holding: Holding[Any, Any],
        before_grant: Callable[[ClaimRequest[Any]], Awaitable[None]],
        wait_until_settled: Callable[[Any], Awaitable[None]],
        on_registration: Callable[[], None],
    ) -> None:
        options, api, node = shared.options, shared.api, shared.node
        metrics = shared.metrics.drivers[holding.name]
        self._device_status = DeviceStatusWriter(api, holding.name)
        self._outcomes = ClaimOutcomes(node, holding, metrics, shared.events, self._device_status, shared.changes)
        self.cdi: CdiDirectory[Any] = CdiDirectory(options.cdi_dir, holding.driver.claim_type)
        self.slices = SliceController(api, holding.name, options.node_name, self._outcomes.slices_changed)
        claims = ApiClaimReader(api, options.node_name)
        self.transactions: ClaimTransactions[Any] = ClaimTransactions(
            node,
            holding,
            claims,
            shared.state_file,
            self.cdi,
            wait_until_settled=wait_until_settled,
            observer=self._outcomes,
            look_at_pods=shared.lingering.look,
            before_grant=before_grant,
        )
        self._auditor = Auditor(
            node, holding, claims.read_if_there, self.transactions.release_if_gone, self._outcomes.released_by_audit
        )
        self._cdi_repair = CdiRepair(
            holding,
            self.cdi,
            self.transactions.repair_cdi_file,
            self._outcomes.cdi_files_repaired,
            partial(metrics.cdi_repaired, "error"),
        )

        def registered(status: RegistrationStatus) -> None:
            self._outcomes.registered(status, slices=self.slices)
            on_registration()

        self.kubelet = KubeletPlugin(
            holding.name, options.kubelet_root, self.transactions, HealthOfDriver(node, holding), registered
        )

    def background(self) -> dict[str, Callable[[], Coroutine[Any, Any, None]]]:
        """The tasks that run as long as the agent, by name."""
        return {
            "slices": self.slices.run,
            "device status": self._device_status.run,
            "audit": self._auditor.run,
            "cdi files": self._cdi_repair.run,
        }

    async def recovered(self) -> None:
        """The claims of an earlier agent are in the ledger: repairs what that agent may have left undone."""
        await self._cdi_repair.round()
        self._outcomes.recovered()
