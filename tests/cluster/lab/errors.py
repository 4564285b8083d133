"""The errors of the lab; each message says what to do or where to look."""


class LabError(Exception):
    """The base class of all errors that the lab raises."""


class CommandFailedError(LabError):
    """A program failed; the message ends with the last part of its output."""

    def __init__(self, command: str, code: int, printed: str) -> None:
        super().__init__(f"`{command}` failed with exit code {code}: {printed.strip()[-2000:] or '(no output)'}")
        self.code = code
        self.printed = printed


class NotReadyError(LabError):
    """The lab waited for something that did not happen in time."""


class NotBuiltError(LabError):
    """A part of the lab is missing."""


class UnsupportedMachineError(LabError):
    """This host cannot run the lab."""
