"""The Dockerfiles: both build Python in the same way, and the files that they copy exist."""

import re

import pytest
from helm_chart import ROOT, container_of, pod_of, render

DOCKERFILES = ("Dockerfile.agent", "Dockerfile.operator")


def text_of(dockerfile: str) -> str:
    return (ROOT / dockerfile).read_text()


def stage(dockerfile: str, name: str) -> str:
    """Returns the instructions of a stage."""
    found = re.search(rf"^FROM \S+ AS {name}\n(.*?)^(?:#.*\n)?FROM ", text_of(dockerfile), re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


def copied(dockerfile: str) -> list[str]:
    """Returns the paths in the build's context: all words of each COPY but the last, which is the destination."""
    lines = re.findall(r"^COPY (?!--from)(.*)$", text_of(dockerfile), re.MULTILINE)
    return [word for line in lines for word in line.split()[:-1]]


def test_both_images_share_the_layer_with_python() -> None:
    """The builder takes the stage from its cache only when its instructions are identical."""
    agent, operator = (stage(dockerfile, "python") for dockerfile in DOCKERFILES)
    assert agent == operator


@pytest.mark.parametrize("dockerfile", DOCKERFILES)
def test_copied_files_exist_and_are_not_ignored(dockerfile: str) -> None:
    ignore = (ROOT / ".dockerignore").read_text().splitlines()
    allowed = [line.removeprefix("!") for line in ignore if line.startswith("!")]
    assert copied(dockerfile)
    for source in copied(dockerfile):
        assert (ROOT / source).exists()
        assert [path for path in allowed if source == path or source.startswith(f"{path}/")]


def test_the_chart_runs_the_operator_as_the_user_of_its_image() -> None:
    (user,) = re.findall(r"^USER (.*)$", text_of("Dockerfile.operator"), re.MULTILINE)
    deployment = render().named("Deployment", "dracpu-operator")
    security = pod_of(deployment)["securityContext"]
    assert user == f"{security['runAsUser']}:{security['runAsGroup']}"
    assert "command" not in container_of(deployment)  # the chart only adds arguments to the image's entry point
