"""Every version that the lab pins. The next build notices a changed line here and makes only its part anew."""

from typing import Final

KUBERNETES: Final = "v1.36.3"
ETCD: Final = "v3.6.16"
CONTAINERD: Final = "v2.4.2"
RUNC: Final = "v1.5.2"
CNI_PLUGINS: Final = "v1.9.1"
HELM: Final = "v3.22.0"

# Debian keeps only the newest build of its kernels, so a package can be named but not a build of it.
KERNEL_PACKAGE: Final = "linux-image-cloud-amd64"

# The base image of the tests stands in for python:3.13-slim, which a machine without a registry cannot pull.
BASE_RELEASE: Final = "trixie"
BASE_PACKAGES: Final = ("python3", "python3-venv", "ca-certificates")

# What the host needs; `python -m lab setup` installs what is missing.
HOST_PACKAGES: Final = (
    "buildah",
    "busybox-static",
    "ca-certificates",
    "cpio",
    "debian-archive-keyring",  # debootstrap verifies what it fetches
    "debootstrap",
    "e2fsprogs",
    "gcc",  # runc is linked with libseccomp
    "iproute2",
    "kmod",
    "libc6-dev",
    "libseccomp-dev",
    "openssl",
    "pkg-config",
    "qemu-system-x86",
)
