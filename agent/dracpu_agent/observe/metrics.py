"""The agent's metrics. The first group has the names and meanings of the Go driver's metrics, so that its dashboards
work; the others show an on-call person which part of the node fails.

There are no labels for namespaces, pods, claims, devices or nodes, as their number has no limit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from dracpu_agent.observe.exposition import (
    CONTENT_TYPE,
    Counter,
    Family,
    Gauge,
    Histogram,
    Info,
    process_families,
    render,
)

__all__ = ["CONTENT_TYPE", "Metrics", "NodeGauges", "Result"]

Result = Literal["success", "error"]
RESULTS: Final[Sequence[Result]] = ("success", "error")
CLAIM_RESULTS: Final = (*RESULTS, "unknown")  # `unknown` exists in the Go driver; here it stays 0

_PREPARE_BUCKETS: Final = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40)
_WRITE_BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 20)
_HOOK_BUCKETS: Final = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2)
_CPU_BUCKETS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)


@dataclass(frozen=True, slots=True)
class NodeGauges:
    """The numbers of CPUs and claims on the node."""

    allocated: int  # CPUs that claims hold, including lingering claims
    available: int  # CPUs that claims can still get
    reserved: int
    claims: int
    lingering: int  # claims that were unprepared although their containers still run


class Metrics:
    """All metrics of this process."""

    def __init__(self, version: str) -> None:
        # metrics of the Go driver
        self._allocated = Gauge("dra_cpu_allocated_cpus", "CPUs that claims hold")
        self._available = Gauge("dra_cpu_available_cpus", "CPUs that claims can still get")
        self._reserved = Gauge("dra_cpu_reserved_cpus", "CPUs that are never offered to claims")
        self._claims = Gauge("dra_cpu_resource_claims_active", "Claims that hold CPUs on this node")
        self._prepared = Counter("dra_cpu_prepare_claims_total", "Claims prepared", "result", CLAIM_RESULTS)
        self._unprepared = Counter("dra_cpu_unprepare_claims_total", "Claims unprepared", "result", CLAIM_RESULTS)
        self._prepare_seconds = Histogram(
            "dra_cpu_prepare_claim_duration_seconds", "Time to prepare a claim successfully", _PREPARE_BUCKETS
        )
        self._claim_cpus = Histogram("dra_cpu_claim_allocated_cpus", "CPUs granted to a claim", _CPU_BUCKETS)

        # our own
        self._lingering = Gauge(
            "dra_cpu_lingering_claims",
            "Claims that were unprepared while containers or other processes of their pods ran",
        )
        self._registered = Gauge("dra_cpu_kubelet_registered", "1 if the kubelet has registered the driver, else 0")
        self._nri = Gauge("dra_cpu_nri_connected", "1 if the container runtime is connected and synchronized, else 0")
        self._slices = Gauge("dra_cpu_slices_published", "1 if the node's ResourceSlices are published, else 0")
        self._slice_errors = Counter("dra_cpu_slice_errors_total", "Failed attempts to publish ResourceSlices")
        self._writes = Counter("dra_cpu_checkpoint_writes_total", "Writes of the checkpoint", "result", RESULTS)
        self._write_seconds = Histogram(
            "dra_cpu_checkpoint_write_duration_seconds", "Time to write the checkpoint to disk", _WRITE_BUCKETS
        )
        self._hook_seconds = Histogram(
            "dra_cpu_nri_hook_duration_seconds", "Time to answer a hook of the container runtime", _HOOK_BUCKETS, "hook"
        )
        self._pushes = Counter(
            "dra_cpu_pool_pushes_total", "Updates of containers' shared CPUs sent outside of a hook", "result", RESULTS
        )
        self._cdi_repairs = Counter(
            "dra_cpu_cdi_repairs_total",
            "CDI files written again because they were missing or altered",
            "result",
            RESULTS,
        )
        self._config = Info("dra_cpu_config", "The config and settings that this node applies")
        self._build = Info("dra_cpu_build", "The agent's version")
        self._build.set(version=version)
        ours = [family for family in vars(self).values() if isinstance(family, Family)]
        self._families = (*ours, *process_families())

    def set_node(self, node: NodeGauges) -> None:
        """Sets the numbers of CPUs and claims."""
        self._allocated.set(node.allocated)
        self._available.set(node.available)
        self._reserved.set(node.reserved)
        self._claims.set(node.claims)
        self._lingering.set(node.lingering)

    def set_config(self, *, config: str, mode: str, group_by: str) -> None:
        """Sets the config and settings."""
        self._config.set(config=config, mode=mode, group_by=group_by)

    def set_kubelet_registered(self, registered: bool) -> None:
        """Sets whether the kubelet has registered the driver."""
        self._registered.set(registered)

    def set_nri_connected(self, connected: bool) -> None:
        """Sets whether the container runtime is connected and synchronized."""
        self._nri.set(connected)

    def set_slices(self, *, published: bool, failed: bool) -> None:
        """Sets whether the slices are published; `failed` counts a failed attempt."""
        self._slices.set(published)
        if failed:
            self._slice_errors.count()

    def claim_prepared(self, seconds: float, cpus: int) -> None:
        """Counts a prepared claim."""
        self._prepared.count("success")
        self._prepare_seconds.observe(seconds)
        self._claim_cpus.observe(cpus)

    def prepare_failed(self) -> None:
        """Counts a claim that could not be prepared."""
        self._prepared.count("error")

    def claim_unprepared(self, result: Result) -> None:
        """Counts an unprepared claim, or one that could not be unprepared."""
        self._unprepared.count(result)

    def checkpoint_written(self, seconds: float, result: Result) -> None:
        """Counts a write of the checkpoint, or a failure to write it."""
        self._writes.count(result)
        self._write_seconds.observe(seconds)

    def hook_answered(self, hook: str, seconds: float) -> None:
        """Records the time to answer a hook."""
        self._hook_seconds.observe(seconds, hook)

    def pool_pushed(self, result: Result) -> None:
        """Counts an update of a container's shared CPUs, or a failed one."""
        self._pushes.count(result)

    def cdi_repaired(self, result: Result) -> None:
        """Counts a CDI file that was missing or altered and was written again, or a failure to write it."""
        self._cdi_repairs.count(result)

    def render(self) -> bytes:
        """Renders all metrics in the text format of Prometheus (CONTENT_TYPE)."""
        return render(self._families)
