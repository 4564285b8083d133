"""The agent's metrics. Those with the names and meanings of the Go driver's metrics let its dashboards work; the others
show an on-call person which part of the node fails.

There are no labels for namespaces, pods, claims, devices or nodes, as their number has no limit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dracpu_agent.observe.driver_metrics import RESULTS, DriverMetrics, Result
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
from dracpu_api import names

__all__ = ["CONTENT_TYPE", "DriverMetrics", "Metrics", "NodeGauges", "Result"]

_WRITE_BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 20)
_HOOK_BUCKETS: Final = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2)
_CPU_BUCKETS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)


@dataclass(frozen=True, slots=True)
class NodeGauges:
    """The numbers of CPUs on the node."""

    allocated: int  # that claims hold, including lingering claims
    available: int  # that claims can still get
    reserved: int


class Metrics:
    """All metrics of this process."""

    def __init__(self, version: str, drivers: Sequence[str] = (names.DRIVER,)) -> None:
        # metrics of the Go driver
        self._allocated = Gauge("dra_cpu_allocated_cpus", "CPUs that claims hold")
        self._available = Gauge("dra_cpu_available_cpus", "CPUs that claims can still get")
        self._reserved = Gauge("dra_cpu_reserved_cpus", "CPUs that are never offered to claims")
        self._claim_cpus = Histogram("dra_cpu_claim_allocated_cpus", "CPUs granted to a claim", _CPU_BUCKETS)

        # our own
        self._nri = Gauge("dra_cpu_nri_connected", "1 if the container runtime is connected and synchronized, else 0")
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
        self._config = Info("dra_cpu_config", "The config and settings that this node applies")
        self._build = Info("dra_cpu_build", "The agent's version")
        self._build.set(version=version)
        ours = [family for family in vars(self).values() if isinstance(family, Family)]
        sizes = {names.DRIVER: self._claim_cpus}
        self.drivers = {driver: DriverMetrics(driver, sizes.get(driver)) for driver in drivers}
        of_drivers = (family for driver in self.drivers.values() for family in driver.families())
        self._families = tuple(dict.fromkeys([*ours, *of_drivers, *process_families()]))

    def add(self, *families: Family) -> None:
        """Adds what a driver shows besides."""
        self._families += families

    def set_node(self, node: NodeGauges) -> None:
        """Sets the numbers of CPUs."""
        self._allocated.set(node.allocated)
        self._available.set(node.available)
        self._reserved.set(node.reserved)

    def set_config(self, *, config: str, mode: str, group_by: str) -> None:
        """Sets the config and settings."""
        self._config.set(config=config, mode=mode, group_by=group_by)

    def set_nri_connected(self, connected: bool) -> None:
        """Sets whether the container runtime is connected and synchronized."""
        self._nri.set(connected)

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

    def render(self) -> bytes:
        """Renders all metrics in the text format of Prometheus (CONTENT_TYPE)."""
        return render(self._families)
