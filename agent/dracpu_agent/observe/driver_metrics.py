"""The metrics that every driver of the agent has: claims, registration, slices and CDI files."""

from collections.abc import Iterator, Sequence
from typing import Final, Literal

from dracpu_agent.observe.exposition import Counter, Family, Gauge, Histogram

Result = Literal["success", "error"]
RESULTS: Final[Sequence[Result]] = ("success", "error")
CLAIM_RESULTS: Final = (*RESULTS, "unknown")  # `unknown` exists in the Go driver; here it stays 0

_PREPARE_BUCKETS: Final = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40)


class DriverMetrics:
    """The metrics of one driver; their names begin with the driver's name."""

    def __init__(self, driver: str, sizes: Histogram | None = None) -> None:
        """`sizes` observes what each claim is granted, in the driver's own unit."""
        prefix = driver.replace(".", "_").replace("-", "_")
        self._sizes = sizes
        # metrics of the Go driver
        self._claims = Gauge(f"{prefix}_resource_claims_active", "Claims that are held on this node")
        self._prepared = Counter(f"{prefix}_prepare_claims_total", "Claims prepared", "result", CLAIM_RESULTS)
        self._unprepared = Counter(f"{prefix}_unprepare_claims_total", "Claims unprepared", "result", CLAIM_RESULTS)
        self._prepare_seconds = Histogram(
            f"{prefix}_prepare_claim_duration_seconds", "Time to prepare a claim successfully", _PREPARE_BUCKETS
        )
        # our own
        self._lingering = Gauge(
            f"{prefix}_lingering_claims",
            "Claims that were unprepared while containers or other processes of their pods ran",
        )
        self._registered = Gauge(f"{prefix}_kubelet_registered", "1 if the kubelet has registered the driver, else 0")
        self._slices = Gauge(f"{prefix}_slices_published", "1 if the node's ResourceSlices are published, else 0")
        self._slice_errors = Counter(f"{prefix}_slice_errors_total", "Failed attempts to publish ResourceSlices")
        self._cdi_repairs = Counter(
            f"{prefix}_cdi_repairs_total",
            "CDI files written again because they were missing or altered",
            "result",
            RESULTS,
        )

    def families(self) -> Iterator[Family]:
        """All of them, in the order in which they are shown."""
        yield from (family for family in vars(self).values() if isinstance(family, Family))

    def set_claims(self, held: int, lingering: int) -> None:
        """Sets the numbers of claims."""
        self._claims.set(held)
        self._lingering.set(lingering)

    def set_kubelet_registered(self, registered: bool) -> None:
        """Sets whether the kubelet has registered the driver."""
        self._registered.set(registered)

    def set_slices(self, *, published: bool, failed: bool) -> None:
        """Sets whether the slices are published; `failed` counts a failed attempt."""
        self._slices.set(published)
        if failed:
            self._slice_errors.count()

    def claim_prepared(self, seconds: float, size: float) -> None:
        """Counts a prepared claim."""
        self._prepared.count("success")
        self._prepare_seconds.observe(seconds)
        if self._sizes is not None:
            self._sizes.observe(size)

    def prepare_failed(self) -> None:
        """Counts a claim that could not be prepared."""
        self._prepared.count("error")

    def claim_unprepared(self, result: Result) -> None:
        """Counts an unprepared claim, or one that could not be unprepared."""
        self._unprepared.count(result)

    def cdi_repaired(self, result: Result) -> None:
        """Counts a CDI file that was missing or altered and was written again, or a failure to write it."""
        self._cdi_repairs.count(result)
