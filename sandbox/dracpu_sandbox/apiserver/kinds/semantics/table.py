"""Which defaults and demands belong to which built-in kind."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from dracpu_sandbox.apiserver.kinds import definitioncheck, definitions
from dracpu_sandbox.apiserver.kinds.gates import Gates
from dracpu_sandbox.apiserver.kinds.model import JsonObject, Kind
from dracpu_sandbox.apiserver.kinds.problems import Problem
from dracpu_sandbox.apiserver.kinds.semantics import claims, nulls, others, poddefaults, pods, slices

Complete = Callable[[JsonObject], JsonObject]
Gated = Callable[[JsonObject, Gates], JsonObject]
Check = Callable[[JsonObject, JsonObject | None, str], Iterator[Problem]]


def _as_it_is(item: JsonObject) -> JsonObject:
    return item


def _all_of_it(item: JsonObject, gates: Gates) -> JsonObject:
    return item


def _nothing(item: JsonObject, old: JsonObject | None, subresource: str) -> Iterator[Problem]:
    return iter(())


@dataclass(frozen=True, slots=True)
class Semantics:
    """What is filled in of a kind's objects, what feature gates leave of them, and what is wrong with them then."""

    complete: Complete = _as_it_is
    check: Check = _nothing
    gated: Gated = _all_of_it


_NONE: Final = Semantics()
_TABLE: Final[Mapping[tuple[str, str], Semantics]] = {
    ("", "ConfigMap"): Semantics(check=others.check_config_map),
    ("", "Event"): Semantics(nulls.core_event),
    ("", "Namespace"): Semantics(others.namespace_with_defaults),
    ("", "Node"): Semantics(others.node_with_defaults, others.check_node),
    ("", "Pod"): Semantics(poddefaults.pod_with_defaults, pods.check_pod),
    ("apiextensions.k8s.io", "CustomResourceDefinition"): Semantics(definitions.with_defaults, definitioncheck.check),
    ("coordination.k8s.io", "Lease"): Semantics(check=others.check_lease),
    ("events.k8s.io", "Event"): Semantics(nulls.event, others.check_event),
    ("resource.k8s.io", "DeviceClass"): Semantics(check=claims.check_class),
    ("resource.k8s.io", "ResourceClaim"): Semantics(claims.claim_with_defaults, claims.check_claim),
    ("resource.k8s.io", "ResourceClaimTemplate"): Semantics(claims.template_with_defaults, claims.check_template),
    ("resource.k8s.io", "ResourceSlice"): Semantics(slices.slice_with_defaults, slices.check_slice, slices.gated_slice),
}


def semantics_of(kind: Kind) -> Semantics:
    """What belongs to a built-in kind."""
    return _TABLE.get((kind.group, kind.kind), _NONE)
