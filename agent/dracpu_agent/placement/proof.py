"""Finds the claims that a container belongs to, or refuses a container that cannot prove its claim.

The CDI devices that the runtime passes on come from the kubelet and cannot be forged by a pod. A runtime that does not
pass them leaves the environment, which a pod can write: there a name counts only together with the exact cpuset, the
claim's namespace and a pod that the claim is reserved for.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from dracpu_agent.errors import PlacementError
from dracpu_agent.placement.container import Container
from dracpu_api import names
from dracpu_api.cpuset import CpuSet

_RESERVED: Final = f"pods must not set variables that start with {names.CDI_ENV_PREFIX}"


class Claim(Protocol):
    """The part of a held claim that this room uses."""

    @property
    def namespace(self) -> str:
        """Claims are used in their own namespace only."""

    @property
    def consumers(self) -> frozenset[str]:
        """UIDs of the pods that the claim is reserved for."""

    def cdi_devices(self) -> Iterator[tuple[str, str, CpuSet]]:
        """CDI device, environment variable and CPUs of each use."""


@dataclass(frozen=True, slots=True)
class Use:
    """A container's part in a claim."""

    claim_uid: str
    cdi_device: str  # without the kind


@dataclass(frozen=True, slots=True)
class Evidence:
    """The marks of a container that the kubelet has given one use of a claim."""

    use: Use
    env: str
    cpus: CpuSet
    namespace: str
    consumers: frozenset[str]


class Evidences:
    """The evidence for every use of every held claim, by what containers carry."""

    def __init__(self, claims: Mapping[str, Claim], former: "Evidences | None" = None) -> None:
        """Takes over what `former` has of claims that have not changed since."""
        known = former._of_claim if former else {}
        self.by_device: dict[str, Evidence] = {}
        self.by_env: dict[str, Evidence] = {}
        self._of_claim: dict[str, tuple[Claim, tuple[Evidence, ...]]] = {}
        for uid, claim in claims.items():
            entry = known.get(uid)
            if entry is None or entry[0] is not claim:  # a claim is replaced when it changes
                entry = claim, tuple(_evidences_of(uid, claim))
            self._of_claim[uid] = entry
            for evidence in entry[1]:
                self.by_device[evidence.use.cdi_device] = evidence
                self.by_env[evidence.env] = evidence


def _evidences_of(uid: str, claim: Claim) -> Iterator[Evidence]:
    for device, env, cpus in claim.cdi_devices():
        yield Evidence(Use(uid, device), env, cpus, claim.namespace, claim.consumers)


class UnprovenError(PlacementError):
    """A container carries the name of a claim that it cannot prove to hold."""


class UnknownConsumerError(UnprovenError):
    """Only the pod does not fit: it may have joined the claim after Prepare, so the claim should be read again."""

    def __init__(self, claim_uid: str, message: str) -> None:
        super().__init__(message)
        self.claim_uid = claim_uid


def uses_of(container: Container, evidences: Evidences, *, cdi_is_passed: bool) -> frozenset[Use]:
    """The claims that the container belongs to, none for a container without claims."""
    proven = [_proven_by_cdi(device, evidences) for device in _our_cdi_devices(container)]
    variables = [entry.partition("=")[::2] for entry in container.env if entry.startswith(names.CDI_ENV_PREFIX)]
    if proven or cdi_is_passed:
        _check_variables(container, variables, proven)
        return frozenset(evidence.use for evidence in proven)
    return frozenset(_proven_by_env(container, name, value, evidences) for name, value in variables)


def _our_cdi_devices(container: Container) -> Iterator[str]:
    prefix = f"{names.CDI_KIND}="
    return (device.removeprefix(prefix) for device in container.cdi_devices if device.startswith(prefix))


def _proven_by_cdi(device: str, evidences: Evidences) -> Evidence:
    evidence = evidences.by_device.get(device)
    if evidence is None:
        raise UnprovenError(f"{names.CDI_KIND}={device} is not prepared on this node: its CPUs are not known")
    return evidence


def _check_variables(container: Container, variables: Iterable[tuple[str, str]], proven: Iterable[Evidence]) -> None:
    """Refuses variables that the container's CDI devices did not set."""
    expected = {evidence.env: str(evidence.cpus) for evidence in proven}
    for name, value in variables:
        if name not in expected:
            raise UnprovenError(
                f"container {container.name} sets {name}, but the kubelet gave it no such claim: {_RESERVED}"
            )
        if value != expected[name]:
            raise UnprovenError(
                f'container {container.name} sets {name} to "{value}", its claim holds "{expected[name]}": {_RESERVED}'
            )


def _proven_by_env(container: Container, name: str, value: str, evidences: Evidences) -> Use:
    evidence = evidences.by_env.get(name)
    if evidence is None or evidence.namespace != container.namespace or value != str(evidence.cpus):
        raise UnprovenError(
            f'container {container.name} sets {name}="{value}", which is not a claim prepared for its namespace: '
            f"{_RESERVED}"
        )
    if container.pod_uid not in evidence.consumers:
        raise UnknownConsumerError(
            evidence.use.claim_uid, f"pod {container.pod_name} is not among the pods of the claim in {name}"
        )
    return evidence.use
