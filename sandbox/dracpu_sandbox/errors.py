"""The errors of the sandbox; each message is one clear line."""

from typing import Final

# ends every error about a feature that Kubernetes supports and the sandbox does not
ALTERNATIVE: Final = "a real API server does: see KUBEBUILDER_ASSETS in docs/dev/sandbox.md"


class SandboxError(Exception):
    """The base of all errors that are printed without a traceback."""


def cause(error: BaseException) -> BaseException:
    """Returns the first error that a task group has collected."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
