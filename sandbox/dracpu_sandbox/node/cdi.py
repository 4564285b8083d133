"""Reads CDI files as the runtime does: maps the names of devices to the changes that they make to a container."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dracpu_sandbox.errors import SandboxError


class UnresolvableError(SandboxError):
    """No CDI file describes the device, so the container cannot be created."""


def environment_of(directory: Path, names: Sequence[str]) -> tuple[str, ...]:
    """Returns the variables that these devices add to a container. Blocks on the file system.

    `names` are full names, like dra.k8s.io/cpu=claim-1. The edits of a file come before those of its devices.
    """
    if not names:
        return ()
    devices = _devices(directory)
    unknown = [name for name in names if name not in devices]
    if unknown:  # containerd: the text of its error
        raise UnresolvableError(f"CDI device injection failed: unresolvable CDI devices {', '.join(unknown)}")
    return tuple(entry for name in names for entry in devices[name])


def _devices(directory: Path) -> Mapping[str, Sequence[str]]:
    found: dict[str, Sequence[str]] = {}
    for path in sorted(directory.glob("*.json")):
        try:
            spec = json.loads(path.read_bytes())
            for device in spec["devices"]:
                found[f"{spec['kind']}={device['name']}"] = [*_variables(spec), *_variables(device)]
        except (OSError, ValueError, KeyError, TypeError):
            continue  # CDI: an invalid file affects only its own devices
    return found


def _variables(part: Mapping[str, Any]) -> Sequence[str]:
    return (part.get("containerEdits") or {}).get("env") or ()
