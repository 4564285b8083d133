"""The command `dracpu-operator`."""

import asyncio
import gc
import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import yaml

from dracpu_api.errors import DriverError
from dracpu_api.objects.definitions import crds
from dracpu_api.objects.validate import InvalidObjectError, parse
from dracpu_api.watchdog import watch_process
from dracpu_operator import options
from dracpu_operator.decide.default_config import read_manifest
from dracpu_operator.errors import ManifestError


def main() -> None:
    """Runs a command; an expected error is printed as one line, with exit code 1."""
    parsed = options.parse(sys.argv[1:])
    try:
        _COMMANDS[parsed.command](parsed)
    except DriverError as error:
        sys.exit(f"dracpu-operator: {error}")


def _run(parsed: Namespace) -> None:
    from dracpu_operator import logging  # noqa: PLC0415 - the other commands need neither kopf nor a client
    from dracpu_operator.app import run  # noqa: PLC0415 - likewise

    chosen = options.run_options(parsed)
    logging.configure(chosen.log_format, chosen.log_level)
    # lists of thousands of objects make many records and no cycles: with the default, two thirds of the processor time
    # of a list went into the search for cycles
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    asyncio.run(run(chosen, watch_process=watch_process))


def _crds(_: Namespace) -> None:
    print("---\n".join(crds().values()), end="")


def _default_config(parsed: Namespace) -> None:
    from dracpu_operator import hooks  # noqa: PLC0415 - crds and validate need no client

    text = _text(parsed.file)
    try:
        manifest = read_manifest(text)
    except ManifestError as error:
        raise ManifestError(f"{parsed.file} {error}") from error
    print(asyncio.run(hooks.default_config(options.kubeconfig_option(parsed), manifest)))


def _uninstall_check(parsed: Namespace) -> None:
    from dracpu_operator import hooks  # noqa: PLC0415 - crds and validate need no client

    holders = asyncio.run(hooks.uninstall_check(options.kubeconfig_option(parsed)))
    for holder in holders:
        print(holder, flush=True)
    hooks.require_none(holders)
    print("no claim holds CPUs now; one that is allocated before the agents are deleted is not noticed")


def _validate(parsed: Namespace) -> None:
    problems = list(_problems(parsed.file))
    for problem in problems:
        print(problem)
    if problems:
        sys.exit(1)


def _problems(file: Path) -> Iterator[str]:
    try:
        documents = [document for document in yaml.safe_load_all(_text(file)) if document is not None]
    except yaml.YAMLError as error:
        raise ManifestError(f"cannot read {file}: {error}") from error
    if not documents:
        yield f"{file}: the file has no objects"
    for number, document in enumerate(documents, start=1):
        try:
            parse(document)
        except InvalidObjectError as error:
            yield from (f"{file}: {_title(document, number)}: {problem}" for problem in error.problems)


def _text(file: Path) -> str:
    try:
        return sys.stdin.read() if str(file) == "-" else file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ManifestError(f"cannot read {file}: {error}") from error


def _title(document: object, number: int) -> str:
    """The words by which a person finds the object in the file."""
    if isinstance(document, dict) and isinstance(document.get("metadata"), dict) and document["metadata"].get("name"):
        return f"{document.get('kind')} {document['metadata']['name']}"
    return f"object {number}"


_COMMANDS = {
    "run": _run,
    "default-config": _default_config,
    "uninstall-check": _uninstall_check,
    "crds": _crds,
    "validate": _validate,
}

if __name__ == "__main__":
    main()
