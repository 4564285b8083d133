"""CDI as the runtime reads it: from the names of devices to what they change in a container."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dracpu_sandbox.errors import SandboxError


class UnresolvableError(SandboxError):
    """A device that no CDI file describes: the container cannot be created."""


def environment_of(directory: Path, names: Sequence[str]) -> tuple[str, ...]:
    """The variables that these devices add to a container. Blocks on the file system.

    Devices have full names, like dra.k8s.io/cpu=claim-1. A file's own edits come before those of its devices.
    """
    if not names:
        return ()
    devices = _devices(directory)
    unknown = [name for name in names if name not in devices]
    if unknown:  # containerd: so it says
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
            continue  # CDI: a bad file takes away its devices, and no others
    return found


def _variables(part: Mapping[str, Any]) -> Sequence[str]:
    return (part.get("containerEdits") or {}).get("env") or ()
