"""The command line."""

import sys
from pathlib import Path

import pytest

from dracpu_api.objects.definitions import crds
from dracpu_operator.__main__ import main
from dracpu_operator.options import parse, run_options


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    """Returns the argument of `sys.exit`, or None when the command succeeded."""
    monkeypatch.setattr(sys, "argv", ["dracpu-operator", *arguments])
    try:
        main()
    except SystemExit as end:
        return end.code
    return None


def test_crds_are_printed_as_one_stream_of_documents(monkeypatch, capsys) -> None:
    assert call(monkeypatch, "crds") is None
    assert capsys.readouterr().out.split("---\n") == list(crds().values())


def test_valid_objects_print_nothing(monkeypatch, capsys, tmp_path) -> None:
    file = tmp_path / "good.yaml"
    file.write_text(
        "kind: CpuDriverConfig\nmetadata: {name: a}\n---\nkind: CpuDriverConfig\nspec: {mode: individual}\n"
    )
    assert call(monkeypatch, "validate", str(file)) is None
    assert capsys.readouterr().out == ""


def test_each_problem_is_a_line_that_names_the_object_and_the_field(monkeypatch, capsys, tmp_path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(
        "kind: CpuDriverConfig\nmetadata: {name: a}\nspec: {mode: x, reservedCPUs: 3-1}\n---\n"
        "kind: CpuDriverConfig\nspec: {mod: grouped}\n---\nkind: Pod\n"
    )
    assert call(monkeypatch, "validate", str(file)) == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert lines[0].startswith(f"{file}: CpuDriverConfig a: spec.mode: ")
    assert lines[2] == f"{file}: object 2: spec.mod: unknown field: misspelt, or made for a newer version"
    assert "kind must be CpuDriverConfig or CpuNode" in lines[3]


def test_wrong_settings_of_memory_are_reported_by_field(monkeypatch, capsys, tmp_path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(
        "kind: CpuDriverConfig\nmetadata: {name: a}\nspec:\n  memory:\n    enable: true\n    hugepages: [2M]\n"
        "    reserved: [{numaNode: 0, memory: 1.5Gi}, {numaNode: 1}, {numaNode: 2, hugepages_2Mi: 3Mi}]\n"
        "    publish: Both\n    provision: [{numaNode: 0, size: 1Gi, pages: 4}, {numaNode: 0, size: 2Mi, pages: 0}]\n"
    )
    assert call(monkeypatch, "validate", str(file)) == 1
    lines = [line.removeprefix(f"{file}: CpuDriverConfig a: ") for line in capsys.readouterr().out.splitlines()]
    assert {line.partition(": ")[0]: line.partition(": ")[2].partition(":")[0] for line in lines} == {
        "spec.memory.enable": "unknown field",
        "spec.memory.hugepages[0]": "not a size of hugepages",
        "spec.memory.reserved[0].memory": "not an amount of memory",
        "spec.memory.reserved[1]": "the entry reserves nothing",
        "spec.memory.reserved[2].hugepages_2Mi": "not whole pages",
        "spec.memory.publish": "Input should be 'Devices' or 'WithCPUs'",
        "spec.memory.provision[0].size": "pages of 1Gi and larger cannot be made while a machine runs",
        "spec.memory.provision[1].pages": "Input should be greater than or equal to 1",
    }


def test_a_file_without_objects_is_an_error(monkeypatch, capsys, tmp_path) -> None:
    file = tmp_path / "empty.yaml"
    file.write_text("---\n")
    assert call(monkeypatch, "validate", str(file)) == 1
    assert "the file has no objects" in capsys.readouterr().out


@pytest.mark.parametrize("content", [None, "a: [", b"\xff\xfe\x00"])
def test_a_file_that_cannot_be_read_is_reported_in_one_line(monkeypatch, tmp_path, content) -> None:
    file = tmp_path / "config.yaml"
    if content is not None:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert str(call(monkeypatch, "validate", str(file))).startswith(f"dracpu-operator: cannot read {file}")


def test_options_come_from_the_command_line_then_from_the_environment() -> None:
    environment = {"DRACPU_OPERATOR_HTTP_ADDRESS": ":9", "DRACPU_OPERATOR_LOG_LEVEL": "debug"}
    options = run_options(parse(["run", "--http-address", ":8", "--kubeconfig", "k"], environment))
    assert (options.http_address, options.log_level, options.kubeconfig) == (":8", "debug", Path("k"))
    assert run_options(parse(["run"], {})).kubeconfig is None


def test_an_operator_in_a_pod_takes_part_in_the_election_unless_it_is_told_otherwise() -> None:
    variable = "DRACPU_OPERATOR_LEADER_ELECT"

    def elects(*arguments: str, **environment: str) -> bool:
        return run_options(parse(["run", *arguments], environment)).leader_elect

    assert elects()
    assert not elects("--no-leader-elect")
    assert not elects(**{variable: "false"})
    assert not elects("--kubeconfig", "k"), "outside of a pod, for which there is no namespace of its own"
    assert elects("--kubeconfig", "k", "--leader-elect")
    assert elects("--kubeconfig", "k", **{variable: "true"})


def test_a_wrong_choice_of_the_election_is_refused(capsys) -> None:
    with pytest.raises(SystemExit):
        parse(["run"], {"DRACPU_OPERATOR_LEADER_ELECT": "perhaps"})
    assert "DRACPU_OPERATOR_LEADER_ELECT must be true or false, not 'perhaps'" in capsys.readouterr().err


def test_a_wrong_choice_in_the_environment_is_refused(capsys) -> None:
    with pytest.raises(SystemExit):
        parse(["run"], {"DRACPU_OPERATOR_LOG_FORMAT": "xml"})
    assert "'xml' is not one of json, text" in capsys.readouterr().err
