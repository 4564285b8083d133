"""The versions that the lab uses. After a change here, the next build builds again only the part that changed."""

import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Final

from lab.errors import LabError

ETCD: Final = "v3.6.16"
CNI_PLUGINS: Final = "v1.9.1"
HELM: Final = "v3.22.0"

# Debian's archive has only the newest build of a kernel, so this names the package and not one of its builds.
KERNEL_PACKAGE: Final = "linux-image-cloud-amd64"

# The base image of the tests replaces python:3.13-slim, which cannot be pulled without a registry.
BASE_RELEASE: Final = "trixie"
BASE_PACKAGES: Final = ("python3", "python3-venv", "ca-certificates")

# The packages of a node with systemd; busybox has no program that could replace these.
NODE_RELEASE: Final = "trixie"
NODE_PACKAGES: Final = ("systemd", "systemd-sysv", "dbus", "kmod", "iproute2", "procps")

# The packages that the host needs; `python -m lab setup` installs those that are missing.
HOST_PACKAGES: Final = (
    "buildah",
    "busybox-static",
    "ca-certificates",
    "cpio",
    "debian-archive-keyring",  # debootstrap verifies what it fetches
    "debootstrap",
    "e2fsprogs",
    "gcc",  # runc uses cgo for libseccomp
    "iproute2",
    "kmod",
    "libc6-dev",
    "libseccomp-dev",
    "openssl",
    "pkg-config",
    "qemu-system-x86",
)

_FORM: Final = re.compile(r"v(\d+)\.(\d+)\.\d+(-[a-z]+\.\d+)?")
_OLDEST: Final = {
    "kubernetes": (1, 34),  # the first with resource.k8s.io/v1
    "containerd": (2, 0),  # the first that reads the lab's containerd.toml, which has version 3
}


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions of the programs that can be chosen for each build and each cluster."""

    kubernetes: str = "v1.37.1"
    containerd: str = "v2.4.2"
    runc: str = "v1.5.2"

    def __post_init__(self) -> None:
        """Refuses what is not a version, and versions that the lab's nodes cannot run."""
        for name, version in asdict(self).items():
            matched = _FORM.fullmatch(version)
            if matched is None:
                raise LabError(f"{version!r} is not a version of {name}: write it like v1.2.3")
            major, minor = _OLDEST.get(name, (0, 0))
            if (int(matched[1]), int(matched[2])) < (major, minor):
                raise LabError(f"the lab cannot run {name} {version}: choose {major}.{minor} or newer")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "Versions":
        """Returns the versions in LAB_KUBERNETES, LAB_CONTAINERD and LAB_RUNC, and defaults where these are not set."""
        named = {name: environment.get(f"LAB_{name.upper()}", "") for name in version_names()}
        return cls(**{name: version for name, version in named.items() if version})

    def __str__(self) -> str:
        """Names all versions, for messages and for the name of a folder."""
        return "_".join(f"{name}-{version}" for name, version in asdict(self).items())


DEFAULT: Final = Versions()


def default_gates(environment: Mapping[str, str] = os.environ) -> str:
    """Returns the feature gates in LAB_FEATURE_GATES; some that a test needs are off in older versions."""
    return environment.get("LAB_FEATURE_GATES", "")


def version_names() -> tuple[str, ...]:
    """Returns the names of the programs whose versions can be chosen."""
    return tuple(field.name for field in fields(Versions))
