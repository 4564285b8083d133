"""Compiles the programs of a cluster from their released sources.

Each version of a module has a folder of its own, so that a build for other versions leaves these programs as they are.
Go writes into each binary its module, version and build settings. The build reads them to decide whether a program is
outdated. So no separate record can disagree with the binary, and an incomplete file counts as missing.
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from lab import versions
from lab.errors import CommandFailedError
from lab.host import report, run, write_whole
from lab.paths import Paths
from lab.versions import Versions


@dataclass(frozen=True, slots=True)
class Program:
    """One program, with the place of its source and the settings of its build."""

    name: str
    module: str
    version: str
    package: str  # the folder of its main package in the module, "" for the module's root
    cgo: bool = False
    tags: tuple[str, ...] = ()
    directed: bool = False  # some version's go.mod has replace or exclude directives, which `go install` refuses

    @property
    def source(self) -> str:
        """The import path of the main package."""
        return f"{self.module}/{self.package}" if self.package else self.module

    @property
    def folder(self) -> str:
        """The name of the folder for this version of the module."""
        return f"{self.module.replace('/', '_')}@{self.version}"

    def file(self, paths: Paths) -> Path:
        """The compiled program."""
        return paths.programs / self.folder / self.name


_KUBERNETES: Final = ("kube-apiserver", "kube-scheduler", "kube-controller-manager", "kubelet", "kubectl")
_CONTAINERD: Final = ("containerd", "containerd-shim-runc-v2", "ctr")


def _kubernetes(name: str, version: str) -> Program:
    return Program(name, "k8s.io/kubernetes", version, f"cmd/{name}", directed=True)


def _containerd(name: str, version: str) -> Program:
    return Program(name, "github.com/containerd/containerd/v2", version, f"cmd/{name}", directed=True)


def _cni(name: str, kind: str) -> Program:
    return Program(name, "github.com/containernetworking/plugins", versions.CNI_PLUGINS, f"plugins/{kind}/{name}")


def programs_of(chosen: Versions) -> tuple[Program, ...]:
    """Returns all programs of a cluster of these versions."""
    # static, because the nodes have no C library
    runc = Program(
        "runc", "github.com/opencontainers/runc", chosen.runc, "", cgo=True, tags=("seccomp", "netgo", "osusergo")
    )
    return (
        *(_kubernetes(name, chosen.kubernetes) for name in _KUBERNETES),
        Program("etcd", "go.etcd.io/etcd/server/v3", versions.ETCD, "", directed=True),
        *(_containerd(name, chosen.containerd) for name in _CONTAINERD),
        runc,
        _cni("bridge", "main"),
        _cni("loopback", "main"),
        _cni("host-local", "ipam"),
        Program("helm", "helm.sh/helm/v3", versions.HELM, "cmd/helm"),
    )


@dataclass(frozen=True, slots=True)
class BuildInfo:
    """The build information that Go writes into a binary."""

    source: str = ""
    modules: Mapping[str, str] = field(default_factory=dict)  # module -> version
    settings: Mapping[str, str] = field(default_factory=dict)


def parse_build_info(text: str) -> BuildInfo:
    """Reads the output of `go version -m FILE`."""
    source, modules, settings = "", {}, {}
    for line in text.splitlines():
        match line.strip().split("\t"):
            case ["path", path]:
                source = path
            case ["mod" | "dep", module, version, *_]:
                modules[module] = version
            case ["build", setting]:
                name, _, value = setting.partition("=")
                settings[name] = value
    return BuildInfo(source, modules, settings)


def is_current(program: Program, info: BuildInfo) -> bool:
    """Returns True when a build of the program would use the module, version and settings that the binary has."""
    return (
        info.source == program.source
        and info.modules.get(program.module) == program.version
        and info.settings.get("CGO_ENABLED") == ("1" if program.cgo else "0")
        and info.settings.get("-tags", "") == ",".join(program.tags)
    )


def outdated(paths: Paths, programs: Iterable[Program]) -> list[Program]:
    """Returns the programs that are missing or were built from another version or with other settings."""
    return [program for program in programs if not is_current(program, _build_info(program.file(paths)))]


def build_groups(programs: Iterable[Program]) -> list[list[Program]]:
    """Groups programs that one call of Go can build: those of one version of a module, with equal settings."""
    groups: dict[Program, list[Program]] = {}
    for program in programs:
        groups.setdefault(replace(program, name="", package=""), []).append(program)
    return list(groups.values())


def build_programs(paths: Paths) -> None:
    """Compiles what is outdated. Go is called once for a module, so that it links several programs at the same time."""
    programs = programs_of(paths.versions)
    for group in build_groups(outdated(paths, programs)):
        report(f"building {', '.join(program.name for program in group)} {group[0].version}")
        if group[0].directed:
            _build_in_module(paths, group)
        else:
            _install(paths, group)
    link_programs(paths, programs)


def link_programs(paths: Paths, programs: Iterable[Program]) -> None:
    """Links the programs in one folder. The links are relative, so that they stay valid in a copy of the lab."""
    paths.bin.mkdir(parents=True, exist_ok=True)
    for program in programs:
        draft = paths.bin / f".{program.name}.draft"
        draft.unlink(missing_ok=True)
        draft.symlink_to(os.path.relpath(program.file(paths), paths.bin))
        draft.replace(paths.bin / program.name)


def _build_info(binary: Path) -> BuildInfo:
    if not binary.exists():
        return BuildInfo()
    try:
        return parse_build_info(run("go", "version", "-m", binary))
    except CommandFailedError:  # the file is not a complete Go binary: a build was interrupted
        return BuildInfo()


def _install(paths: Paths, group: Sequence[Program]) -> None:
    cgo, tags = group[0].cgo, group[0].tags
    linker = "-s -w -extldflags -static" if cgo else "-s -w"
    env = {"CGO_ENABLED": str(int(cgo)), "GOBIN": str(paths.programs / group[0].folder), "GOFLAGS": "-trimpath"}
    targets = [f"{program.source}@{program.version}" for program in group]
    run("go", "install", "-tags", ",".join(tags), "-ldflags", linker, *targets, cwd=Path("/"), env=env)


def _build_in_module(paths: Paths, group: Sequence[Program]) -> None:
    """Builds in a module of the lab that requires the programs' module and can repeat its replace directives."""
    module, version, linker = group[0].module, group[0].version, "-s -w"
    folder = paths.modules / group[0].folder
    replaces: Mapping[str, str] = {}
    if module == "k8s.io/kubernetes":
        replaces = staging_of(kubernetes_module(version), version)
        linker = f"{linker} {_kubernetes_version_flags(version)}"
    write_whole(folder / "go.mod", module_file(module, version, replaces))
    sources = [program.source for program in group]
    imports = "".join(f'import _ "{source}"\n' for source in sources)
    write_whole(folder / "tools.go", f"//go:build tools\n\npackage lab\n\n{imports}")
    # Go names several programs after their folders, as PROGRAMS does; etcd's folder has another name, and it is alone
    target = paths.programs / group[0].folder
    target.mkdir(parents=True, exist_ok=True)
    output = target / group[0].name if len(group) == 1 else target
    env = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=mod -trimpath"}
    run("go", "build", "-ldflags", linker, "-o", output, *sources, cwd=folder, env=env)


