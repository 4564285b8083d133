"""`dracpu-agent plan`: prints which CPUs and memory a request would get.

Questions come in two forms. A case, one JSON object on a line of standard input, passes the kubelet's own parameters to
the allocator (docs/user/which-cpus.md has the fields); programs use it to ask many questions. With --cpus, --memory or
--hugepages, the options describe one question with the settings of a CpuDriverConfig, which takes the path of a claim's
request.

An answer is {"id", "cpus"} or {"id", "error"}, with memory also {"numaNode", "memory", "hugepages_2Mi"}. --bench adds
"ns", the nanoseconds of the fastest call.
"""

import json
import signal
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dracpu_agent.allocation.choose import Ask, choose
from dracpu_agent.allocation.distributed import distributed
from dracpu_agent.allocation.errors import AllocationError
from dracpu_agent.allocation.machine import Machine
from dracpu_agent.allocation.packed import packed
from dracpu_agent.cli.options import InputError, cpuset_of
from dracpu_agent.cli.plan_memory import MemoryQuestion, memory_question
from dracpu_agent.devices.grouping import divided_over
from dracpu_agent.devices.publish import resolve
from dracpu_agent.host.sysfs import read
from dracpu_agent.topology.described import ONLY, machines
from dracpu_agent.topology.topology import Topology, TopologyError
from dracpu_api.cpuset import EMPTY, CpuSet
from dracpu_api.device_names import group_device
from dracpu_api.settings import Allocation, GroupBy, Strategy

Answer = dict[str, object]
MODES: Final = ("numa-packed", "numa-distributed")
STRATEGIES: Final = ("packed", "spread")


