"""Options of the command line that can also be set by environment variables, so that a manifest can use either."""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a command. Its variable is the name in capitals after the program's prefix."""

    name: str
    default: str
    summary: str
    type: Callable[[str], object] = str  # raises ArgumentTypeError for a value that it does not accept


def add_option(
    command: argparse.ArgumentParser, option: Option, *, prefix: str, environment: Mapping[str, str]
) -> None:
    """Adds an option to a command. Its default is the variable in the environment, or else its own."""
    variable = prefix + option.name.removeprefix("--").replace("-", "_").upper()
    command.add_argument(
        option.name,
        default=environment.get(variable) or option.default,
        type=option.type,
        help=f"{option.summary} [{variable}; default: {option.default or 'none'}]",
    )


def one_of(*choices: str) -> Callable[[str], str]:
    """The type of an option that has some choices. Unlike argparse's `choices`, a type is applied to a default as well,
    which may come from the environment."""

    def chosen(value: str) -> str:
        if value not in choices:
            raise argparse.ArgumentTypeError(f"{value!r} is not one of {', '.join(choices)}")
        return value

    return chosen


KUBECONFIG: Final = Option("--kubeconfig", "", "kubeconfig file; without one, the pod's service account is used")
HTTP_ADDRESS: Final = Option("--http-address", ":8080", "address that serves /healthz, /readyz and /metrics")
LOG_FORMAT: Final = Option("--log-format", "json", "json or text", one_of("json", "text"))
LOG_LEVEL: Final = Option(
    "--log-level", "info", "debug, info, warning or error", one_of("debug", "info", "warning", "error")
)
