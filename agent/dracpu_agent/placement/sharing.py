"""Finds the containers that share a claim."""

from collections.abc import Iterable
from typing import NamedTuple

from dracpu_agent.placement.container import Container
from dracpu_agent.placement.proof import Use


class Sharer(NamedTuple):
    """A container and its part in claims."""

    container: Container
    uses: frozenset[Use]


def sharers(
    container: Container, uses: frozenset[Use], known: Iterable[tuple[Container, frozenset[Use]]]
) -> list[Sharer]:
    """The known containers that use one of the claims of a new one. A container that the new one replaces in its pod is
    not among them."""
    claims, place = {use.claim for use in uses}, (container.pod_uid, container.name)
    return [
        Sharer(other, used)
        for other, used in known
        if any(use.claim in claims for use in used) and (other.pod_uid, other.name) != place
    ]
