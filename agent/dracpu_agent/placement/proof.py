"""Finds the claims that a container belongs to, or refuses a container that cannot prove its claim.

The CDI devices that the runtime passes on come from the kubelet and cannot be forged by a pod. A runtime that does not
pass them leaves the environment, which a pod can write: there a name counts only together with the exact value, the
claim's namespace and a pod that the claim is reserved for.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from dracpu_agent.errors import PlacementError
from dracpu_agent.placement.container import Container
from dracpu_api.names import DriverNames


@dataclass(frozen=True, slots=True)
class CdiDevice:
    """A device that gives a container one use of a claim, by variables of its environment."""

    name: str  # qualified: kind=name
    variables: tuple[tuple[str, str], ...]  # names and values


class Claim(Protocol):
    """The part of a held claim that this room uses."""

    @property
    def namespace(self) -> str:
        """Claims are used in their own namespace only."""

    @property
    def consumers(self) -> frozenset[str]:
        """UIDs of the pods that the claim is reserved for."""

    @property
    def serves_one_pod(self) -> bool:
        """True where a second pod must not use the claim while the first one does."""

    def cdi_devices(self) -> Iterator[CdiDevice]:
        """One for each use."""


class ClaimKey(NamedTuple):
    """A claim of one driver; another driver may hold devices of the same claim."""

    driver: str
    uid: str


@dataclass(frozen=True, slots=True)
class Use:
    """A container's part in a claim."""

    claim: ClaimKey
    cdi_device: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """The marks of a container that the kubelet has given one use of a claim."""

    use: Use
    variables: tuple[tuple[str, str], ...]
    namespace: str
    consumers: frozenset[str]
    serves_one_pod: bool


class Evidences:
    """The evidence for every use of every held claim, by what containers carry."""

    def __init__(
        self, held: Sequence[tuple[DriverNames, Mapping[str, Claim]]], former: "Evidences | None" = None
    ) -> None:
        """Takes over what `former` has of claims that have not changed since."""
        known = former._of_claim if former else {}
        self.kinds = tuple(f"{driver.cdi_kind}=" for driver, _ in held)
        self.prefixes = tuple(driver.variables for driver, _ in held)
        self.by_device: dict[str, Evidence] = {}
        self.by_variable: dict[str, tuple[Evidence, str]] = {}  # with the variable's value
        self._of_claim: dict[ClaimKey, tuple[Claim, tuple[Evidence, ...]]] = {}
        for key, claim in (
            (ClaimKey(names.driver, uid), claim) for names, claims in held for uid, claim in claims.items()
        ):
            entry = known.get(key)
            if entry is None or entry[0] is not claim:  # a claim is replaced when it changes
                entry = claim, tuple(_evidences_of(key, claim))
            self._of_claim[key] = entry
            for evidence in entry[1]:
                self.by_device[evidence.use.cdi_device] = evidence
                self.by_variable |= {name: (evidence, value) for name, value in evidence.variables}


def _evidences_of(key: ClaimKey, claim: Claim) -> Iterator[Evidence]:
    for device in claim.cdi_devices():
        use = Use(key, device.name)
        yield Evidence(use, device.variables, claim.namespace, claim.consumers, claim.serves_one_pod)


class UnprovenError(PlacementError):
    """A container carries the name of a claim that it cannot prove to hold."""


class UnknownConsumerError(UnprovenError):
    """Only the pod does not fit: it may have joined the claim after Prepare, so the claim should be read again."""

    def __init__(self, claim: ClaimKey, message: str) -> None:
        super().__init__(message)
        self.claim = claim


def uses_of(container: Container, evidences: Evidences, *, cdi_is_passed: bool) -> frozenset[Use]:
    """The claims that the container belongs to, none for a container without claims."""
    devices = [device for device in container.cdi_devices if device.startswith(evidences.kinds)]
    proven = [_proven_by_cdi(device, evidences) for device in devices]
    variables = [entry.partition("=")[::2] for entry in container.env if entry.startswith(evidences.prefixes)]
    if proven or cdi_is_passed:
        _check_variables(container, variables, proven, _rule(evidences))
        return frozenset(evidence.use for evidence in proven)
    return frozenset(_proven_by_variable(container, name, value, evidences) for name, value in variables)


def check_consumers(container: Container, uses: frozenset[Use], evidences: Evidences) -> None:
    """Refuses a container that is about to be created in another pod than the one that its claim serves.

    The kubelet gives a claim to every pod that it is reserved for. Of some claims, a second pod could take what the
    first one was promised."""
    for use in sorted(uses, key=lambda use: use.cdi_device):
        evidence = evidences.by_device.get(use.cdi_device)
        if evidence and evidence.serves_one_pod and container.pod_uid not in evidence.consumers:
            raise UnknownConsumerError(
                use.claim, f"pod {container.pod_name} is not the pod that the claim of {use.cdi_device} serves"
            )


def _proven_by_cdi(device: str, evidences: Evidences) -> Evidence:
    evidence = evidences.by_device.get(device)
    if evidence is None:
        raise UnprovenError(f"{device} is not prepared on this node: what it holds is not known")
    return evidence


def _check_variables(
    container: Container, variables: Iterable[tuple[str, str]], proven: Iterable[Evidence], rule: str
) -> None:
    """Refuses variables that the container's CDI devices did not set."""
    expected = dict(variable for evidence in proven for variable in evidence.variables)
    for name, value in variables:
        if name not in expected:
            raise UnprovenError(
                f"container {container.name} sets {name}, but the kubelet gave it no such claim: {rule}"
            )
        if value != expected[name]:
            raise UnprovenError(
                f'container {container.name} sets {name} to "{value}", its claim holds "{expected[name]}": {rule}'
            )


def _rule(evidences: Evidences) -> str:
    return f"pods must not set variables that start with {' or '.join(evidences.prefixes)}"


def _proven_by_variable(container: Container, name: str, value: str, evidences: Evidences) -> Use:
    evidence, expected = evidences.by_variable.get(name, (None, ""))
    if evidence is None or evidence.namespace != container.namespace or value != expected:
        raise UnprovenError(
            f'container {container.name} sets {name}="{value}", which is not a claim prepared for its namespace: '
            f"{_rule(evidences)}"
        )
    if container.pod_uid not in evidence.consumers:
        raise UnknownConsumerError(
            evidence.use.claim, f"pod {container.pod_name} is not among the pods of the claim in {name}"
        )
    return evidence.use
