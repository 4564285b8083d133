"""What goes wrong in the sandbox, told in one clear line."""


class SandboxError(Exception):
    """The base of all errors that a person is told without a traceback."""


def cause(error: BaseException) -> BaseException:
    """The first error of those that a task group has gathered."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
