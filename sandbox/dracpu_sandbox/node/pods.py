"""Which containers of a pod must be started, and the pod's phase: computed from the pod object and its containers."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Literal

from dracpu_sandbox.node.programs import Program, program_of
from dracpu_sandbox.resources import MIRROR_ANNOTATION, JsonObject

HOLD_ANNOTATION: Final = "sandbox.dra.cpu/hold"  # a pod that bears it is not started yet
EXTENDED: Final = "extended-resources"  # what we call the claim that a pod's extended resources have become

Phase = Literal["Pending", "Running", "Succeeded", "Failed"]


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """A container of a pod's spec."""

    name: str
    image: str
    program: Program
    env: tuple[str, ...]  # the literal ones
    claims: tuple[tuple[str, str], ...]  # name in the pod, request ("": all)
    restart: str  # Always, OnFailure, Never
    is_init: bool = False
    is_sidecar: bool = False  # an init container that is not waited for


@dataclass(frozen=True)
class Pod:
    """A pod object, and what the kubelet reads from it."""

    object: JsonObject

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return str(self.object["metadata"]["namespace"])

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.object["metadata"]["name"])

    @property
    def uid(self) -> str:
        """Its UID, which differs from that of a former pod of its name."""
        return str(self.object["metadata"]["uid"])

    @property
    def deleted(self) -> bool:
        """Whether it is to end."""
        return bool(self.object["metadata"].get("deletionTimestamp"))

    @property
    def is_held(self) -> bool:
        """Whether it is not to be started yet, as while a volume of it is not mounted."""
        return HOLD_ANNOTATION in (self.object["metadata"].get("annotations") or {})

    @property
    def is_mirror(self) -> bool:
        """Whether it mirrors something that runs without it, as the pods of agents do."""
        return MIRROR_ANNOTATION in (self.object["metadata"].get("annotations") or {})

    @property
    def status(self) -> JsonObject:
        """Its status."""
        return self.object.get("status") or {}

    @cached_property
    def containers(self) -> tuple[ContainerSpec, ...]:
        """All of them, in the order in which they start."""
        spec = self.object["spec"]
        policy = str(spec.get("restartPolicy") or "Always")
        init = [_container(item, policy, is_init=True) for item in spec.get("initContainers") or ()]
        return (*init, *(_container(item, policy) for item in spec["containers"]))

    def container(self, name: str) -> ContainerSpec:
        """One of them."""
        return next(container for container in self.containers if container.name == name)

    @cached_property
    def claims(self) -> Mapping[str, str]:
        """Claims by their names in the pod -> names of the objects; "" for one that is not made yet.

        A template's claim stands in the status, and so does the one that extended resources have become.
        """
        made = {
            status["name"]: status.get("resourceClaimName") for status in self.status.get("resourceClaimStatuses") or ()
        }
        found: dict[str, str] = {}
        for entry in self.object["spec"].get("resourceClaims") or ():
            if entry.get("resourceClaimName"):
                found[entry["name"]] = entry["resourceClaimName"]
            elif entry["name"] not in made:
                found[entry["name"]] = ""
            elif made[entry["name"]]:  # a template may have decided that no claim is needed
                found[entry["name"]] = made[entry["name"]] or ""
        if extended := self.status.get("extendedResourceClaimStatus"):
            found[EXTENDED] = extended["resourceClaimName"]
        return found

    def claims_of(self, container: ContainerSpec) -> tuple[tuple[str, str], ...]:
        """What a container gets: name of the claim in the pod, request."""
        mappings = (self.status.get("extendedResourceClaimStatus") or {}).get("requestMappings") or ()
        extended = tuple(
            (EXTENDED, mapping["requestName"]) for mapping in mappings if mapping["containerName"] == container.name
        )
        return container.claims + extended


