"""Computes the answers in tests/vectors anew, with the kubelet's own CPU manager.

The manager is compiled from the Go module of Kubernetes, of which one file is copied into a module of its own.
"""

import gzip
import json
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from lab.host import run
from lab.programs import kubernetes_module, module_file, staging_of
from record_errors import RecordError

from dracpu_api.cpuset import CpuSet
from vectors import VECTORS

JsonObject = dict[str, Any]

_ASKING: Final = Path(__file__).with_name("kubelet") / "answers.go"
_ASKED: Final = "pkg/kubelet/cm/cpumanager/cpu_assignment.go"
# uneven machines: cores of different sizes, or NUMA nodes that sockets do not divide; any CPUs are right there
_UNEVEN: Final = frozenset({"asym-offline", "hybrid-6p8e2lpe", "vm-odd-2s3n", "vm-odd-3s3n"})
# The kubelet keeps a slice that its search overwrites later. Where a copy leads to another answer, any answer is right.
_OVERWRITTEN: Final = "return f(accum)"
_COPIED: Final = "return f(append([]int(nil), accum...))"
_ALIGNING: Final = ("alignBySocket bool", ", strategy, false)", ", strategy)")  # a parameter since Kubernetes 1.37


def record(version: str) -> int:
    """Writes the answers into the vectors; returns the number of answers."""
    machines = json.loads((VECTORS / "topologies.json").read_text())
    cpus_of = {name: CpuSet(cpu["cpu"] for cpu in cpus) for name, cpus in machines.items()}
    questions = [json.loads(line) for line in gzip.decompress((VECTORS / "vectors.jsonl.gz").read_bytes()).splitlines()]
    timed = [json.loads(line) for line in (VECTORS / "bench.jsonl").read_text().splitlines()]
    answers = _ask(version, [machines, *questions])
    others = _ask(version, [machines, *questions], mended=True)
    times = _ask(version, [machines, *({**question, "time": True} for question in timed)])
    answered = [
        _vector(question, answer if answer == other else {**answer, "error": "overwritten"}, cpus_of)
        for question, answer, other in zip(questions, answers, others, strict=True)
    ]
    measured = [{**question, **answer} for question, answer in zip(timed, times, strict=True)]
    # compressed without the time of day, so that the same answers are the same file
    (VECTORS / "vectors.jsonl.gz").write_bytes(gzip.compress(_lines(answered), mtime=0))
    (VECTORS / "bench.jsonl").write_bytes(_lines(measured))
    return len(answered)


def _vector(question: JsonObject, answer: JsonObject, cpus_of: Mapping[str, CpuSet]) -> JsonObject:
    """A question with what is expected of an allocator."""
    asked = {key: value for key, value in question.items() if key not in {"cpus", "expect"}}
    available, cpus = CpuSet.parse(question["available"]), CpuSet.parse(answer["cpus"])
    if len(available & cpus_of[question["topology"]]) < question["num"]:
        return {**asked, "expect": "refuse"}
    is_right = "error" not in answer and len(cpus) == question["num"] and cpus <= available
    if question["topology"] in _UNEVEN or not is_right:
        return {**asked, "expect": "valid"}
    return {**asked, "cpus": answer["cpus"], "expect": "exact"}


def _ask(version: str, lines: Iterable[JsonObject], *, mended: bool = False) -> list[JsonObject]:
    with tempfile.TemporaryDirectory() as made:
        folder, sources = Path(made), kubernetes_module(version)
        (folder / "go.mod").write_text(module_file("k8s.io/kubernetes", version, staging_of(sources, version)))
        asked = (sources / _ASKED).read_text().replace("package cpumanager", "package main", 1)
        if asked.count(_OVERWRITTEN) != 1:
            raise RecordError(f"{_ASKED} of Kubernetes {version} has no `{_OVERWRITTEN}`: look what it does instead")
        (folder / "asked.go").write_text(asked.replace(_OVERWRITTEN, _COPIED) if mended else asked)
        parameter, with_it, without_it = _ALIGNING
        asking = _ASKING.read_text()
        (folder / "asking.go").write_text(asking if parameter in asked else asking.replace(with_it, without_it))
        env = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=mod"}
        run("go", "build", "-o", folder / "answers", ".", cwd=folder, env=env)
        printed = run(folder / "answers", text="\n".join(map(json.dumps, lines)))
    return [json.loads(line) for line in printed.splitlines()]


def _lines(entries: Iterable[JsonObject]) -> bytes:
    return "".join(f"{json.dumps(entry, separators=(',', ':'))}\n" for entry in entries).encode()
