"""The next version, which tests of upgrades use: it adds what a release may add, and changes no revision by itself."""

from pathlib import Path

import pytest
from next_version import NEXT, PRESENT, HistoryError, NextVersionError, Version, former_version, next_version, patched

REVISION = """
from dracpu_operator.known.read import revision_of
from dracpu_api.settings import decode_settings
print(revision_of(decode_settings({})))
"""


@pytest.fixture(scope="module")
def coming(tmp_path_factory: pytest.TempPathFactory) -> Version:
    return next_version(tmp_path_factory.mktemp("versions") / "next")


def test_its_settings_have_defaults_in_the_crd(coming: Version) -> None:
    (config,) = (crd for crd in coming.crds() if crd["spec"]["names"]["kind"] == "CpuDriverConfig")
    spec = config["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    assert spec["parkIdle"]["default"] is False
    assert spec["allocation"]["properties"]["order"]["default"] == "lowest"
    assert spec["rollout"]["properties"]["drainSeconds"]["default"] == 0
    assert "default" not in spec["weights"]


def test_settings_without_its_fields_have_the_same_revision_as_in_the_present_version(coming: Version) -> None:
    assert coming.python(REVISION) == PRESENT.python(REVISION)


def test_its_programs_can_be_imported(coming: Version) -> None:
    printed = coming.python(
        "import dracpu_operator.app, dracpu_agent.app, dracpu_agent.version as v; print(v.__file__)"
    )
    assert Path(printed.strip()).is_relative_to(coming.root)
    assert coming.number == NEXT != PRESENT.number


@pytest.mark.parametrize("text", ["", "mode = 1\nmode = 1\n"], ids=["gone", "twice"])
def test_a_patch_whose_text_has_changed_is_an_error(text: str) -> None:
    with pytest.raises(
        NextVersionError, match=r"a.py has this text .* adapt tests/support/next_version.py: 'mode = 1'"
    ):
        patched("a.py", text, [("mode = 1", "mode = 2")])


def test_its_crd_of_cpunodes_has_defaults_only_on_demand(coming: Version, tmp_path: Path) -> None:
    harder = next_version(tmp_path / "next", defaults_for_nodes=True)
    for version, expected in ((coming, {}), (harder, {"default": "balanced"})):
        (node,) = (crd for crd in version.crds() if crd["spec"]["names"]["kind"] == "CpuNode")
        spec = node["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        power = spec["settings"]["properties"]["power"]
        assert {name: value for name, value in power.items() if name == "default"} == expected


def test_a_clone_without_the_former_version_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match="needs a clone with its whole history: run `git fetch --unshallow`"):
        former_version(tmp_path / "former", commit="0" * 40)
