"""What can go wrong in the lab; each message tells what to do or where to look."""


class LabError(Exception):
    """Base of every error that the lab raises."""


class CommandFailedError(LabError):
    """A program ended with an error; the message ends with what it printed last."""

    def __init__(self, command: str, code: int, printed: str) -> None:
        super().__init__(f"`{command}` ended with {code}: {printed.strip()[-2000:] or '(it printed nothing)'}")
        self.code = code
        self.printed = printed


class NotReadyError(LabError):
    """Something that was waited for did not happen in time."""


class NotBuiltError(LabError):
    """A part of the lab is missing."""


class UnsupportedMachineError(LabError):
    """This machine cannot run the lab."""
