"""The versions that the lab uses. After a change here, the next build builds again only the part that changed."""

from typing import Final

KUBERNETES: Final = "v1.36.3"
ETCD: Final = "v3.6.16"
CONTAINERD: Final = "v2.4.2"
RUNC: Final = "v1.5.2"
CNI_PLUGINS: Final = "v1.9.1"
HELM: Final = "v3.22.0"

# Debian's archive has only the newest build of a kernel, so this names the package and not one of its builds.
KERNEL_PACKAGE: Final = "linux-image-cloud-amd64"

# The base image of the tests replaces python:3.13-slim, which cannot be pulled without a registry.
BASE_RELEASE: Final = "trixie"
BASE_PACKAGES: Final = ("python3", "python3-venv", "ca-certificates")

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
