"""The Debian packages that the lab needs on its host."""

import os
import platform
import shutil

from lab.errors import UnsupportedMachineError
from lab.host import missing_packages, run, say
from lab.versions import HOST_PACKAGES


def check_machine() -> None:
    """Refuses early what would fail late and obscurely."""
    if platform.machine() != "x86_64":
        raise UnsupportedMachineError(f"the lab's nodes are x86-64 machines, this host is {platform.machine()}")
    if os.geteuid() != 0:
        raise UnsupportedMachineError("the lab makes network namespaces and disk images: run it as root")
    if shutil.which("go") is None:
        raise UnsupportedMachineError("the lab compiles Kubernetes: install Go (https://go.dev/dl)")


def install_packages() -> None:
    """Installs what is missing, nothing else."""
    missing = missing_packages(HOST_PACKAGES)
    if not missing:
        return
    say(f"installing {' '.join(missing)}")
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    run("apt-get", "update", "--quiet", env=quiet)
    run("apt-get", "install", "--yes", "--quiet", "--no-install-recommends", *missing, env=quiet)
