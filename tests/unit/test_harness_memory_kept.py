"""The check of the cluster tests finds every moment at which a claim of memory was not kept."""

import json
from typing import Any, Final

import pytest
from harness.memory_kept import Fault, Kind, MemoryVerdict, judge_memory
from harness.release import NAMESPACE
from harness.samples import ORDINARY, PAGES, parse

MI: Final = 1024**2
CLAIM: Final = "11111111-2222"
ENV: Final = (
    f"DRAMEMORY_{CLAIM}_memory_memory=numanode:1,size:32Mi",
    f"DRAMEMORY_{CLAIM}_memory_NUMANodes=1",
    f"DRAMEMORY_{CLAIM}_pages_2mi_hugepages_2Mi=numanode:1,size:4Mi",
    f"DRAMEMORY_{CLAIM}_pages_2mi_NUMANodes=1",
)
THERE: Final = {(ORDINARY, 0): 64 * MI, (ORDINARY, 1): 64 * MI, (PAGES, 0): 8 * MI, (PAGES, 1): 8 * MI}
OWN: Final = str(4 * MI)
KEPT: Final = ["1", str(32 * MI), OWN, OWN, f"total={OWN} N0=0 N1={OWN}\n", OWN, OWN]
NOTHING: Final = ["", "max", "0", "0", "total=0 N0=0 N1=0", OWN, OWN]


class Log:
    """Writes a log like the sampler's."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def found(self, at: float, name: str, *env: str, namespace: str = "ns") -> None:
        about = {"id": name, "kind": "container", "namespace": namespace, "pod": "pod", "name": name, "env": env}
        self.lines.append({"at": at, "found": about})

    def state(self, at: float, name: str, memory: list[str], *, running: bool = True) -> None:
        cpus = dict.fromkeys(("cpus", "effective", "allowed"), "2-3")
        state = {**cpus, "running": running, "preparing": False, "memory": memory}
        self.lines.append({"at": at, "container": name, "state": state})

    def prepared(self, at: float, claim: str, *env: str) -> None:
        self.lines.append({"at": at, "claim": claim, "driver": "memory", "env": env})

    def released(self, at: float, claim: str) -> None:
        self.lines.append({"at": at, "released": claim, "driver": "memory"})

    def verdict(self, synchronized: tuple[float, ...] = ()) -> MemoryVerdict:
        lines = [
            *sorted(self.lines, key=lambda line: line["at"]),
            {"at": 100, "readings": 9, "slowest": 0.1, "end": True},
        ]
        return judge_memory(parse("".join(json.dumps(line) + "\n" for line in lines)), synchronized, THERE)


@pytest.fixture
def log() -> Log:
    """An agent runs, and a container with a claim of memory beside one without, in one pod."""
    made = Log()
    made.found(1, "agent", namespace=NAMESPACE)
    made.state(1, "agent", ["", "max", "max", "max", "", "max", "max"])
    made.prepared(1, CLAIM, *ENV)
    made.found(1, "user", *ENV)
    made.state(1, "user", KEPT)
    made.found(1, "beside")
    made.state(1, "beside", NOTHING)
    return made


def spans(verdict: MemoryVerdict) -> list[tuple[Kind, str, float, float]]:
    return [
        (item.fault.kind, item.fault.subject.partition(" ")[0], item.span.start, item.span.end)
        for item in verdict.violations
    ]


def test_claims_that_are_kept_violate_nothing(log: Log) -> None:
    log.state(10, "user", [*KEPT[:4], "total=0 N0=0 N1=0\n", *KEPT[5:]])
    log.released(20, CLAIM)
    assert spans(log.verdict()) == []


def test_a_smaller_limit_is_that_of_the_spec(log: Log) -> None:
    log.state(10, "user", ["1", str(16 * MI), *KEPT[2:]])
    assert spans(log.verdict()) == []


@pytest.mark.parametrize(
    ("changed", "kind"),
    [
        ({1: "max"}, Kind.LIMIT),
        ({1: str(64 * MI)}, Kind.LIMIT),
        ({0: ""}, Kind.PLACE),
        ({0: "0-1"}, Kind.PLACE),
        ({4: f"total={OWN} N0={OWN} N1=0\n"}, Kind.PLACE),
        ({2: "max"}, Kind.PAGES),
        ({3: "0"}, Kind.PAGES),
    ],
)
def test_a_container_with_other_limits_is_found_for_as_long_as_it_has_them(
    log: Log, changed: dict[int, str], kind: Kind
) -> None:
    log.state(10, "user", [changed.get(number, text) for number, text in enumerate(KEPT)])
    log.state(21, "user", KEPT)
    assert spans(log.verdict()) == [(kind, "pod/user", 10, 21)]


def test_a_container_without_a_claim_has_none_of_the_pages(log: Log) -> None:
    log.state(10, "beside", [*NOTHING[:3], OWN, *NOTHING[4:]])
    log.state(11, "beside", NOTHING)
    assert spans(log.verdict()) == [(Kind.PAGES, "pod/beside", 10, 11)]


def test_the_runtime_may_take_a_moment_to_limit_a_resized_container(log: Log) -> None:
    log.state(10, "user", ["1", str(64 * MI), *KEPT[2:]])
    log.state(11, "user", KEPT)
    assert spans(log.verdict()) == []


def test_the_limits_of_a_pod_may_be_wrong_for_as_long_as_a_repair_takes(log: Log) -> None:
    log.state(10, "user", [*KEPT[:5], "0", "0"])
    log.state(19, "user", KEPT)
    log.state(20, "user", [*KEPT[:5], OWN, "0"])
    log.state(31, "user", KEPT)
    assert spans(log.verdict()) == [(Kind.PAGES_OF_POD, "pod", 20, 31)]


def test_more_than_there_is_must_not_be_promised(log: Log) -> None:
    log.prepared(10, "other", "DRAMEMORY_other_hugepages_2Mi=numanode:0,size:8Mi;numanode:1,size:6Mi")
    log.released(12, "other")
    assert [item.fault for item in log.verdict().violations] == [Fault(Kind.PROMISED, f"{PAGES} of NUMA node 1")]


def test_what_happens_without_an_agent_is_excused_and_so_are_the_containers_that_were_created_then(log: Log) -> None:
    log.state(10, "agent", NOTHING, running=False)
    log.found(12, "late", *ENV)
    log.state(12, "late", ["", "max", OWN, OWN, "", OWN, OWN])
    log.state(13, "user", ["", *KEPT[1:]])
    log.state(13.5, "user", KEPT)
    log.state(14, "agent", NOTHING)
    log.state(30, "user", [*KEPT[:3], "0", *KEPT[4:]])
    # both containers have the claim: their pod has it twice in this log
    found = [item for item in spans(log.verdict((15.0,))) if item[0] is not Kind.PAGES_OF_POD]
    assert found == [(Kind.PAGES, "pod/user", 30, 100)]
