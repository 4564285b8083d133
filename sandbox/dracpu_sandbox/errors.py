"""The errors of the sandbox; each message is one clear line."""

from typing import Final

# ends every refusal of what Kubernetes supports and the sandbox does not
ALTERNATIVE: Final = "a real API server does: see KUBEBUILDER_ASSETS in docs/dev/sandbox.md"


class SandboxError(Exception):
    """The base of all errors that are printed without a traceback."""


def cause(error: BaseException) -> BaseException:
    """The first error of those that a task group has gathered."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
