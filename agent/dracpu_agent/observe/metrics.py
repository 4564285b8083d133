"""What the agent counts and measures. Names and meanings up to the first blank line of `Metrics` are those of the Go
driver, so that its dashboards work; the others tell an on-call person which part of the node is in trouble.

There are no labels for namespaces, pods, claims, devices or nodes: their number has no limit.
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
CLAIM_RESULTS: Final = (*RESULTS, "unknown")  # unknown: the Go driver's; it stays 0 here, as every claim has an end

_PREPARE_BUCKETS: Final = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40)
_WRITE_BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 20)
_HOOK_BUCKETS: Final = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2)
_CPU_BUCKETS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)


@dataclass(frozen=True, slots=True)
class NodeGauges:
    """The node in numbers."""

    allocated: int  # CPUs that claims hold, lingering ones included
    available: int  # CPUs that a claim could still get
    reserved: int
    claims: int
    lingering: int  # claims that the kubelet gave up, but whose containers run on


class Metrics:
    """All metrics of this process."""

    def __init__(self, version: str) -> None:
        # without it, each counter has a second series that nobody reads
        self._allocated = Gauge("dra_cpu_allocated_cpus", "CPUs that claims hold")
        self._available = Gauge("dra_cpu_available_cpus", "CPUs that claims could still get")
        self._reserved = Gauge("dra_cpu_reserved_cpus", "CPUs that are never offered to claims")
        self._claims = Gauge("dra_cpu_resource_claims_active", "Claims that hold CPUs on this node")
        self._prepared = Counter("dra_cpu_prepare_claims_total", "Claims prepared", "result", CLAIM_RESULTS)
        self._unprepared = Counter("dra_cpu_unprepare_claims_total", "Claims unprepared", "result", CLAIM_RESULTS)
        self._prepare_seconds = Histogram(
            "dra_cpu_prepare_claim_duration_seconds", "Time to prepare one claim, failures included", _PREPARE_BUCKETS
        )
        self._claim_cpus = Histogram("dra_cpu_claim_allocated_cpus", "CPUs given to one claim", _CPU_BUCKETS)

        self._lingering = Gauge("dra_cpu_lingering_claims", "Claims that were unprepared while their containers ran on")
        self._registered = Gauge("dra_cpu_kubelet_registered", "1 when the kubelet has registered the driver")
        self._nri = Gauge("dra_cpu_nri_connected", "1 when the container runtime has synchronised with the agent")
        self._slices = Gauge("dra_cpu_slices_published", "1 when the ResourceSlices are as they should be")
        self._slice_errors = Counter("dra_cpu_slice_errors_total", "ResourceSlices that could not be published")
        self._writes = Counter("dra_cpu_checkpoint_writes_total", "Checkpoints written to disk", "result", RESULTS)
        self._write_seconds = Histogram(
            "dra_cpu_checkpoint_write_duration_seconds", "Time to get one checkpoint onto the disk", _WRITE_BUCKETS
        )
        self._hook_seconds = Histogram(
            "dra_cpu_nri_hook_duration_seconds", "Time to answer the container runtime", _HOOK_BUCKETS, "hook"
        )
        self._pushes = Counter(
            "dra_cpu_pool_pushes_total",
            "Containers whose shared CPUs were changed without a hook",
            "result",
            RESULTS,
        )
        self._config = Info("dra_cpu_config", "The settings that this node serves")
        self._build = Info("dra_cpu_build", "The agent")
        self._build.show(version=version)
        ours = [family for family in vars(self).values() if isinstance(family, Family)]
        self._families = (*ours, *process_families())

    def set_node(self, node: NodeGauges) -> None:
        """The node has changed."""
        self._allocated.set(node.allocated)
        self._available.set(node.available)
        self._reserved.set(node.reserved)
        self._claims.set(node.claims)
        self._lingering.set(node.lingering)

    def set_config(self, *, config: str, mode: str, group_by: str) -> None:
        """The settings have changed."""
        self._config.show(config=config, mode=mode, group_by=group_by)

    def set_kubelet_registered(self, registered: bool) -> None:
        """The kubelet has (un)registered the driver."""
        self._registered.set(registered)

    def set_nri_connected(self, connected: bool) -> None:
        """The connection to the container runtime came or went."""
        self._nri.set(connected)

    def set_slices(self, *, published: bool, failed: bool) -> None:
        """The slices have a new state; `failed` when an attempt to publish them has just gone wrong."""
        self._slices.set(published)
        if failed:
            self._slice_errors.count()

    def claim_prepared(self, seconds: float, cpus: int) -> None:
        """A claim is ready."""
        self._prepared.count("success")
        self._prepare_seconds.observe(seconds)
        self._claim_cpus.observe(cpus)

    def prepare_failed(self) -> None:
        """A claim could not be prepared."""
        self._prepared.count("error")

    def claim_unprepared(self, result: Result) -> None:
        """A claim has ended, or could not be ended."""
        self._unprepared.count(result)

    def checkpoint_written(self, seconds: float, result: Result) -> None:
        """A checkpoint is on the disk, or could not be written."""
        self._writes.count(result)
        self._write_seconds.observe(seconds)

    def hook_answered(self, hook: str, seconds: float) -> None:
        """The container runtime has its answer."""
        self._hook_seconds.observe(seconds, hook)

    def pool_pushed(self, result: Result) -> None:
        """One container was moved to the shared CPUs of now, or could not be."""
        self._pushes.count(result)

    def render(self) -> bytes:
        """Everything, in the text format that Prometheus scrapes (CONTENT_TYPE)."""
        return render(self._families)
