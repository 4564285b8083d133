"""What the agent counts and measures. Names and meanings up to the first blank line of `Metrics` are those of the Go
driver, so that its dashboards work; the others tell an on-call person which part of the node is in trouble.

There are no labels for namespaces, pods, claims, devices or nodes: their number has no limit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4 as CONTENT_TYPE

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
    """All metrics of this process, in a registry of their own."""

    def __init__(self, version: str) -> None:
        # without it, each counter has a second series that nobody reads
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        self._allocated = self._gauge("allocated_cpus", "CPUs that claims hold")
        self._available = self._gauge("available_cpus", "CPUs that claims could still get")
        self._reserved = self._gauge("reserved_cpus", "CPUs that are never offered to claims")
        self._claims = self._gauge("resource_claims_active", "Claims that hold CPUs on this node")
        self._prepared = self._counter("prepare_claims_total", "Claims prepared", "result", CLAIM_RESULTS)
        self._unprepared = self._counter("unprepare_claims_total", "Claims unprepared", "result", CLAIM_RESULTS)
        self._prepare_seconds = self._histogram(
            "prepare_claim_duration_seconds", "Time to prepare one claim", _PREPARE_BUCKETS
        )
        self._claim_cpus = self._histogram("claim_allocated_cpus", "CPUs given to one claim", _CPU_BUCKETS)

        self._lingering = self._gauge("lingering_claims", "Claims that were unprepared while their containers ran on")
        self._registered = self._gauge("kubelet_registered", "1 when the kubelet has registered the driver")
        self._nri = self._gauge("nri_connected", "1 when the container runtime has synchronised with the agent")
        self._slices = self._gauge("slices_published", "1 when the ResourceSlices are as they should be")
        self._slice_errors = Counter(
            "dra_cpu_slice_errors_total", "ResourceSlices that could not be published", registry=self._registry
        )
        self._writes = self._counter("checkpoint_writes_total", "Checkpoints written to disk", "result", RESULTS)
        self._write_seconds = self._histogram(
            "checkpoint_write_duration_seconds", "Time to get one checkpoint onto the disk", _WRITE_BUCKETS
        )
        self._hook_seconds = Histogram(
            "dra_cpu_nri_hook_duration_seconds",
            "Time to answer the container runtime",
            ("hook",),
            buckets=_HOOK_BUCKETS,
            registry=self._registry,
        )
        self._pushes = self._counter(
            "pool_pushes_total", "Containers whose shared CPUs were changed outside of a hook", "result", RESULTS
        )
        self._config = Info("dra_cpu_config", "The settings that this node serves", registry=self._registry)
        Info("dra_cpu_build", "The agent", registry=self._registry).info({"version": version})
        ProcessCollector(registry=self._registry)  # memory, CPU time, open files, start time

    def set_node(self, node: NodeGauges) -> None:
        """The node has changed."""
        self._allocated.set(node.allocated)
        self._available.set(node.available)
        self._reserved.set(node.reserved)
        self._claims.set(node.claims)
        self._lingering.set(node.lingering)

    def set_config(self, *, config: str, mode: str, group_by: str) -> None:
        """The settings have changed."""
        self._config.info({"config": config, "mode": mode, "group_by": group_by})

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
            self._slice_errors.inc()

    def claim_prepared(self, seconds: float, cpus: int) -> None:
        """A claim is ready."""
        self._prepared.labels("success").inc()
        self._prepare_seconds.observe(seconds)
        self._claim_cpus.observe(cpus)

    def prepare_failed(self) -> None:
        """A claim could not be prepared."""
        self._prepared.labels("error").inc()

    def claim_unprepared(self, result: Result) -> None:
        """A claim has ended, or could not be ended."""
        self._unprepared.labels(result).inc()

    def checkpoint_written(self, seconds: float, result: Result) -> None:
        """A checkpoint is on the disk, or could not be written."""
        self._writes.labels(result).inc()
        self._write_seconds.observe(seconds)

    def hook_answered(self, hook: str, seconds: float) -> None:
        """The container runtime has its answer."""
        self._hook_seconds.labels(hook).observe(seconds)

    def pool_pushed(self, result: Result) -> None:
        """One container was moved to the shared CPUs of now, or could not be."""
        self._pushes.labels(result).inc()

    def render(self) -> bytes:
        """Everything, in the text format that Prometheus scrapes (CONTENT_TYPE)."""
        return generate_latest(self._registry)

    def _gauge(self, name: str, summary: str) -> Gauge:
        return Gauge(f"dra_cpu_{name}", summary, registry=self._registry)

    def _counter(self, name: str, summary: str, label: str, values: Sequence[str]) -> Counter:
        """All its series stand from the start: a rate over a series that is born with 1 misses the first event."""
        counter = Counter(f"dra_cpu_{name}", summary, (label,), registry=self._registry)
        for value in values:
            counter.labels(value)
        return counter

    def _histogram(self, name: str, summary: str, buckets: Sequence[float]) -> Histogram:
        return Histogram(f"dra_cpu_{name}", summary, buckets=buckets, registry=self._registry)