def print_answers(parsed: Namespace) -> None:
    """The command."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `dracpu-agent plan ... | head` ends without a traceback
    memory = memory_question(parsed)
    planner = Planner(_topologies(parsed), parsed.bench)
    if parsed.cpus is not None or memory is not None:
        cpus = None if parsed.cpus is None else _question(parsed)
        answer = planner.answer_all(cpus, memory, parsed.machine)
        print(json.dumps(answer))
        sys.exit("error" in answer)
    if parsed.reserved or any(option is not None for option in (parsed.available, parsed.cpuset, parsed.machine)):
        raise InputError("--available, --reserved, --cpuset and --machine need --cpus; a case has fields instead")
    if sys.stdin.isatty():
        raise InputError("nothing to answer: set --cpus or --memory, or write cases to standard input")
    invalid: list[int] = []
    for number, line in enumerate(sys.stdin.buffer, start=1):
        if not line.strip():
            continue
        answer, valid = planner.answer_line(line, number)
        print(json.dumps(answer), flush=True)  # a program may wait for this answer before it writes the next case
        if not valid:
            invalid.append(number)
    if invalid:
        raise InputError(f"invalid cases: {len(invalid)}, the first on line {invalid[0]}; the answers name the errors")


def _topologies(parsed: Namespace) -> Mapping[str, Topology]:
    if parsed.topology is None:
        return {ONLY: read(Path(parsed.sysfs_root), Path(parsed.procfs_root))}
    try:
        return machines(Path(parsed.topology).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, TopologyError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"--topology {parsed.topology}: {reason}") from error


@dataclass(frozen=True, slots=True)
class Question:
    """The question that the options describe: one request for one device."""

    ask: Ask
    device: str | None  # None: all CPUs, or those of the NUMA node of the memory
    available: CpuSet | None  # None: all CPUs are free
    reserved: CpuSet


def _question(parsed: Namespace) -> Question:
    allocation = Allocation(
        Strategy(parsed.strategy), full_cores=parsed.full_cores, prefer_uncore_cache=parsed.prefer_uncore
    )
    explicit = None if parsed.cpuset is None else cpuset_of(parsed.cpuset, "--cpuset")
    return Question(
        ask=Ask(parsed.cpus, allocation, explicit),
        device=parsed.device,
        available=None if parsed.available is None else cpuset_of(parsed.available, "--available"),
        reserved=cpuset_of(parsed.reserved, "--reserved"),
    )


@dataclass(frozen=True)
class Planner:
    """Answers questions about these machines."""

    topologies: Mapping[str, Topology]
    bench: int = 0  # how often to time each question; 0: answer once, without a time
    _machines: dict[str, Machine] = field(default_factory=dict)

    def answer_line(self, line: bytes, number: int) -> tuple[Answer, bool]:
        """The answer to a case, and whether the case is valid. An invalid case is answered with the error."""
        case: Mapping[str, object] = {}
        try:
            case = _decoded(line)
            return {"id": case.get("id"), **self._answer(self._call(case))}, True
        except InputError as error:
            return {"id": case.get("id"), "error": f"line {number}: {error}"}, False

    def answer_all(self, cpus: Question | None, memory: MemoryQuestion | None, machine_name: str | None) -> Answer:
        """The answer to the question that the options describe: CPUs, memory, or both from one NUMA node."""
        if memory is None:
            assert cpus is not None
            return self._cpus(cpus, cpus.device or group_device(GroupBy.MACHINE, 0), machine_name)
        refusals = []
        for numa in memory.candidates():
            device = group_device(GroupBy.NUMA_NODE, numa)
            if cpus is not None and cpus.device not in (None, device):
                refusals.append(f"NUMA node {numa}: its device is {device}")
                continue
            answer: Answer = {}
            refusal = memory.lacking(numa)
            if not refusal and cpus is not None:
                answer = self._cpus(cpus, device, machine_name)
                refusal = str(answer.get("error", ""))
            if not refusal:
                return answer | memory.answer(numa)
            refusals.append(f"NUMA node {numa}: {refusal}")
        return {"error": "; ".join(refusals)}

    def _cpus(self, question: Question, device: str, machine_name: str | None) -> Answer:
        name = self._name(machine_name)
        topology, machine = self.topologies[name], self._machine(name)
        group = resolve(topology, device)
        if group is None:
            if question.device is None:
                return {"error": "it has no CPUs"}
            raise InputError(f"this machine has no device {device}")
        over = divided_over(device)
        available = (topology.online if question.available is None else question.available) - question.reserved
        return self._answer(
            lambda: choose(machine, group, available, question.ask, over, reserved=question.reserved).mask
        )

    def _call(self, case: Mapping[str, object]) -> Callable[[], int]:
        """The call of the allocator that answers a case; raises InputError for an invalid case."""
        machine = self._machine(self._name(case.get("topology")))
        count = _whole_number(case, "num")
        mode, strategy = _one_of(case, "mode", MODES), _one_of(case, "strategy", STRATEGIES)
        free, spread = _available(case, machine), strategy == "spread"
        if mode == "numa-packed":
            prefer_uncore = case.get("prefer_uncore", False)
            if not isinstance(prefer_uncore, bool):
                raise InputError(f"prefer_uncore must be true or false, got {prefer_uncore!r}")
            return lambda: packed(machine, free, count, prefer_uncore=prefer_uncore, spread=spread)
        chunk = _whole_number(case, "group_size", default=1)
        if chunk < 1:
            raise InputError(f"group_size must be at least 1, got {chunk}")
        return lambda: distributed(machine, free, count, chunk, spread=spread)

    def _answer(self, call: Callable[[], int]) -> Answer:
        answer, fastest = _timed(call)
        for _ in range(self.bench - 1):
            fastest = min(fastest, _timed(call)[1])
        return {**answer, "ns": fastest} if self.bench else answer

    def _name(self, asked: object) -> str:
        """The machine's name. A single machine need not be named; the output of `topology -o json` has no name."""
        if ONLY in self.topologies:
            return ONLY
        if asked is None and len(self.topologies) == 1:
            return next(iter(self.topologies))
        if not isinstance(asked, str) or asked not in self.topologies:
            known = ", ".join(self.topologies)
            problem = "no machine is named" if asked is None else f"no machine is called {asked!r}"
            raise InputError(f"{problem}: choose one of {known}")
        return asked

    def _machine(self, name: str) -> Machine:
        if name not in self._machines:
            self._machines[name] = Machine.of(self.topologies[name])
        return self._machines[name]


def _decoded(line: bytes) -> Mapping[str, object]:
    try:
        case = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"not JSON: {error}") from error
    if not isinstance(case, dict):
        raise InputError("a case must be a JSON object")
    return case


def _timed(call: Callable[[], int]) -> tuple[Answer, int]:
    """The allocator's answer, and the nanoseconds that it took."""
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
        raise InputError(f"{name} must be a whole number, got {value!r}" if name in case else f"{name} is missing")
    return value


def _one_of(case: Mapping[str, object], name: str, known: tuple[str, ...]) -> str:
    """A field that takes one of the `known` values; the first of them is the default."""
    value = case.get(name, known[0])
    if not isinstance(value, str) or value not in known:
        raise InputError(f"{name} must be {' or '.join(known)}, got {value!r}")
    return value


def _available(case: Mapping[str, object], machine: Machine) -> int:
    """The free CPUs. CPUs that the machine does not have are ignored, not refused."""
    value = case.get("available")
    if value is None:
        return machine.cpus
    if not isinstance(value, str):
        raise InputError(f'available must be a string like "0-3,8", got {value!r}')
    return (cpuset_of(value, "available") if value else EMPTY).mask
