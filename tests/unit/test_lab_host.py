"""Programs and waits of the lab fail with errors that say what went wrong, and files are replaced atomically."""

import sys
from pathlib import Path

import pytest
from lab.errors import CommandFailedError, LabError, NotReadyError
from lab.host import run, wait_until, write_whole


def test_a_program_receives_its_input_and_its_output_is_returned() -> None:
    assert run(sys.executable, "-c", "print(input().upper())", text="hello\n") == "HELLO\n"


def test_the_error_of_a_failed_program_quotes_its_output() -> None:
    with pytest.raises(CommandFailedError, match=r"failed with exit code 3: out of reach") as caught:
        run(sys.executable, "-c", "import sys; sys.stderr.write('out of reach'); sys.exit(3)")
    assert caught.value.code == 3


def test_the_error_of_a_missing_program_names_the_remedy() -> None:
    with pytest.raises(LabError, match=r"`no-such-program-anywhere` was not found: run `python -m lab setup`"):
        run("no-such-program-anywhere")


def test_a_wait_ends_at_the_first_true_answer() -> None:
    answers = iter([False, False, True, False])
    wait_until("it", lambda: next(answers), 10)
    assert list(answers) == [False]


def test_the_error_of_a_timeout_names_what_was_awaited_and_where_to_look() -> None:
    with pytest.raises(NotReadyError, match="timed out after 0 s waiting for the moon: see the sky"):
        wait_until("the moon", lambda: False, 0, look="the sky")


def test_a_file_is_replaced_and_no_draft_is_left(tmp_path: Path) -> None:
    target = tmp_path / "made" / "file"
    write_whole(target, "old")
    write_whole(target, b"new")
    assert target.read_bytes() == b"new"
    assert list(target.parent.iterdir()) == [target]
