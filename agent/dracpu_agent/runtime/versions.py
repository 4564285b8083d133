"""Derives from the runtime's name and versions which facts can be relied on, and which calls would be dangerous.

A version that is not known counts as old: then a claim is proven in the slower way, and updates wait for a hook.
"""

import re
from dataclasses import dataclass
from typing import Final

from dracpu_agent.placement.container import RuntimeInfo

_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)\.(\d+)(.*)", re.DOTALL)
# "-rc.1", "~beta2", and Go's name for a commit on the way to a version: "-0.20260301120000-abcdef". Suffixes of
# distributions ("-k3s1", "~ds1", "+unknown") mark builds of the version itself.
_BEFORE_RELEASE: Final = re.compile(r"[-~.+]?(alpha|beta|rc|dev|pre|0\.\d{14}-)")


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """A version as far as its order matters."""

    major: int
    minor: int
    patch: int
    released: bool = True  # False: on the way to this version, so it may lack what the version has

    @classmethod
    def parse(cls, text: str) -> "Version | None":
        """None for texts that are not a version ("", "unknown", "(devel)")."""
        match = _VERSION.fullmatch(text.strip())
        if match is None:
            return None
        major, minor, patch, suffix = match.groups()
        return cls(int(major), int(minor), int(patch), _BEFORE_RELEASE.match(suffix) is None)


# containerd passes what the kubelet asked for
_CONTAINERD_PASSES_CDI_DEVICES: Final = Version(2, 3, 0)
# UpdateContainers can deadlock the whole runtime before (containerd#13733, fixed by nri#301)
_NRI_UPDATES_ARE_SAFE: Final = Version(0, 12, 1)
_CONTAINERD_UPDATES_ARE_SAFE: Final = Version(2, 4, 0)
_NRI_HAS_MEMORY_POLICIES: Final = Version(0, 12, 0)
_CONTAINERD_HAS_MEMORY_POLICIES: Final = Version(2, 3, 0)
# the version of the runtime with NRI 0.10, which does not report its own version: an event that a runtime does not know
# ends the connection
_NRI_REPORTS_RESIZES: Final = Version(0, 10, 0)
_REPORTS_RESIZES: Final = {"containerd": Version(2, 2, 0), "cri-o": Version(1, 34, 0)}
# containerd lets no plugin in during the kubelet's calls (containerd#11384); CRI-O does (cri-o#9835)
_CONTAINERD_LISTS_COMPLETELY: Final = Version(2, 0, 3)
_CONTAINERD_1_LISTS_COMPLETELY: Final = Version(1, 7, 26)


def runtime_info(name: str, version: str, nri: str) -> RuntimeInfo:
    """The runtime's name and versions (nri is empty before NRI 0.12), and what follows from them."""
    containerd = Version.parse(version) if name == "containerd" else None
    return RuntimeInfo(
        name=name,
        version=version,
        nri=nri,
        passes_cdi_devices=_at_least(containerd, _CONTAINERD_PASSES_CDI_DEVICES),
        unsolicited_updates=_updates_are_safe(Version.parse(nri), containerd),
        lists_completely=_lists_completely(containerd),
        memory_policies=_has_memory_policies(Version.parse(nri), containerd),
        reports_resizes=_reports_resizes(Version.parse(nri), name, Version.parse(version)),
    )


def _updates_are_safe(nri: Version | None, containerd: Version | None) -> bool:
    if nri is not None:
        return nri >= _NRI_UPDATES_ARE_SAFE
    return _at_least(containerd, _CONTAINERD_UPDATES_ARE_SAFE)


def _has_memory_policies(nri: Version | None, containerd: Version | None) -> bool:
    if nri is not None:
        return nri >= _NRI_HAS_MEMORY_POLICIES
    return _at_least(containerd, _CONTAINERD_HAS_MEMORY_POLICIES)


def _reports_resizes(nri: Version | None, name: str, runtime: Version | None) -> bool:
    if nri is not None:
        return nri >= _NRI_REPORTS_RESIZES
    return name in _REPORTS_RESIZES and _at_least(runtime, _REPORTS_RESIZES[name])


def _lists_completely(containerd: Version | None) -> bool:
    if containerd is not None and containerd.major < 2:
        return containerd >= _CONTAINERD_1_LISTS_COMPLETELY
    return _at_least(containerd, _CONTAINERD_LISTS_COMPLETELY)


def _at_least(version: Version | None, needed: Version) -> bool:
    return version is not None and version >= needed
