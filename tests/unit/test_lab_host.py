"""Running and waiting tell what went wrong."""

import sys
from pathlib import Path

import pytest
from lab.errors import CommandFailedError, LabError, NotReadyError
from lab.host import run, wait_until, write_whole


def test_a_program_s_output_is_returned_and_its_input_given() -> None:
    assert run(sys.executable, "-c", "print(input().upper())", text="hello\n") == "HELLO\n"


def test_a_failing_program_is_quoted() -> None:
    with pytest.raises(CommandFailedError, match=r"ended with 3: out of reach") as caught:
        run(sys.executable, "-c", "import sys; sys.stderr.write('out of reach'); sys.exit(3)")
    assert caught.value.code == 3


def test_a_program_that_is_not_there_names_the_remedy() -> None:
    with pytest.raises(LabError, match="python -m lab setup"):
        run("no-such-program-anywhere")


def test_waiting_ends_with_the_first_yes() -> None:
    answers = iter([False, False, True, False])
    wait_until("it", lambda: next(answers), 10)
    assert list(answers) == [False]


def test_waiting_in_vain_says_for_what_and_where_to_look() -> None:
    with pytest.raises(NotReadyError, match="the moon not ready after 0 s: see the sky"):
        wait_until("the moon", lambda: False, 0, look="the sky")


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    target = tmp_path / "made" / "file"
    write_whole(target, "old")
    write_whole(target, b"new")
    assert target.read_bytes() == b"new"
    assert list(target.parent.iterdir()) == [target]
