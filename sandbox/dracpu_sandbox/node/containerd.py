"""Simulates what containerd does when it creates, starts, updates, stops and removes a container, step by step.

Each procedure is a generator. It yields the calls of the plugin, and every moment at which other calls may come in
between, so that the same procedures serve the simulated runtime, which waits for a real plugin, and tests that choose
what happens at each moment. It shows what containerd 2.4 does, also where that is surprising:

- the cgroup is written from the stored record before the plugin's StartContainer hook;
- an update of a container that is not RUNNING changes the record only, and succeeds;
- the answer to the kubelet's update is applied after the plugin's hook has returned and its lock is free;
- failed updates of others in a hook's reply are only logged, so the plugin does not get to know of them.
"""

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from dracpu_agent.runtime.proto import nri_pb2 as nri
from dracpu_sandbox.errors import SandboxError
from dracpu_sandbox.node.containers import Container, Given


class HookError(SandboxError):
    """The plugin, or a rule of the runtime, rejected a request of the kubelet."""


class Moment(Enum):
    """A moment within a procedure at which no lock is held."""

    PLACED = auto()  # the CreateContainer hook has returned; updates do not find the container
    STORED = auto()  # it is in the list; PostCreateContainer has not been called
    CGROUP_WRITTEN = auto()  # from the record; StartContainer has not been called
    START_ALLOWED = auto()  # the StartContainer hook has returned
    PROCESS_STARTED = auto()  # its state is still CREATED
    RUNNING = auto()  # PostStartContainer has not been called
    UPDATE_ALLOWED = auto()  # the UpdateContainer hook has returned; its answer is not applied
    UPDATED = auto()  # PostUpdateContainer has not been called
    ENDED = auto()  # StopContainer has been called; its state is still RUNNING


@dataclass(frozen=True, slots=True)
class Hook:
    """A call of the plugin that the kubelet's request depends on. The updates of others in the reply are applied under
    the same lock; `HookError` is thrown into the procedure when the plugin refuses."""

    event: "nri.Event.ValueType"
    container: Container
    cpus: str = ""  # that the kubelet asks for


@dataclass(frozen=True, slots=True)
class Report:
    """A call of the plugin whose errors are only logged."""

    event: "nri.Event.ValueType"
    container: Container


Step = Hook | Report | Moment
Steps = Generator[Step, Given | None, None]  # a Hook is answered with what the plugin gives the container

_REFUSED: Final = "the cgroup of container {} cannot be written"


class Containerd:
    """The containers of a runtime, and its procedures."""

    def __init__(self) -> None:
        self.containers: dict[str, Container] = {}
        self.failing_updates: set[str] = set()  # containers whose cgroup cannot be written
        self.failing_starts: set[str] = set()  # containers whose program does not start
        self.sends_post_create = True

    def create(self, made: Container) -> Steps:
        """Creates a container."""
        try:
            given = yield Hook(nri.CREATE_CONTAINER, made)
        except HookError:
            yield from self._undo(made)
            raise
        _change_record(made, given or Given())
        yield Moment.PLACED
        self.containers[made.id] = made
        made.stored, made.state = True, nri.CONTAINER_CREATED
        yield Moment.STORED
        if self.sends_post_create:
            yield Report(nri.POST_CREATE_CONTAINER, made)

    def start(self, container: Container) -> Steps:
        """Starts a created container."""
        container.cgroup_cpus, container.cgroup_limits = container.spec_cpus, dict(container.spec_limits)
        yield Moment.CGROUP_WRITTEN
        try:
            yield Hook(nri.START_CONTAINER, container)
            yield Moment.START_ALLOWED
            self._check_program(container)
        except HookError:
            yield from self.stop(container)
            raise
        container.process = True
        yield Moment.PROCESS_STARTED
        if container.state != nri.CONTAINER_STOPPED:
            container.state = nri.CONTAINER_RUNNING
        yield Moment.RUNNING
        yield Report(nri.POST_START_CONTAINER, container)

    def update(self, container: Container, cpus: str = "") -> Steps:
        """Changes a container's resources, as the kubelet does."""
        given = (yield Hook(nri.UPDATE_CONTAINER, container, cpus)) or Given()
        yield Moment.UPDATE_ALLOWED
        if not self._apply(container, Given(given.cpus or cpus, given.limits)):
            raise HookError(_REFUSED.format(container.id))
        yield Moment.UPDATED
        yield Report(nri.POST_UPDATE_CONTAINER, container)

    def stop(self, container: Container) -> Steps:
        """Ends a container's program."""
        container.state, container.process = nri.CONTAINER_STOPPED, False
        yield Report(nri.STOP_CONTAINER, container)

    def exit(self, container: Container) -> Steps:
        """The program of a RUNNING container ends by itself. This is reported before the state changes, and possibly
        before PostStartContainer or PostUpdateContainer."""
        container.process = False
        yield Report(nri.STOP_CONTAINER, container)
        yield Moment.ENDED
        container.state = nri.CONTAINER_STOPPED

    def remove(self, container: Container) -> Steps:
        """Removes a container from the list."""
        self.containers.pop(container.id, None)
        yield Report(nri.REMOVE_CONTAINER, container)

    def _check_program(self, container: Container) -> None:
        if container.id in self.failing_starts or container.state == nri.CONTAINER_STOPPED:
            raise HookError(f"the program of container {container.id} does not start")

    def _undo(self, made: Container) -> Steps:
        """containerd reports the end of a creation that failed, whether or not the plugin took part in it."""
        yield from self.stop(made)
        yield from self.remove(made)

    # ---- what plugins cause

    def listed(self) -> list[Container]:
        """The containers that a plugin is sent when it connects."""
        return [known for known in self.containers.values() if known.state != nri.CONTAINER_STOPPED]

    def apply(self, updates: Iterable[nri.ContainerUpdate]) -> list[str]:
        """Applies a plugin's updates; returns the containers that could not be updated."""
        failed: list[str] = []
        for update in updates:
            container = self.containers.get(update.container_id)  # an unknown id is not an error for any runtime
            if container is not None and not self._apply(container, Given.of(update.linux.resources)):
                failed.append(container.id)
        return failed

    def _apply(self, container: Container, given: Given) -> bool:
        """Changes the record and, if the container is RUNNING, its cgroup; on a failure the record stays as it was."""
        if container.state == nri.CONTAINER_STOPPED:
            return False
        if container.state == nri.CONTAINER_RUNNING:
            if container.id in self.failing_updates:
                return False
            container.cgroup_cpus = given.cpus or container.cgroup_cpus
            container.cgroup_limits |= {**container.spec_limits, **given.limits}
        _change_record(container, given)
        return True


def _change_record(container: Container, given: Given) -> None:
    """What is not given stays, and is written again with every update."""
    container.spec_cpus = given.cpus or container.spec_cpus
    container.spec_limits |= given.limits
