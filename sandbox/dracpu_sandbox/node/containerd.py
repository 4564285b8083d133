"""Simulates what containerd does when it creates, starts, updates, stops and removes a container, step by step.

Each procedure is a generator. It yields the calls of the plugin, and every moment at which other calls may come in
between, so that the same procedures serve the simulated runtime, which waits for a real plugin, and tests that choose
what happens at each moment. It shows what containerd 2.4 does, also where that is surprising:

- the cgroup is written from the stored record before the plugin's StartContainer hook;
- an update of a container that is not RUNNING changes the record only, and succeeds;
- the answer to the kubelet's update is applied after the plugin's hook has returned and its lock is free;
- failed updates of others in a hook's reply are only logged, so the plugin does not get to know of them;
- every update writes the whole record again, and what a plugin ever set in `unified` after the limits of the kubelet;
- an update that fails half-way changes a part of the cgroup, and not the record.
"""

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Protocol

from dracpu_agent.runtime.proto import nri_pb2 as nri
from dracpu_sandbox.errors import SandboxError
from dracpu_sandbox.node.cgroups import CgroupError
from dracpu_sandbox.node.containers import NOTHING, Container, Given, files_of


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
    asked: Given = NOTHING  # what the kubelet asks for


@dataclass(frozen=True, slots=True)
class Report:
    """A call of the plugin whose errors are only logged."""

    event: "nri.Event.ValueType"
    container: Container


Step = Hook | Report | Moment
Steps = Generator[Step, Given | None, None]  # a Hook is answered with what the plugin gives the container

_REFUSED: Final = "the cgroup of container {} cannot be written"


class Cgroups(Protocol):
    """The cgroups of the containers."""

    def make(self, container: Container) -> None:
        """Makes the cgroup of a container."""

    def enter(self, container: Container) -> None:
        """Does what runc does in the container before its program: sets its memory policy, and mounts file systems.
        Raises CgroupError where the kernel refuses."""

    def write(self, container: Container, file: str, text: str) -> None:
        """Writes one of its files; raises CgroupError."""

    def remove(self, container: Container) -> None:
        """Removes the cgroup, if it exists."""


class NoCgroups:
    """For runtimes whose containers have no cgroups but those in their records."""

    def make(self, container: Container) -> None:
        """See Cgroups."""

    def enter(self, container: Container) -> None:
        """See Cgroups."""

    def write(self, container: Container, file: str, text: str) -> None:
        """See Cgroups."""

    def remove(self, container: Container) -> None:
        """See Cgroups."""


class Containerd:
    """The containers of a runtime, and its procedures."""

    def __init__(self, cgroups: Cgroups | None = None) -> None:
        self._cgroups = cgroups or NoCgroups()
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
        _change_record(made, given or NOTHING)
        yield Moment.PLACED
        self.containers[made.id] = made
        made.stored, made.state = True, nri.CONTAINER_CREATED
        yield Moment.STORED
        if self.sends_post_create:
            yield Report(nri.POST_CREATE_CONTAINER, made)

    def start(self, container: Container) -> Steps:
        """Starts a created container."""
        container.cgroup_cpus = container.spec_cpus
        try:
            self._cgroups.make(container)
            problem = self._write(container, container.record) or self._enter(container)
            yield Moment.CGROUP_WRITTEN
            self._check_cgroup(problem)
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

    def update(self, container: Container, asked: Given | None = None) -> Steps:
        """Changes a container's resources, as the kubelet does."""
        asked = asked or NOTHING
        given = (yield Hook(nri.UPDATE_CONTAINER, container, asked)) or NOTHING
        yield Moment.UPDATE_ALLOWED
        if problem := self._apply(container, given.over(asked)):
            raise HookError(problem)
        yield Moment.UPDATED
        yield Report(nri.POST_UPDATE_CONTAINER, container)

    def stop(self, container: Container) -> Steps:
        """Ends a container's program."""
        container.state, container.process = nri.CONTAINER_STOPPED, False
        self._cgroups.remove(container)
        yield Report(nri.STOP_CONTAINER, container)

    def exit(self, container: Container) -> Steps:
        """The program of a RUNNING container ends by itself. This is reported before the state changes, and possibly
        before PostStartContainer or PostUpdateContainer."""
        container.process = False
        self._cgroups.remove(container)
        yield Report(nri.STOP_CONTAINER, container)
        yield Moment.ENDED
        container.state = nri.CONTAINER_STOPPED

    def remove(self, container: Container) -> Steps:
        """Removes a container from the list."""
        self.containers.pop(container.id, None)
        yield Report(nri.REMOVE_CONTAINER, container)

    def _check_cgroup(self, problem: str) -> None:
        if problem:
            raise HookError(f"failed to create containerd task: error during container init: {problem}")

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
            if container is not None and self._apply(container, Given.of(update.linux.resources)):
                failed.append(container.id)
        return failed

    def _apply(self, container: Container, given: Given) -> str:
        """Changes the record and, if the container is RUNNING, its cgroup; on a failure the record stays as it was.

        Returns why it failed; "" if it did not.
        """
        if container.state == nri.CONTAINER_STOPPED:
            return f"container {container.id} has ended"
        if container.state == nri.CONTAINER_RUNNING:
            if container.id in self.failing_updates:
                return _REFUSED.format(container.id)
            if problem := self._write(container, given.over(container.record)):
                return problem
            container.cgroup_cpus = given.cpus or container.cgroup_cpus
        _change_record(container, given)
        return ""

    def _enter(self, container: Container) -> str:
        try:
            self._cgroups.enter(container)
        except CgroupError as error:
            return str(error)
        return ""

    def _write(self, container: Container, record: Given) -> str:
        """Writes the files one after the other; returns why one of them cannot be written, or ""."""
        for file, text in files_of(record):
            try:
                self._cgroups.write(container, file, text)
            except CgroupError as error:
                return str(error)
            if file != "cpuset.cpus":
                container.cgroup_limits[file] = text
        return ""


def _change_record(container: Container, given: Given) -> None:
    """What is not given stays, and is written again with every update."""
    container.spec_cpus = given.cpus or container.spec_cpus
    container.spec_memory = given.memory or container.spec_memory
    container.spec_limits |= given.limits
    container.score = container.score if given.score is None else given.score
    container.preferred = given.preferred or container.preferred
    container.mounts += tuple(given.mounts)
