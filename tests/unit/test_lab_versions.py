"""The versions of Kubernetes, containerd and runc can be chosen, and a version that cannot work is refused at once."""

import json
from pathlib import Path

import pytest
from lab.cli import main
from lab.cluster import Lab
from lab.errors import LabError
from lab.nodes import Machine
from lab.paths import Paths
from lab.versions import Versions


def test_the_environment_chooses_versions_and_what_it_does_not_name_has_its_default() -> None:
    chosen = Versions.from_environment({"LAB_KUBERNETES": "v1.34.4", "LAB_RUNC": ""})
    assert chosen == Versions(kubernetes="v1.34.4")


@pytest.mark.parametrize("version", ["1.36.3", "v1.36", "latest", "v1.36.3/../x", ""])
def test_text_that_is_not_a_version_is_refused(version: str) -> None:
    with pytest.raises(LabError, match="is not a version of kubernetes: write it like v1.2.3"):
        Versions(kubernetes=version)


def test_a_release_candidate_is_a_version() -> None:
    assert str(Versions(kubernetes="v1.37.0-rc.1")).startswith("kubernetes-v1.37.0-rc.1_containerd-")


@pytest.mark.parametrize(
    ("chosen", "oldest"), [({"kubernetes": "v1.33.9"}, "1.34"), ({"containerd": "v1.7.27"}, "2.0")]
)
def test_a_version_that_the_lab_cannot_run_is_refused(chosen: dict[str, str], oldest: str) -> None:
    with pytest.raises(LabError, match=f"the lab cannot run .*: choose {oldest} or newer"):
        Versions(**chosen)


def test_the_command_line_reports_a_wrong_version_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up", "--kubernetes", "newest"]) == 1
    assert capsys.readouterr().err == "lab: 'newest' is not a version of kubernetes: write it like v1.2.3\n"


def test_a_cluster_of_versions_that_were_not_built_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="runc-v1.4.0 is missing: run `python -m lab build` with the same versions"):
        Lab(Paths(tmp_path, Versions(runc="v1.4.0"))).up(1, Machine())


def test_commands_for_the_cluster_use_its_versions(tmp_path: Path) -> None:
    given, started = Paths(tmp_path), Versions(kubernetes="v1.35.4")
    assert Lab.of_cluster(given).paths == given
    (tmp_path / "versions.json").write_text(json.dumps({"kubernetes": "v1.35.4"}))
    assert Lab.of_cluster(given).paths.versions == started
