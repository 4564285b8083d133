"""The errors of reading and writing the cgroups of pods: as types, so that callers can handle each."""

import errno
from pathlib import Path
from typing import Final

from dracpu_api.errors import DriverError

_GONE: Final = (errno.ENOENT, errno.ENODEV)
_NOT_WRITABLE: Final = (errno.EROFS, errno.EACCES, errno.EPERM)


class CgroupError(DriverError):
    """A cgroup cannot be read or written. The subclasses name the reasons that callers can handle."""


class InvalidIdError(CgroupError):
    """A UID of a pod or an id of a container has characters that it cannot have; it is not used as a name of a file."""


class UnsafeCgroupError(CgroupError):
    """Something else is where a directory or a file of the cgroup tree should be, such as a link; it is not used."""


class PodGoneError(CgroupError):
    """The pod has no cgroup, or has none any more."""


class ControllerMissingError(CgroupError):
    """The kernel or a parent cgroup does not provide the controller, or not for this size of pages."""


class NotWritableError(CgroupError):
    """The cgroup tree is not mounted, or not writable for the agent."""


class BusyLimitError(CgroupError):
    """A limit cannot be lowered, because more is in use. Limits of other sizes are written nevertheless."""

    def __init__(self, message: str, pages: frozenset[int]) -> None:
        super().__init__(message)
        self.pages = pages  # the sizes, in bytes, of the pages that are in use


class CgroupTimeoutError(CgroupError):
    """The kernel has not finished a read or write in time; it goes on in the background."""

    def __init__(self, pod_uid: str, seconds: float) -> None:
        super().__init__(
            f"reading and writing the cgroup of pod {pod_uid} has not ended within {seconds:g} s, and is tried again:"
            " if this lasts, look for hanging tasks and an overloaded disk in the kernel's log of the node"
        )


def refusal(error: OSError, path: Path, mount: Path) -> CgroupError:
    """The error for a refusal of the kernel to open, read or write something at the path of a cgroup."""
    path = path / error.filename if isinstance(error.filename, str) else path
    if error.errno in _GONE:
        return PodGoneError(f"{path} does not exist any more: the pod has ended, and needs no limits")
    if error.errno in _NOT_WRITABLE:
        return NotWritableError(
            f"{path}: {error.strerror}: mount the node's cgroup v2 tree at {mount}, writable and outside of /sys, and"
            " let the agent run as root with an AppArmor or SELinux profile that allows to write there"
        )
    return CgroupError(
        f"{path}: {error.strerror}: the kernel has refused what the agent tried; the kernel's log may show why"
    )
