"""The lab reads from a binary whether its program must be compiled again."""

from dataclasses import replace
from pathlib import Path

import pytest
from lab.paths import Paths
from lab.programs import (
    Program,
    build_groups,
    is_current,
    link_programs,
    outdated,
    parse_build_info,
    programs_of,
)
from lab.versions import Versions

PROGRAMS = programs_of(Versions())
RUNC = next(program for program in PROGRAMS if program.name == "runc")
RUNC_INFO = f"""/lab/bin/runc: go1.26.8
\tpath\tgithub.com/opencontainers/runc
\tmod\tgithub.com/opencontainers/runc\t{RUNC.version}\th1:eUUowc2WJCnFYzI87C1WqRcu356Dk=
\tdep\tgithub.com/cilium/ebpf\tv0.17.3\th1:FnP4r16PWYSE4ux6zN+//jMcW4nMVRvuTLVTvCjyyjg=
\tbuild\t-buildmode=exe
\tbuild\t-tags=seccomp,netgo,osusergo
\tbuild\tCGO_ENABLED=1
"""


def test_a_binary_with_the_expected_version_and_settings_is_current() -> None:
    assert is_current(RUNC, parse_build_info(RUNC_INFO))


@pytest.mark.parametrize(
    "wanted",
    [
        replace(RUNC, version="v99.0.0"),
        replace(RUNC, tags=("seccomp",)),
        replace(RUNC, cgo=False),
        replace(RUNC, module="github.com/opencontainers/other"),
        replace(RUNC, package="cmd/other"),
    ],
    ids=["version", "tags", "cgo", "module", "package"],
)
def test_a_binary_with_any_other_property_is_outdated(wanted: Program) -> None:
    assert not is_current(wanted, parse_build_info(RUNC_INFO))


def test_the_version_of_a_program_that_is_built_in_the_lab_s_module_is_that_of_the_dependency() -> None:
    etcd = next(program for program in PROGRAMS if program.name == "etcd")
    lines = (
        f"path\t{etcd.source}",
        "mod\tlab\t(devel)",
        f"dep\t{etcd.module}\t{etcd.version}\th1:x=",
        "build\tCGO_ENABLED=0",
    )
    assert is_current(etcd, parse_build_info("\n".join(f"\t{line}" for line in lines)))


def test_missing_programs_are_outdated(tmp_path: Path) -> None:
    assert outdated(Paths(tmp_path), [RUNC]) == [RUNC]


def test_only_the_programs_whose_version_was_chosen_anew_are_built_into_other_files(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    files = {program.file(paths) for program in PROGRAMS}
    other = {program.file(paths): program.name for program in programs_of(Versions(containerd="v2.0.1"))}
    assert {other[file] for file in other.keys() - files} == {"containerd", "containerd-shim-runc-v2", "ctr"}


def test_the_links_of_other_versions_stay_when_programs_are_linked(tmp_path: Path) -> None:
    linked = []
    for version in ("v1.3.0", "v1.4.0"):
        chosen = Versions(runc=version)
        paths = Paths(tmp_path, chosen)
        (runc,) = (program for program in programs_of(chosen) if program.name == "runc")
        runc.file(paths).parent.mkdir(parents=True)
        runc.file(paths).write_text(version)
        for _ in range(2):
            link_programs(paths, [runc])
        linked.append(paths.bin / "runc")
    moved = tmp_path.rename(tmp_path.with_name("moved"))
    assert [(moved / link.relative_to(tmp_path)).read_text() for link in linked] == ["v1.3.0", "v1.4.0"]


def test_the_outdated_programs_of_one_module_are_built_together() -> None:
    names = [[program.name for program in group] for group in build_groups(PROGRAMS)]
    assert names == [
        ["kube-apiserver", "kube-scheduler", "kube-controller-manager", "kubelet", "kubectl"],
        ["etcd"],
        ["containerd", "containerd-shim-runc-v2", "ctr"],
        ["runc"],
        ["bridge", "loopback", "host-local"],
        ["helm"],
    ]


def test_programs_of_one_module_with_other_settings_are_built_apart() -> None:
    other = replace(RUNC, name="other", tags=())
    assert build_groups([RUNC, other]) == [[RUNC], [other]]


def test_go_gives_every_program_of_a_larger_group_the_name_that_the_lab_uses() -> None:
    larger = [group for group in build_groups(PROGRAMS) if len(group) > 1]
    assert all(program.package.endswith(f"/{program.name}") for group in larger for program in group)
