"""The errors of the sandbox; each message is one clear line."""


class SandboxError(Exception):
    """The base of all errors that are printed without a traceback."""


def cause(error: BaseException) -> BaseException:
    """The first error of those that a task group has gathered."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
