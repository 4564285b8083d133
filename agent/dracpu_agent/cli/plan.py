"""`dracpu-agent plan`: what would a request get? Decisions only; __main__.py reads the files and prints the answers.

There are two kinds of questions. A *case*, one JSON object a line, asks the allocator in the kubelet's terms
(tests/vectors/README.md has the fields); that is how other programs ask many questions. A question on the command
line is asked in the terms of CpuDriverConfig, and goes through the same door as a claim's request.

An answer is {"id", "cpus"} or {"id", "error"}, where "ns" was asked for with the nanoseconds of the fastest call.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from dracpu_agent.allocation.choose import Ask, choose
from dracpu_agent.allocation.distributed import distributed
from dracpu_agent.allocation.errors import AllocationError
from dracpu_agent.allocation.machine import Machine
from dracpu_agent.allocation.packed import packed
from dracpu_agent.devices.grouping import divided_over
from dracpu_agent.devices.publish import resolve
from dracpu_agent.topology.described import ONLY
from dracpu_agent.topology.topology import Topology
from dracpu_api.cpuset import EMPTY, CpuSet, CpuSetError
from dracpu_api.errors import DriverError

Answer = dict[str, object]
MODES: Final = ("numa-packed", "numa-distributed")
STRATEGIES: Final = ("packed", "spread")


class QuestionError(DriverError):
    """A question that makes no sense; the message says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question of the command line: one request of one device."""

    ask: Ask
    device: str
    available: CpuSet | None  # None: everything is free
    reserved: CpuSet


@dataclass(frozen=True)
class Planner:
    """Answers questions about these machines."""

    topologies: Mapping[str, Topology]
    bench: int = 0  # so often is each question asked; 0: once, and the time does not matter
    _machines: dict[str, Machine] = field(default_factory=dict)

    def answer_line(self, line: bytes, number: int) -> tuple[Answer, bool]:
        """The answer to a case, and whether the line is one: a pipe gets its answers in order also after a mistake."""
        case: Mapping[str, object] = {}
        try:
            case = _decoded(line)
            return {"id": case.get("id"), **self._answer(self._call(case))}, True
        except QuestionError as error:
            return {"id": case.get("id"), "error": f"line {number}: {error}"}, False

    def answer(self, question: Question, machine_name: str | None) -> Answer:
        """The answer to a question of the command line."""
        name = self._name(machine_name)
        topology, machine = self.topologies[name], self._machine(name)
        group = resolve(topology, question.device)
        if group is None:
            raise QuestionError(f"this machine has no device {question.device}")
        over = divided_over(question.device)
        available = (topology.online if question.available is None else question.available) - question.reserved
        return self._answer(
            lambda: choose(machine, group, available, question.ask, over, reserved=question.reserved).mask
        )

    def _call(self, case: Mapping[str, object]) -> Callable[[], int]:
        """The call of the allocator that answers a case; raises QuestionError where the case is none."""
        machine = self._machine(self._name(case.get("topology")))
        count = _whole_number(case, "num")
        mode, strategy = _one_of(case, "mode", MODES), _one_of(case, "strategy", STRATEGIES)
        free, spread = _available(case, machine), strategy == "spread"
        if mode == "numa-packed":
            prefer_uncore = case.get("prefer_uncore", False)
            if not isinstance(prefer_uncore, bool):
                raise QuestionError(f"prefer_uncore must be true or false, got {prefer_uncore!r}")
            return lambda: packed(machine, free, count, prefer_uncore=prefer_uncore, spread=spread)
        chunk = _whole_number(case, "group_size", default=1)
        if chunk < 1:
            raise QuestionError(f"group_size must be at least 1, got {chunk}")
        return lambda: distributed(machine, free, count, chunk, spread=spread)

    def _answer(self, call: Callable[[], int]) -> Answer:
        answer, fastest = _timed(call)
        for _ in range(self.bench - 1):
            fastest = min(fastest, _timed(call)[1])
        return {**answer, "ns": fastest} if self.bench else answer

    def _name(self, asked: object) -> str:
        """A machine that stands alone needs no name, and has none when `topology -o json` described it."""
        if ONLY in self.topologies:
            return ONLY
        if asked is None and len(self.topologies) == 1:
            return next(iter(self.topologies))
        if not isinstance(asked, str) or asked not in self.topologies:
            known = ", ".join(self.topologies)
            which = "no topology is named" if asked is None else f"topology {asked!r} is not known"
            raise QuestionError(f"{which}; known are {known}")
        return asked

    def _machine(self, name: str) -> Machine:
        if name not in self._machines:
            self._machines[name] = Machine.of(self.topologies[name])
        return self._machines[name]


def cpuset_of(text: str, what: str) -> CpuSet:
    """Reads the list format of a field or an option."""
    try:
        return CpuSet.parse(text)
    except CpuSetError as error:
        raise QuestionError(f"{what}: {error}") from error


def _decoded(line: bytes) -> Mapping[str, object]:
    try:
        case = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise QuestionError(f"not JSON: {error}") from error
    if not isinstance(case, dict):
        raise QuestionError("a case must be a JSON object")
    return case


def _timed(call: Callable[[], int]) -> tuple[Answer, int]:
    """What the allocator answers, and after how many nanoseconds."""
    start = time.perf_counter_ns()
    try:
        mask = call()
    except AllocationError as error:
        took = time.perf_counter_ns() - start
        return {"error": str(error)}, took
    took = time.perf_counter_ns() - start
    return {"cpus": str(CpuSet.of_mask(mask))}, took


def _whole_number(case: Mapping[str, object], name: str, default: int | None = None) -> int:
    value = case.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool):
        raise QuestionError(f"{name} must be a whole number, got {value!r}" if name in case else f"{name} is missing")
    return value


def _one_of(case: Mapping[str, object], name: str, known: tuple[str, ...]) -> str:
    """The value of a field that has a few; the first one where it is left out."""
    value = case.get(name, known[0])
    if not isinstance(value, str) or value not in known:
        raise QuestionError(f"{name} must be {' or '.join(known)}, got {value!r}")
    return value


def _available(case: Mapping[str, object], machine: Machine) -> int:
    """CPUs that the machine does not have are no mistake: the allocator does not see them."""
    value = case.get("available")
    if value is None:
        return machine.cpus
    if not isinstance(value, str):
        raise QuestionError(f'available must be a text like "0-3,8", got {value!r}')
    return (cpuset_of(value, "available") if value else EMPTY).mask
