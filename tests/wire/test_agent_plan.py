"""`dracpu-agent plan` as other programs and people run it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from machine_answers import topology_of

import vectors
from dracpu_agent.topology.export import to_json
from dracpu_sandbox.machines.presets import LAB
from dracpu_sandbox.machines.tree import directory, write_tree

TOPOLOGIES = vectors.VECTORS / "topologies.json"
Run: TypeAlias = "subprocess.CompletedProcess[str]"


def plan(*arguments: str | Path, cases: str = "") -> Run:
    words = [sys.executable, "-m", "dracpu_agent", "plan", *map(str, arguments)]
    return subprocess.run(words, input=cases, capture_output=True, check=False, text=True, timeout=30)


def answers(run: Run) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run.stdout.splitlines()]


def one_line(run: Run) -> str:
    (line,) = run.stderr.splitlines()
    return line


@pytest.fixture
def lab_file(tmp_path):
    """Two sockets with two cores of two threads each, as `topology -o json` prints them."""
    file = tmp_path / "lab.json"
    file.write_text(to_json(topology_of(LAB)))
    return file


def test_cases_are_answered_one_by_one_in_order():
    lines = (vectors.VECTORS / "bench.jsonl").read_text()
    run = plan("--topology", TOPOLOGIES, cases=lines)
    assert run.returncode == 0
    assert run.stderr == ""
    assert answers(run) == [{"id": case.id, "cpus": str(case.cpus)} for case in vectors.bench()]


def test_a_case_that_cannot_be_served_is_an_answer_and_not_a_failure(lab_file):
    run = plan("--topology", lab_file, cases='{"id": 1, "num": 3, "available": "0-1"}\n{"id": 2, "num": 1}\n')
    assert run.returncode == 0
    assert answers(run) == [{"id": 1, "error": "3 CPUs requested, 2 free: 0-1"}, {"id": 2, "cpus": "0"}]


def test_bench_adds_nanoseconds_to_each_answer(lab_file):
    cases = '{"id": 1, "num": 2}\n{"id": 2, "num": 9}\n'
    timed = answers(plan("--topology", lab_file, "--bench", "3", cases=cases))
    assert [sorted(answer) for answer in timed] == [["cpus", "id", "ns"], ["error", "id", "ns"]]
    assert all(answer["ns"] > 0 for answer in timed)


CASES_AND_CPUS: list[tuple[dict[str, Any], str]] = [
    ({}, "0-1"),
    ({"available": "1-9,300"}, "2-3"),  # not all of these exist
    ({"available": "1-7", "strategy": "spread"}, "1-2"),
    ({"mode": "numa-distributed"}, "0-1"),
    ({"mode": "numa-distributed", "num": 6, "group_size": 2}, "0-5"),
    ({"mode": "numa-packed", "group_size": 0}, "0-1"),  # has no effect when packed
    ({"num": 0}, ""),
    ({"num": -1}, ""),
    ({"topology": "of any name", "kind": "an unknown field"}, "0-1"),
]


def test_fields_that_a_case_leaves_out_have_defaults(lab_file):
    cases = [{"id": number, "num": 2} | fields for number, (fields, _) in enumerate(CASES_AND_CPUS)]
    run = plan("--topology", lab_file, cases="\n".join(map(json.dumps, cases)))
    assert answers(run) == [{"id": number, "cpus": cpus} for number, (_, cpus) in enumerate(CASES_AND_CPUS)]


INVALID_LINES = [
    ("nonsense", "not JSON"),
    ("[" * 100_000, "not JSON"),
    ("[1]", "a case must be a JSON object"),
    ("{}", "num is missing"),
    ('{"num": "2"}', "num must be a whole number, got '2'"),
    ('{"num": 2.0}', "num must be a whole number, got 2.0"),
    ('{"num": true}', "num must be a whole number, got True"),
    ('{"num": 2, "mode": "packed"}', "mode must be numa-packed or numa-distributed, got 'packed'"),
    ('{"num": 2, "strategy": ["spread"]}', "strategy must be packed or spread, got ['spread']"),
    ('{"num": 2, "prefer_uncore": 1}', "prefer_uncore must be true or false, got 1"),
    ('{"num": 2, "available": "3-1"}', 'available: "3-1" is reversed: write "1-3"'),
    ('{"num": 2, "available": 7}', 'available must be a string like "0-3,8", got 7'),
    ('{"num": 2, "mode": "numa-distributed", "group_size": 0}', "group_size must be at least 1, got 0"),
]


def test_an_invalid_line_is_answered_with_an_error_and_the_others_are_served(lab_file):
    lines = [line for invalid, _ in INVALID_LINES for line in ('{"id": 1, "num": 1}', invalid, "")]
    run = plan("--topology", lab_file, cases="\n".join(lines))
    valid, invalid = answers(run)[::2], answers(run)[1::2]
    assert valid == [{"id": 1, "cpus": "0"}] * len(INVALID_LINES)
    for number, (answer, (_, message)) in enumerate(zip(invalid, INVALID_LINES, strict=True)):
        assert answer["error"].startswith(f"line {3 * number + 2}: {message}")
    assert run.returncode == 1
    assert one_line(run) == "dracpu-agent: invalid cases: 13, the first on line 2; the answers name the errors"


def test_a_case_must_name_one_of_several_machines():
    (answer,) = answers(plan("--topology", TOPOLOGIES, cases='{"id": 1, "num": 1}'))
    assert answer["error"].startswith("line 1: no machine is named: choose one of uma-4c, ")
    (answer,) = answers(plan("--topology", TOPOLOGIES, cases='{"id": 1, "num": 1, "topology": "mine"}'))
    assert answer["error"].startswith("line 1: no machine is called 'mine': choose one of uma-4c, ")


def test_a_question_in_options_is_answered_for_this_machine():
    with directory() as root:
        sysfs, procfs = write_tree(LAB, root)
        run = plan("--cpus", "3", "--available", "0-6", "--sysfs-root", sysfs, "--procfs-root", procfs)
    assert run.returncode == 0
    assert answers(run) == [{"cpus": "4-6"}]


@pytest.mark.parametrize(
    ("options", "cpus"),
    [
        ("--cpus 2", "0-1"),
        ("--cpus 2 --reserved 0", "4-5"),
        ("--cpus 2 --available 1-7 --device cpudevsocket001", "4-5"),
        ("--cpus 2 --available 1,3,4-7 --device cpudevnuma000", "1,3"),
        ("--cpus 2 --available 1,3 --no-prefer-uncore", "1,3"),
        ("--cpus 4 --available 0-3,6-7 --strategy distributed --device cpudevmachine", "0-3"),
        ("--cpus 6 --strategy distributed --full-cores", "0-5"),
        ("--cpus 2 --available 1-7 --cpuset 3-4", "3-4"),
        ("--cpus 1 --device cpudev005", "5"),
    ],
)
def test_a_question_in_options_uses_the_terms_of_the_settings(lab_file, options, cpus):
    run = plan("--topology", lab_file, *options.split())
    assert answers(run) == [{"cpus": cpus}]
    assert run.returncode == 0


def test_a_question_in_options_is_answered_for_one_of_several_machines():
    asked = ("--topology", TOPOLOGIES, "--cpus", "1")
    assert answers(plan(*asked, "--machine", "single-cpu")) == [{"cpus": "0"}]
    assert "no machine is named" in one_line(plan(*asked))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--cpus 9", "9 CPUs requested, 8 free: 0-7"),
        ("--cpus 3 --full-cores", "3 CPUs in whole cores requested; whole free cores: 4 with 2 CPUs"),
        ("--cpus 0", "0 CPUs requested: request a whole number of at least 1"),
        ("--cpus 2 --cpuset 0-1 --reserved 1", "1 of the cpuset 0-1 is reserved for the system"),
    ],
)
def test_a_question_that_cannot_be_served_gives_the_reason_and_fails(lab_file, options, message):
    run = plan("--topology", lab_file, *options.split())
    assert run.returncode == 1
    assert run.stderr == ""
    (answer,) = answers(run)
    assert message in answer["error"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--cpus 1 --device cpudevnuma009", "this machine has no device cpudevnuma009"),
        ("--available 0-3", "--available, --reserved, --cpuset and --machine need --cpus; a case has fields instead"),
        ("--cpus 1 --available x", '--available: "x" is not a cpuset'),
        ("--cpus 1 --reserved 3-1", '--reserved: "3-1" is reversed'),
        ("--cpus 1 --cpuset 9999", '--cpuset: "9999" names CPU 9999, above 8191'),
    ],
)
def test_invalid_options_are_reported_in_one_line(lab_file, options, message):
    run = plan("--topology", lab_file, *options.split())
    assert run.returncode == 1
    assert run.stdout == ""
    assert one_line(run).startswith(f"dracpu-agent: {message}")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"nonsense", "not JSON"),
        (b"\xff\xfe", "codec can't decode"),
        (b"{}", "expected what `dracpu-agent topology -o json` prints"),
        (b'{"a": []}', 'machine "a": a topology is a list of CPUs'),
        (b'{"a": [{"cpu": 0, "core": 0, "socket": 0, "numa": 0, "uncore": "x"}]}', 'machine "a": item 0: uncore must'),
        (b'[{"cpu": 0, "core": 0, "socket": 0, "numa": 0, "l3": 0}]', "item 0 must be an object with exactly these"),
    ],
)
def test_an_invalid_topology_file_is_reported_in_one_line_with_its_name(tmp_path, content, message):
    file = tmp_path / "machines.json"
    file.write_bytes(content)
    run = plan("--topology", file, cases='{"num": 1}')
    assert run.returncode == 1
    assert run.stdout == ""
    assert one_line(run).startswith(f"dracpu-agent: --topology {file}: ")
    assert message in one_line(run)


def test_a_missing_topology_file_is_reported_in_one_line(tmp_path):
    assert one_line(plan("--topology", tmp_path / "x", cases="")).endswith("x: No such file or directory")


def test_plan_ends_silently_when_its_reader_ends(lab_file):
    words = [sys.executable, "-m", "dracpu_agent", "plan", "--topology", str(lab_file)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin
    assert process.stdout
    assert process.stderr
    process.stdin.write(b'{"id": 1, "num": 1}\n')
    process.stdin.flush()
    assert json.loads(process.stdout.readline()) == {"id": 1, "cpus": "0"}  # while the input is still open
    process.stdout.close()
    process.stdin.write(b'{"id": 2, "num": 1}\n')
    process.stdin.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(10) != 0


MEMORY = [
    {"numa": 0, "cpus": "0-3", "tier": 4, "total": 4 << 30, "hugepages": {"2Mi": {"pages": 64, "free": 64}}},
    {"numa": 1, "cpus": "4-7", "tier": 4, "total": 8 << 30, "hugepages": {"2Mi": {"pages": 512, "free": 0}}},
    {"numa": 2, "cpus": "", "tier": 22, "total": 64 << 30, "hugepages": {}},
]


@pytest.fixture
def memory_file(tmp_path):
    """The memory of three NUMA nodes, as `memory -o json` prints it."""
    file = tmp_path / "memory.json"
    file.write_text(json.dumps(MEMORY))
    return file


QUESTIONS_AND_ANSWERS: list[tuple[list[str], dict[str, Any]]] = [
    (["--memory", "3Gi", "--cpus", "2"], {"cpus": "0-1", "numaNode": 0, "memory": "3Gi"}),
    (["--memory", "5Gi", "--cpus", "2"], {"cpus": "4-5", "numaNode": 1, "memory": "5Gi"}),
    (["--memory", "5e9", "--numa", "2"], {"numaNode": 2, "memory": "5000000000"}),
    (["--memory", "1Gi", "--available", "6-7", "--cpus", "2"], {"cpus": "6-7", "numaNode": 1, "memory": "1Gi"}),
    (["--memory", "1"], {"numaNode": 0, "memory": "16Mi"}),  # the smallest amount that the scheduler gives
    (["--hugepages", "2Mi=3Mi"], {"numaNode": 0, "hugepages_2Mi": "4Mi"}),  # whole pages
    (["--hugepages", "2Mi=1Gi", "--cpus", "4"], {"cpus": "4-7", "numaNode": 1, "hugepages_2Mi": "1Gi"}),
]


@pytest.mark.parametrize(("options", "expected"), QUESTIONS_AND_ANSWERS)
def test_memory_is_answered_with_the_first_numa_node_that_has_all(lab_file, memory_file, options, expected):
    run = plan("--topology", lab_file, "--memory-of", memory_file, *options)
    assert (answers(run), run.returncode) == ([expected], 0)


def test_what_each_numa_node_lacks_is_the_answer_when_none_has_all(lab_file, memory_file):
    run = plan("--topology", lab_file, "--memory-of", memory_file, "--memory", "9Gi", "--cpus", "5")
    (answer,) = answers(run)
    assert run.returncode == 1
    first, second, third = answer["error"].split("; ")
    assert first.startswith("NUMA node 0: ")
    assert first.endswith(" of memory instead of 9Gi")
    assert second.startswith("NUMA node 1: ")
    assert third == "NUMA node 2: it has no CPUs"


def test_a_device_must_be_that_of_the_numa_node_with_the_memory(lab_file, memory_file):
    options = ["--topology", lab_file, "--memory-of", memory_file, "--cpus", "1", "--memory", "1Gi"]
    (answer,) = answers(plan(*options, "--device", "cpudevnuma001"))
    assert answer == {"cpus": "4", "numaNode": 1, "memory": "1Gi"}
    (answer,) = answers(plan(*options, "--device", "cpudevmachine"))
    assert answer["error"].startswith("NUMA node 0: its device is cpudevnuma000; NUMA node 1: ")


def test_memory_of_this_machine_is_read_from_its_files():
    with directory() as root:
        sysfs, procfs = write_tree(LAB, root)
        (answer,) = answers(plan("--sysfs-root", sysfs, "--procfs-root", procfs, "--memory", "64Mi", "--cpus", "1"))
    assert answer == {"cpus": "0", "numaNode": 0, "memory": "64Mi"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--memory", "some"], "--memory must be an amount such as \"512Mi\", got 'some'"),
        (["--hugepages", "1Gi"], '--hugepages 1Gi: must be an amount such as "512Mi"'),
        (["--hugepages", "3Mi=1Gi"], '--hugepages 3Mi=1Gi: write a size and an amount, such as "2Mi=1Gi"'),
        (["--memory", "1Gi", "--numa", "7"], "--numa 7: this machine has memory on the NUMA nodes 0, 1, 2"),
        (["--numa", "0", "--cpus", "1"], "--numa and --memory-of need --memory or --hugepages"),
    ],
)
def test_questions_about_memory_that_cannot_be_understood_are_refused(lab_file, memory_file, options, message):
    given = [] if "--memory" not in " ".join(options) and "--hugepages" not in options else ["--memory-of", memory_file]
    run = plan("--topology", lab_file, *given, *options)
    assert run.returncode == 1
    assert message in one_line(run)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "expected what `dracpu-agent memory -o json` prints"),
        ("[]", "expected what `dracpu-agent memory -o json` prints"),
        ("[{}]", "item 0 must be an object with the fields numa, cpus, total and hugepages"),
        ('[{"numa": 0, "cpus": "3-1", "total": 1, "hugepages": {}}]', "item 0: cpus: "),
        ('[{"numa": 0, "cpus": "", "total": 1, "hugepages": {"3Mi": {"pages": 1, "free": 1}}}]', "item 0: hugepages"),
        (json.dumps([MEMORY[0], MEMORY[0]]), "a NUMA node is described twice"),
        ("x", "not JSON"),
    ],
)
def test_a_file_that_does_not_describe_memory_is_refused(lab_file, tmp_path, text, message):
    file = tmp_path / "memory.json"
    file.write_text(text)
    run = plan("--topology", lab_file, "--memory-of", file, "--memory", "1Gi")
    assert run.returncode == 1
    assert one_line(run).startswith(f"dracpu-agent: --memory-of {file}: {message}")


def test_a_topology_file_needs_a_file_of_the_same_machines_memory(lab_file):
    run = plan("--topology", lab_file, "--memory", "1Gi")
    assert run.returncode == 1
    assert "write that of the same machine with --memory-of" in one_line(run)
