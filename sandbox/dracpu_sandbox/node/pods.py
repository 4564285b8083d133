"""Computes from a pod object and its containers' states which containers must start, and the pod's phase."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Literal

from dracpu_sandbox.node.programs import Program, program_of
from dracpu_sandbox.resources import MIRROR_ANNOTATION, JsonObject

HOLD_ANNOTATION: Final = "sandbox.dra.cpu/hold"  # a pod with this annotation is not started yet
EXTENDED: Final = "extended-resources"  # our name for the claim that replaces a pod's extended resources

Phase = Literal["Pending", "Running", "Succeeded", "Failed"]


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """A container of a pod's spec."""

    name: str
    image: str
    program: Program
    env: tuple[str, ...]  # only variables with a literal value
    claims: tuple[tuple[str, str], ...]  # name in the pod, request ("": all)
    volumes: tuple[str, ...]  # where its volumes are mounted
    restart: str  # Always, OnFailure, Never
    is_init: bool = False
    is_sidecar: bool = False  # an init container that keeps running


@dataclass(frozen=True)
class Pod:
    """A pod object, with the properties that the kubelet needs."""

    object: JsonObject

    @property
    def namespace(self) -> str:
        """The pod's namespace."""
        return str(self.object["metadata"]["namespace"])

    @property
    def name(self) -> str:
        """The pod's name."""
        return str(self.object["metadata"]["name"])

    @property
    def uid(self) -> str:
        """The pod's UID, which distinguishes it from earlier pods of its name."""
        return str(self.object["metadata"]["uid"])

    @property
    def deleted(self) -> bool:
        """Whether the pod's deletion was requested."""
        return bool(self.object["metadata"].get("deletionTimestamp"))

    @property
    def is_held(self) -> bool:
        """Whether the pod must not be started yet, as if a volume were not mounted."""
        return HOLD_ANNOTATION in (self.object["metadata"].get("annotations") or {})

    @property
    def user_namespace(self) -> bool:
        """Whether its users are not those of the machine."""
        return self.object["spec"].get("hostUsers") is False

    @property
    def is_mirror(self) -> bool:
        """Whether the pod only shows something that runs without it, as the agents' pods do."""
        return MIRROR_ANNOTATION in (self.object["metadata"].get("annotations") or {})

    @property
    def status(self) -> JsonObject:
        """The pod's status, or {}."""
        return self.object.get("status") or {}

    @cached_property
    def containers(self) -> tuple[ContainerSpec, ...]:
        """All containers, in the order in which they start."""
        spec = self.object["spec"]
        policy = str(spec.get("restartPolicy") or "Always")
        init = [_container(item, policy, is_init=True) for item in spec.get("initContainers") or ()]
        return (*init, *(_container(item, policy) for item in spec["containers"]))

    def container(self, name: str) -> ContainerSpec:
        """Returns a container by its name."""
        return next(container for container in self.containers if container.name == name)

    @cached_property
    def claims(self) -> Mapping[str, str]:
        """Maps the names of claims in the pod to names of claim objects; "" for a claim that was not made yet.

        The status names the claims made from templates, and the claim that replaces extended resources.
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
        """Returns the claims of a container, each with its name in the pod and the request."""
        mappings = (self.status.get("extendedResourceClaimStatus") or {}).get("requestMappings") or ()
        extended = tuple(
            (EXTENDED, mapping["requestName"]) for mapping in mappings if mapping["containerName"] == container.name
        )
        return container.claims + extended


@dataclass(frozen=True, slots=True)
class Run:
    """The state of a container, through all its restarts."""

    state: Literal["waiting", "running", "ended"] = "waiting"
    id: str = ""  # of the newest container in the runtime
    restarts: int = 0
    since: str = ""  # when it was started
    ended: str = ""  # when it ended
    exit_code: int = 0
    reason: str = ""  # why it ended
    held: tuple[str, str] | None = None  # why it cannot be started now: reason and message
    last: "Run | None" = None  # the run before this one

    def started(self, container_id: str, now: str) -> "Run":
        """Returns the state after a start, which may be the first one."""
        before = replace(self, held=None, last=None) if self.state == "ended" else self.last
        return Run("running", container_id, self.restarts + (self.state == "ended"), since=now, last=before)

    def finished(self, exit_code: int, now: str, reason: str = "") -> "Run":
        """Returns the state after the container's end."""
        reason = reason or ("Error" if exit_code else "Completed")
        return replace(self, state="ended", ended=now, exit_code=exit_code, reason=reason)

    def holding(self, reason: str, message: str) -> "Run":
        """Returns the state of a container that cannot be started now."""
        return replace(self, held=(reason, message))


Runs = Mapping[str, Run]  # by the container's name


def due(pod: Pod, runs: Runs) -> tuple[str, ...]:
    """Returns the containers that must be started now: the init containers one by one, then the others together.

    A sidecar that has ended is started again, but the other containers do not wait for it.
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
    """Returns the phase of a pod that is not deleted."""
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
    """Returns the delay before a restart: none before the first one, then it doubles each time."""
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
        volumes=tuple(mount["mountPath"] for mount in item.get("volumeMounts") or ()),
        restart="Always" if is_sidecar else policy,
        is_init=is_init,
        is_sidecar=is_sidecar,
    )
