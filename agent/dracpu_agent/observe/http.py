"""The pages of the agent: /healthz, /readyz and /metrics, for the kubelet's probes and for Prometheus."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Protocol

from dracpu_agent.observe.metrics import CONTENT_TYPE, Metrics
from dracpu_api.serving.pages import Answer, Page, probe_page


class Health(Protocol):
    """Provides the agent's health as lists of reasons; an empty list means healthy."""

    def live(self) -> list[str]:
        """Reasons to restart the agent."""
        ...

    def ready(self) -> list[str]:
        """Reasons why no claim can be prepared at the moment."""
        ...


def pages(health: Health, metrics: Metrics) -> Mapping[str, Page]:
    """The pages by path."""
    return {
        "/healthz": probe_page(health.live),
        "/readyz": probe_page(health.ready),
        "/metrics": lambda: Answer(HTTPStatus.OK, metrics.render(), CONTENT_TYPE),
    }
