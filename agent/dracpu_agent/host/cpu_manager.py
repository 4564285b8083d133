"""Detects the kubelet's static CPU manager policy, which would silently override this driver's pinning."""

import json
from pathlib import Path
from typing import Final

from dracpu_api.errors import DriverError

STATIC: Final = "static"
STATE_FILE: Final = "cpu_manager_state"


class CpuManagerStateError(DriverError):
    """The kubelet's state file exists, but its policy cannot be read."""


def policy_of(state: str) -> str:
    """The policy named in the text of a state file."""
    try:
        content = json.loads(state)
    except ValueError as error:
        raise CpuManagerStateError(f"the kubelet's {STATE_FILE} is not JSON: {error}") from error
    policy = content.get("policyName") if isinstance(content, dict) else None
    if not isinstance(policy, str):
        raise CpuManagerStateError(f"the kubelet's {STATE_FILE} has no policyName")
    return policy


def is_static(kubelet_root: Path) -> bool:
    """True if the kubelet pins CPUs itself. Without a state file it does not, or has never run."""
    path = kubelet_root / STATE_FILE
    try:
        state = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return False
    except (OSError, UnicodeDecodeError) as error:
        raise CpuManagerStateError(f"cannot read {path}: {error}") from error
    return policy_of(state) == STATIC
