"""The cluster tests read the output of kubectl."""

import json
from pathlib import Path

from harness.kubectl import rows
from harness.watching import Recording


def event(kind: str, name: str, phase: str) -> str:
    """Formats an event like `kubectl get --watch --output-watch-events -o json`."""
    return json.dumps({"type": kind, "object": {"metadata": {"name": name}, "phase": phase}}, indent=4) + "\n"


def test_each_cell_of_a_table_is_read_below_its_heading_and_may_be_empty() -> None:
    table = "NAME      RESERVED   CLAIMS\nvm1       0-1        12\nlongname             0\n"
    assert rows(table) == [
        {"NAME": "vm1", "RESERVED": "0-1", "CLAIMS": "12"},
        {"NAME": "longname", "RESERVED": "", "CLAIMS": "0"},
    ]


def test_a_recording_returns_the_state_after_each_event(tmp_path: Path) -> None:
    file = tmp_path / "events"
    events = [
        ("ADDED", "vm1", "Ready"),
        ("ADDED", "vm2", "Ready"),
        ("MODIFIED", "vm1", "Failed"),
        ("DELETED", "vm2", ""),
    ]
    file.write_text("".join(event(*words) for words in events))
    states = [{name: item["phase"] for name, item in state.items()} for state in Recording(file).states()]
    assert states == [
        {"vm1": "Ready"},
        {"vm1": "Ready", "vm2": "Ready"},
        {"vm1": "Failed", "vm2": "Ready"},
        {"vm1": "Failed"},
    ]


def test_an_incomplete_event_at_the_end_is_ignored(tmp_path: Path) -> None:
    file = tmp_path / "events"
    whole = event("ADDED", "vm1", "Ready")
    file.write_text(whole + whole[: len(whole) // 2])
    assert len(Recording(file).events()) == 1
