"""The operator's metrics, for dashboards and alerts. Labels name configs, never nodes."""

from collections.abc import Callable, Mapping
from typing import Final, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4 as CONTENT_TYPE

from dracpu_operator.decide.progress import Progress

__all__ = ["CONTENT_TYPE", "Metrics"]

Result = Literal["success", "error"]
Request = Literal["create", "change", "outstanding", "mark", "delete", "read", "status", "agent"]

_PREFIX: Final = "dra_cpu_operator"
_SECONDS_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics:
    """All metrics of this process, in a registry of their own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._nodes = Gauge(
            f"{_PREFIX}_nodes",
            "Nodes that follow a config, by their state",
            ["config", "state"],
            registry=self._registry,
        )
        self._reconciles = Counter(
            f"{_PREFIX}_reconciles_total", "Reconciles of the whole cluster", ["result"], registry=self._registry
        )
        self._reconcile_seconds = Histogram(
            f"{_PREFIX}_reconcile_duration_seconds",
            "Duration of a reconcile, including its writes",
            buckets=_SECONDS_BUCKETS,
            registry=self._registry,
        )
        self._requests = Counter(
            f"{_PREFIX}_requests_total",
            "Requests that read or write one object",
            ["request", "result"],
            registry=self._registry,
        )
        self._following = Gauge(
            f"{_PREFIX}_following",
            "1 while the operator has a watch of these objects, else 0",
            ["resource"],
            registry=self._registry,
        )
        self._claims = Gauge(
            f"{_PREFIX}_followed_claims",
            "Claims with CPUs or memory that the operator follows, as nodes change devices; 0 while it follows none",
            registry=self._registry,
        )
        self._leader = Gauge(
            f"{_PREFIX}_leader", "1 if this operator leads, 0 if it stands by", registry=self._registry
        )
        ProcessCollector(registry=self._registry)

    def reconciled(self, result: Result, seconds: float) -> None:
        """Counts a reconcile."""
        self._reconciles.labels(result).inc()
        self._reconcile_seconds.observe(seconds)

    def requested(self, request: Request, result: Result) -> None:
        """Counts a request about one object."""
        self._requests.labels(request, result).inc()

    def set_leader(self, *, leads: bool) -> None:
        """Sets whether this operator leads."""
        self._leader.set(leads)

    def set_nodes(self, progress: Mapping[str, Progress]) -> None:
        """Sets the counts of nodes of all configs, and removes those of configs that are gone."""
        self._nodes.clear()
        for config, counted in progress.items():
            self._nodes.labels(config, "selected").set(counted.selected)
            self._nodes.labels(config, "applied").set(counted.applied)
            self._nodes.labels(config, "progressing").set(counted.progressing)
            self._nodes.labels(config, "failed").set(len(counted.failed))
            self._nodes.labels(config, "serving").set(counted.serving)
            self._nodes.labels(config, "down").set(len(counted.down))
            self._nodes.labels(config, "leaving").set(len(counted.leaving))
            self._nodes.labels(config, "without_agent").set(counted.without_agent)

    def show_following(self, resource: str, is_following: Callable[[], bool]) -> None:
        """Adds the gauge of a watch; `is_following` is called whenever the metrics are read."""
        self._following.labels(resource).set_function(is_following)

    def count_claims(self, count: Callable[[], float]) -> None:
        """Sets the function that counts the claims that are followed, whenever the metrics are read."""
        self._claims.set_function(count)

    def render(self) -> bytes:
        """The metrics in the text format of Prometheus."""
        return generate_latest(self._registry)