def module_file(module: str, version: str, replaces: Mapping[str, str]) -> str:
    """Returns the text of a go.mod that requires a module and replaces some of its dependencies."""
    lines = [f"\t{replaced} => {replaced} {replacement}" for replaced, replacement in sorted(replaces.items())]
    return "\n".join([f"module lab\n\ngo 1.26.0\n\nrequire {module} {version}\n\nreplace (", *lines, ")\n"])


def kubernetes_module(version: str) -> Path:
    """Returns the folder of the sources of Kubernetes; Go downloads them if they are missing."""
    found = json.loads(run("go", "mod", "download", "-json", f"k8s.io/kubernetes@{version}", cwd=Path("/")))
    return Path(found["Dir"])


def staging_of(sources: Path, version: str) -> dict[str, str]:
    """Returns the replacements of Kubernetes' own libraries: its go.mod has v0.0.0, the releases v0.<minor>.<patch>."""
    requires = (line.split() for line in (sources / "go.mod").read_text().splitlines())
    released = "v0." + version.split(".", 1)[1]
    return {words[0]: released for words in requires if len(words) >= 2 and words[1] == "v0.0.0"}


def _kubernetes_version_flags(version: str) -> str:
    """Returns linker flags that set the version that the components report; without them it is v0.0.0."""
    values = {
        "k8s.io/component-base/version.gitVersion": version,
        "k8s.io/component-base/version.gitMajor": "1",
        "k8s.io/component-base/version.gitMinor": version.split(".")[1],
        "k8s.io/client-go/pkg/version.gitVersion": version,
    }
    return " ".join(f"-X {name}={value}" for name, value in values.items())
