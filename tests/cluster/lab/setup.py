"""Checks that the host can run the lab and installs the Debian packages that the lab needs."""

import os
import platform
import shutil

from lab.errors import UnsupportedMachineError
from lab.host import missing_packages, report, run
from lab.versions import HOST_PACKAGES


def check_machine() -> None:
    """Refuses a host on which a later step would fail with a less clear error."""
    if platform.machine() != "x86_64":
        raise UnsupportedMachineError(f"the lab runs on x86-64 hosts only, this host is {platform.machine()}")
    if os.geteuid() != 0:
        raise UnsupportedMachineError("the lab creates network namespaces and disk images: run it as root")
    if shutil.which("go") is None:
        raise UnsupportedMachineError("the lab compiles Kubernetes, and Go is missing: install it (https://go.dev/dl)")


def install_packages() -> None:
    """Installs the packages that are missing and upgrades no others."""
    missing = missing_packages(HOST_PACKAGES)
    if not missing:
        return
    report(f"installing Debian packages: {' '.join(missing)}")
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    run("apt-get", "update", "--quiet", env=quiet)
    run("apt-get", "install", "--yes", "--quiet", "--no-install-recommends", *missing, env=quiet)