@dataclass(frozen=True, slots=True)
class Run:
    """The state of a container, through all its restarts."""

    state: Literal["waiting", "running", "ended"] = "waiting"
    id: str = ""  # of the runtime's container, the newest one
    restarts: int = 0
    since: str = ""  # when it was started
    ended: str = ""  # when it ended
    exit_code: int = 0
    reason: str = ""  # how it has ended
    held: tuple[str, str] | None = None  # why it cannot be started now: reason and message
    last: "Run | None" = None  # the run before this one

    def started(self, container_id: str, now: str) -> "Run":
        """It runs, for the first time or again."""
        before = replace(self, held=None, last=None) if self.state == "ended" else self.last
        return Run("running", container_id, self.restarts + (self.state == "ended"), since=now, last=before)

    def finished(self, exit_code: int, now: str, reason: str = "") -> "Run":
        """It has ended."""
        reason = reason or ("Error" if exit_code else "Completed")
        return replace(self, state="ended", ended=now, exit_code=exit_code, reason=reason)

    def holding(self, reason: str, message: str) -> "Run":
        """It cannot be started now."""
        return replace(self, held=(reason, message))


Runs = Mapping[str, Run]  # by the container's name


def due(pod: Pod, runs: Runs) -> tuple[str, ...]:
    """The containers that must be started now: the init containers one by one, then the others together.

    A sidecar that has ended is started again, but nobody waits for it: it has started once.
    """
    again: tuple[str, ...] = ()
    for container in pod.containers:
        run = runs.get(container.name, Run())
        if not container.is_init:
            break
        if container.is_sidecar and run.state == "ended":
            again += (container.name,)
        elif run.state == "waiting" or (run.state == "ended" and _again(container, run)):
            return (*again, container.name)
        elif not container.is_sidecar and (run.state == "running" or run.exit_code):
            return again
    return again + tuple(
        container.name
        for container in pod.containers
        if not container.is_init
        and (run := runs.get(container.name, Run())).state != "running"
        and (run.state == "waiting" or _again(container, run))
    )


def phase_of(pod: Pod, runs: Runs) -> Phase:
    """The pod's phase, as long as it is not deleted."""
    for container in pod.containers:
        run = runs.get(container.name, Run())
        if container.is_init and not container.is_sidecar:
            if run.state == "ended" and run.exit_code and not _again(container, run):
                return "Failed"
            if run.state != "ended" or run.exit_code:
                return "Pending"
    mains = [(container, runs.get(container.name, Run())) for container in pod.containers if not container.is_init]
    if all(run.state == "ended" and not _again(container, run) for container, run in mains):
        return "Failed" if any(run.exit_code for _, run in mains) else "Succeeded"
    return "Pending" if any(run.state == "waiting" for _, run in mains) else "Running"


def restart_delay(restarts: int, first: float, most: float) -> float:
    """How long a container that has ended waits; the first restart comes at once, the later ones ever more slowly."""
    return min(most, first * 2.0 ** min(restarts - 1, 30)) if restarts else 0.0


def _again(container: ContainerSpec, run: Run) -> bool:
    return container.restart == "Always" or (container.restart == "OnFailure" and run.exit_code != 0)


def _container(item: JsonObject, policy: str, *, is_init: bool = False) -> ContainerSpec:
    is_sidecar = is_init and item.get("restartPolicy") == "Always"
    if is_init and policy == "Always":
        policy = "OnFailure"  # kubelet: an init container that has succeeded is not run again
    claims = tuple(
        (claim["name"], claim.get("request") or "") for claim in (item.get("resources") or {}).get("claims") or ()
    )
    return ContainerSpec(
        name=item["name"],
        image=item.get("image") or "",
        program=program_of([*(item.get("command") or ()), *(item.get("args") or ())]),
        env=tuple(
            f"{variable['name']}={variable.get('value') or ''}"
            for variable in item.get("env") or ()
            if "valueFrom" not in variable
        ),
        claims=claims,
        restart="Always" if is_sidecar else policy,
        is_init=is_init,
        is_sidecar=is_sidecar,
    )
