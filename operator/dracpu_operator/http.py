"""The pages of the operator: /healthz, /readyz and /metrics, for the kubelet's probes and for Prometheus."""

from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus

from dracpu_api.serving.pages import Answer, Page, probe_page
from dracpu_operator.metrics import CONTENT_TYPE, Metrics

Reasons = Callable[[], Sequence[str]]  # why a probe fails; it succeeds when there are none


def pages(*, live: Reasons, ready: Reasons, metrics: Metrics) -> Mapping[str, Page]:
    """The pages by path."""
    return {
        "/healthz": probe_page(live),
        "/readyz": probe_page(ready),
        "/metrics": lambda: Answer(HTTPStatus.OK, metrics.render(), CONTENT_TYPE),
    }
