"""A node whose runtime does one step at a time: NodeState on one side, containerd's procedures on the other.

Nothing happens by itself. A test begins procedures of the runtime, advances any of them by a step, lets the agent's
pushes be sent, applied and answered, and fails what can fail; in between it looks at what really runs where.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from nodes import NODE, machine, request, revived, share, spec, uid
from runtime_generations import Generation

from dracpu_agent.claims import checkpoint
from dracpu_agent.claims.cpu_claim import CpuClaim
from dracpu_agent.drivers.driver import Driver
from dracpu_agent.drivers.holding import Granted
from dracpu_agent.errors import ClaimError, PlacementError
from dracpu_agent.node import NodeState
from dracpu_agent.placement import container as placed
from dracpu_agent.placement.container import ContainerUpdate
from dracpu_agent.runtime import convert
from dracpu_agent.runtime.proto import nri_pb2 as nri
from dracpu_api.cpuset import EMPTY, CpuSet
from dracpu_sandbox.node.containerd import Containerd, Hook, HookError, Moment, Report, Steps
from dracpu_sandbox.node.containers import Container, Given, PodSandbox


@dataclass
class Procedure:
    """A procedure that has begun."""

    steps: Steps
    container: Container
    moment: Moment | None = None  # the last one that it has come to


@dataclass
class Push:
    """An update that the agent has sent, and what has become of it."""

    update: ContainerUpdate
    applied: bool | None = None  # None: the runtime has not come to it


@dataclass(frozen=True)
class Overlap:
    """A process that may run on CPUs of a claim whose container runs, and that does not belong to this claim."""

    stranger: str
    claimed_by: str
    cpus: CpuSet


class ModelNode:
    """One node."""

    def __init__(self, generation: Generation, others: Sequence[Driver[Any, Any]] = ()) -> None:
        self.generation = generation
        self._others = others
        self.state = NodeState(NODE, machine(sockets=2, cores=2), others)
        self.state.configure(spec())
        self.containerd = Containerd()
        self.procedures: list[Procedure] = []
        self.push: Push | None = None
        self.answered: dict[str, CpuClaim] = {}  # claims whose Prepare has been answered, until Unprepare
        self.waiting: dict[str, CpuClaim] = {}  # granted claims whose Prepare waits
        self._granted: dict[str, Granted[CpuClaim]] = {}
        self.refused_by_others: set[str] = set()  # containers that another plugin will refuse to create
        self.refusals: list[str] = []  # why the agent has refused containers
        self.needless: list[str] = []  # containers that were not started although their cgroups were right
        self.update_failed = False  # the runtime has failed to apply an update of another container
        self._list_again = False  # the agent connects anew, as the list may not be complete
        self.replies_at_rest = 2  # to repeat what has failed; more where a reply has no room for all updates
        self.synchronize()

    # ---- the agent

    @property
    def connected(self) -> bool:
        return self.state.containers.synchronized

    def can_synchronize(self) -> bool:
        """containerd lets no plugin in while a call of the kubelet is under way; a start counts from its hook on."""
        blocking = [known for known in self.procedures if known.moment is not Moment.CGROUP_WRITTEN]
        return not self.connected and not (self.generation.info.lists_completely and blocking)

    def synchronize(self) -> None:
        containers = self.state.containers
        containers.connected(self.generation.info)
        inventory = convert.Inventory()
        listed = self.containerd.listed()
        inventory.add([known.pod.message() for known in listed], [self._message(known) for known in listed])
        updates, _ = containers.synchronize(inventory.containers())
        self._apply(updates)
        containers.allow_pushes()
        self._list_again = not self.generation.info.lists_completely

    def disconnect(self) -> None:
        if self.push is not None:
            self.answer_push(lost=True)
        self._list_again = False
        self.state.containers.disconnected()

    def restart_agent(self) -> None:
        """Kills the agent; the next one starts from the checkpoint, without a connection."""
        self.push = None
        self._list_again = False
        self.waiting.clear()
        saved = checkpoint.decode(checkpoint.encode(self.state.checkpoint()))
        self.state = revived(saved, self.state.topology, self._others)

    def send_push(self) -> None:
        update = self.state.containers.next_push()
        self.push = None if update is None else Push(update)

    def apply_push(self) -> None:
        assert self.push is not None
        message = convert.update(self.push.update)
        self.push.applied = not self.containerd.apply([message])

    def answer_push(self, *, lost: bool = False) -> None:
        assert self.push is not None
        push, self.push = self.push, None
        self.state.containers.pushed(push.update, applied=bool(push.applied) and not lost)

    def expire(self, name: str) -> None:
        self.state.containers.expire(name)

    # ---- the kubelet

    def prepare(self, number: int, device: str, amount: int) -> None:
        """The first half of Prepare: the claim is granted, its answer waits."""
        pods = [f"pod-{uid(number)}"]
        try:
            granted = self.state.claims.grant(request(number, share(device, amount), pods=pods))
        except ClaimError:
            return
        self.waiting[uid(number)] = granted.claim
        self._granted[uid(number)] = granted

    def undo(self, claim_uid: str) -> None:
        """A later step of Prepare has failed."""
        del self.waiting[claim_uid]
        self.state.claims.undo(self._granted.pop(claim_uid))

    def may_answer(self, claim_uid: str) -> bool:
        claim = self.waiting[claim_uid]
        pushed = self.push is not None and not self.push.update.cpus.isdisjoint(claim.cpus)
        return self.connected and not pushed and not self.state.containers.unsettled_on(claim.cpus, claim.key)

    def answer_prepare(self, claim_uid: str) -> None:
        """The second half: from now on containers of the claim are created."""
        self.answered[claim_uid] = self.waiting.pop(claim_uid)

    def unprepare(self, claim_uid: str) -> None:
        self.answered.pop(claim_uid, None)
        self.waiting.pop(claim_uid, None)
        self.state.claims.release(claim_uid)

    def in_a_call(self, claim_uid: str) -> bool:
        """The kubelet unprepares no claim during its calls about containers of it."""
        return any(known.container.pod.uid == f"pod-{claim_uid}" for known in self.procedures)

    def create(self, name: str, claim_uid: str | None) -> None:
        made = Container(name, PodSandbox(name, uid=name), name)
        if claim_uid is not None:
            pod = PodSandbox(f"pod-{claim_uid}", uid=f"pod-{claim_uid}")
            (device,) = self.answered[claim_uid].cdi_devices()
            ((variable, cpus),) = device.variables
            made = Container(name, pod, name, (f"{variable}={cpus}",), (device.name,))
        self._begin(self.containerd.create(made), made)

    def start(self, name: str) -> None:
        self._begin(self.containerd.start(self.containerd.containers[name]), self.containerd.containers[name])

    def resize(self, name: str) -> None:
        self._begin(self.containerd.update(self.containerd.containers[name]), self.containerd.containers[name])

    def end(self, name: str) -> None:
        """The program ends and the kubelet removes its container."""
        container = self.containerd.containers[name]
        for steps in (self.containerd.stop(container), self.containerd.remove(container)):
            self._begin(steps, container)

    def exit(self, name: str) -> None:
        """The program ends by itself, possibly during a call about its container."""
        self._begin(self.containerd.exit(self.containerd.containers[name]), self.containerd.containers[name])

    def remove(self, name: str) -> None:
        """The kubelet removes a container that has ended."""
        self._begin(self.containerd.remove(self.containerd.containers[name]), self.containerd.containers[name])

    def running_processes(self) -> list[str]:
        """Containers whose program may end by itself."""
        return [known.id for known in self.containerd.containers.values() if known.process and known.running]

    def ended(self) -> list[str]:
        """Containers that have ended, and that no call is about."""
        busy = {known.container.id for known in self.procedures}
        stopped = (known for known in self.containerd.containers.values() if known.state == nri.CONTAINER_STOPPED)
        return [known.id for known in stopped if known.id not in busy]

    def startable(self) -> list[str]:
        """Created containers of pods that the kubelet has not given up since."""
        kept = {(f"pod-{claim_uid}", claim.cpus) for claim_uid, claim in self.answered.items()}
        busy = {known.container.id for known in self.procedures}
        return [
            name
            for name, known in self.containerd.containers.items()
            if known.state == nri.CONTAINER_CREATED
            and known.cgroup_cpus is None
            and name not in busy
            and (not known.env or (known.pod.uid, claim_of(known)) in kept)
        ]

    def idle(self) -> list[str]:
        """Running containers that no call is about."""
        busy = {known.container.id for known in self.procedures}
        running = (known for known in self.containerd.containers.values() if known.process)
        return [known.id for known in running if known.id not in busy]

    # ---- the runtime

    def _begin(self, steps: Steps, container: Container) -> None:
        self.procedures.append(Procedure(steps, container))
        self.advance(len(self.procedures) - 1)

    def advance(self, number: int) -> None:
        """Carries out a procedure until the next moment at which others can come in between."""
        procedure = self.procedures[number]
        given: Given | None = None
        refusal: HookError | None = None
        procedure_ends = True
        try:
            while True:
                step = procedure.steps.send(given) if refusal is None else procedure.steps.throw(refusal)
                given = refusal = None
                if isinstance(step, Moment):
                    procedure.moment = step
                    procedure_ends = False
                    break
                try:
                    given = self._call(step)
                except HookError as error:
                    refusal = error
        except StopIteration:
            pass
        except HookError:
            self._ended_by_kubelet(procedure.container)
        if procedure_ends and procedure in self.procedures:
            self.procedures.remove(procedure)

    def _ended_by_kubelet(self, container: Container) -> None:
        """The kubelet removes a container whose creation or start has failed; a failed resize leaves it as it is."""
        if container.state == nri.CONTAINER_STOPPED and container.id in self.containerd.containers:
            self.end(container.id)

    def _call(self, step: Hook | Report) -> Given:
        """What the agent answers; nothing while it is not connected."""
        containers = self.state.containers
        if not self.connected:
            return Given()
        message = convert.container(self._message(step.container), step.container.pod.message())
        try:
            match step.event:
                case nri.CREATE_CONTAINER:
                    placement = containers.create(message)
                    if message.id in self.refused_by_others:
                        raise HookError("another plugin refuses the container: all replies are dropped")
                    self._apply(placement.updates)
                    return Given(str(placement.cpus), dict(placement.limits))
                case nri.POST_CREATE_CONTAINER:
                    containers.created(message.id)
                case nri.START_CONTAINER:
                    containers.created(message.id)
                    self._check_start(message, CpuSet.parse(step.container.cgroup_cpus or ""))
                case nri.POST_START_CONTAINER:
                    containers.started(message)
                case nri.UPDATE_CONTAINER:
                    repeated = containers.repeat(message.id)
                    return Given(str(repeated.cpus), dict(repeated.limits)) if repeated else Given()
                case nri.POST_UPDATE_CONTAINER:
                    containers.updated(message)
                case nri.STOP_CONTAINER if self._reports_end(step.container):
                    self._apply(containers.stopped(message.id))
                case nri.REMOVE_CONTAINER if self._reports_end(step.container):
                    containers.removed(message.id)
        except PlacementError as error:
            self.refusals.append(str(error))
            raise HookError(str(error)) from error
        return Given()

    def _check_start(self, message: placed.Container, in_force: CpuSet) -> None:
        """As the agent's StartContainer hook does; a machine's cgroups may be unreadable."""
        containers = self.state.containers
        doubt = containers.begin_start(message)
        if doubt and in_force and self.generation.cgroups_readable:
            containers.resolve(doubt, in_force)
        try:
            containers.check_start(message)
        except PlacementError:
            container = self.containerd.containers[message.id]
            if self.generation.cgroups_readable and in_force and self._starts_right(container, in_force):
                self.needless.append(message.id)
            raise

    def _starts_right(self, container: Container, cpus: CpuSet) -> bool:
        own = claim_of(container)
        if own:
            return cpus == own
        others = [*self.containerd.containers.values(), *(known.container for known in self.procedures)]
        return all(claim_of(known).isdisjoint(cpus) for known in others if known.state != nri.CONTAINER_STOPPED)

    def _reports_end(self, container: Container) -> bool:
        return container.stored or self.generation.reports_failed_creations

    def _apply(self, updates: tuple[ContainerUpdate, ...]) -> None:
        failed = self.containerd.apply([convert.update(update) for update in updates])
        self.update_failed = self.update_failed or bool(failed)
        if not self.generation.info.unsolicited_updates:
            # two failures in a row would stay unknown to an agent whose updates are never answered
            self.containerd.failing_updates.difference_update(failed)

    def _message(self, container: Container) -> nri.Container:
        return container.message(with_cdi=self.generation.info.passes_cdi_devices)

    # ---- what is true

    def running(self) -> Iterator[tuple[Container, CpuSet, CpuSet]]:
        """Each process: its container, the CPUs that its cgroup allows, and those of its claim."""
        online = self.state.topology.online
        for container in self.containerd.containers.values():
            if container.process:
                yield container, (CpuSet.parse(container.cgroup_cpus or "") & online) or online, claim_of(container)

    def overlaps(self) -> list[Overlap]:
        """Every process that may run on CPUs of another process's claim."""
        running = list(self.running())
        return [
            Overlap(stranger.id, container.id, cpus & claimed)
            for container, _, claimed in running
            for stranger, cpus, own in running
            if own != claimed and not cpus.isdisjoint(claimed)
        ]

    def astray(self) -> list[str]:
        """Every process of a claim that may run elsewhere than on the claim's CPUs."""
        return [container.id for container, cpus, claimed in self.running() if claimed and cpus != claimed]

    def limits(self) -> dict[str, dict[str, str]]:
        """The limits of each process."""
        return {known.id: known.cgroup_limits for known in self.containerd.containers.values() if known.process}

    def phantoms(self) -> list[str]:
        """Every claim that lingers although no container belongs to it."""
        used = {known.pod.uid for known in self.containerd.listed()}
        lingering = [claim_uid for claim_uid, claim in self.state.claims.items() if claim.lingering]
        return [claim_uid for claim_uid in lingering if f"pod-{claim_uid}" not in used]

    def rest(self) -> None:
        """Lets everything that is under way come to its end, as it does within a second; nothing fails any more."""
        self.containerd.failing_updates.clear()
        self.containerd.failing_starts.clear()
        self._settle()
        if not self.generation.info.unsolicited_updates and (self.update_failed or self.replies_at_rest > 2):
            # such a runtime reports no failure: later replies repeat what must be right
            for number in range(self.replies_at_rest):
                self.create(f"later-{number}", None)
                self._settle()
                self.end(f"later-{number}")
        self.update_failed = False

    def _settle(self) -> None:
        while self.procedures:
            self.advance(0)
        if not self.connected:
            self.synchronize()
        if self._list_again:
            self.disconnect()
            self.synchronize()
        for name in list(self.containerd.containers):
            self.expire(name)
        for _ in range(100):
            if self.push is None:
                self.send_push()
            if self.push is None:
                return
            if self.push.applied is None:
                self.apply_push()
            self.answer_push()
        raise AssertionError("pushes never end")


def claim_of(container: Container) -> CpuSet:
    """The CPUs that the container's claim has by its CDI file; none for a container without a claim."""
    return CpuSet.parse(container.env[0].partition("=")[2]) if container.env else EMPTY
