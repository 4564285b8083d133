"""Assigns to each built-in kind the defaults and rules that its schema does not express."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from dracpu_sandbox.apiserver.kinds import definitions
from dracpu_sandbox.apiserver.kinds.gates import Gates
from dracpu_sandbox.apiserver.kinds.kind import JsonObject, Kind
from dracpu_sandbox.apiserver.kinds.problems import Problem
from dracpu_sandbox.apiserver.kinds.semantics import claims, others, poddefaults, pods, slices

Complete = Callable[[JsonObject], JsonObject]
Gated = Callable[[JsonObject, Gates], JsonObject]
Check = Callable[[JsonObject, JsonObject | None, str], Iterator[Problem]]  # new, old, subresource


def _unchanged(item: JsonObject) -> JsonObject:
    return item


def _ungated(item: JsonObject, gates: Gates) -> JsonObject:
    return item


def _no_rules(item: JsonObject, old: JsonObject | None, subresource: str) -> Iterator[Problem]:
    return iter(())


@dataclass(frozen=True, slots=True)
class Semantics:
    """The functions that complete a kind's objects, check them, and drop fields whose feature gates are off."""

    complete: Complete = _unchanged
    check: Check = _no_rules
    gated: Gated = _ungated


_NONE: Final = Semantics()
_TABLE: Final[Mapping[str, Semantics]] = {  # by resource
    "events": Semantics(others.core_event_with_defaults),
    "namespaces": Semantics(others.namespace_with_defaults),
    "nodes": Semantics(others.node_with_defaults),
    "pods": Semantics(poddefaults.pod_with_defaults, pods.check_pod),
    "customresourcedefinitions.apiextensions.k8s.io": Semantics(definitions.with_defaults, definitions.check),
    "leases.coordination.k8s.io": Semantics(check=others.check_lease),
    "events.events.k8s.io": Semantics(others.event_with_defaults, others.check_event),
    "deviceclasses.resource.k8s.io": Semantics(claims.class_with_defaults, claims.check_class),
    "resourceclaims.resource.k8s.io": Semantics(claims.claim_with_defaults, claims.check_claim, claims.gated_claim),
    "resourceclaimtemplates.resource.k8s.io": Semantics(
        claims.template_with_defaults, claims.check_template, claims.gated_template
    ),
    "resourceslices.resource.k8s.io": Semantics(slices.slice_with_defaults, slices.check_slice, slices.gated_slice),
}


def semantics_of(kind: Kind) -> Semantics:
    """Returns the functions of a kind; those of a custom kind do nothing."""
    return _TABLE.get(kind.resource, _NONE)
