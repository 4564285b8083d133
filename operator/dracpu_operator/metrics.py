"""What the operator counts and measures, for dashboards and alerts. Labels name configs, never nodes."""

from collections.abc import Mapping
from typing import Final, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4 as CONTENT_TYPE

from dracpu_operator.decide.summary import Progress

__all__ = ["CONTENT_TYPE", "Metrics"]

Result = Literal["success", "error"]
Request = Literal["create", "change", "outstanding", "delete", "read", "status"]

_PREFIX: Final = "dra_cpu_operator"
_SECONDS_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics:
    """All metrics of this process, in a registry of their own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._nodes = Gauge(f"{_PREFIX}_nodes", "Nodes of a config", ["config", "state"], registry=self._registry)
        self._passes = Counter(
            f"{_PREFIX}_reconciles_total", "Looks at the whole fleet", ["result"], registry=self._registry
        )
        self._pass_seconds = Histogram(
            f"{_PREFIX}_reconcile_duration_seconds",
            "Time of one look, its writes included",
            buckets=_SECONDS_BUCKETS,
            registry=self._registry,
        )
        self._requests = Counter(
            f"{_PREFIX}_requests_total", "Requests about single objects", ["request", "result"], registry=self._registry
        )
        ProcessCollector(registry=self._registry)

    def reconciled(self, result: Result, seconds: float) -> None:
        """One look at the fleet is over."""
        self._passes.labels(result).inc()
        self._pass_seconds.observe(seconds)

    def asked(self, request: Request, result: Result) -> None:
        """An object was written or read, or could not be."""
        self._requests.labels(request, result).inc()

    def show(self, progress: Mapping[str, Progress]) -> None:
        """The configs there are; those that are gone go."""
        self._nodes.clear()
        for config, one in progress.items():
            self._nodes.labels(config, "selected").set(one.selected)
            self._nodes.labels(config, "applied").set(one.applied)
            self._nodes.labels(config, "progressing").set(one.progressing)
            self._nodes.labels(config, "failed").set(len(one.failed))

    def render(self) -> bytes:
        """The text that Prometheus reads."""
        return generate_latest(self._registry)
