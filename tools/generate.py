"""Writes the generated files: the protobuf modules and the CRDs.

Each CRD is written twice, into crds/ for `kubectl apply` and into the chart, because helm packages only what is in the
chart's folder: it would follow a symbolic link, but warns about each, and git on Windows checks links out as text.

python tools/generate.py            write them
python tools/generate.py --check    write nothing; name the files that differ and exit 1
"""

import argparse
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from grpc_tools import protoc  # type: ignore[import-untyped]

from dracpu_api.objects import definitions

ROOT: Final = Path(__file__).resolve().parent.parent
PROTO_ROOT: Final = "agent"  # .proto files import each other, and register themselves, by their path below it
PROTO_FOLDERS: Final = (
    "agent/dracpu_agent/kubelet/proto",
    "agent/dracpu_agent/runtime/proto",
)
# folder -> the files in it that are generated, and are deleted when no source makes them any more
GENERATED: Final = dict.fromkeys(PROTO_FOLDERS, "*_pb2.py*") | dict.fromkeys(definitions.FOLDERS, "*.yaml")


class GenerateError(Exception):
    """A source file cannot be translated; protoc has printed the reason to stderr."""


def protobuf_modules(folders: Iterable[str]) -> dict[str, str]:
    """Makes the Python modules and their types from all .proto files in these folders; returns path -> text."""
    sources = [source for folder in folders for source in sorted((ROOT / folder).glob("*.proto"))]
    typing_plugin = Path(sys.executable).with_name("protoc-gen-mypy")
    with tempfile.TemporaryDirectory() as made:
        exit_code = protoc.main(
            [
                "protoc",
                f"--proto_path={ROOT / PROTO_ROOT}",
                f"--plugin=protoc-gen-mypy={typing_plugin}",
                f"--python_out={made}",
                f"--mypy_out=quiet:{made}",
                *map(str, sources),
            ]
        )
        if exit_code != 0:
            raise GenerateError(f"protoc ended with exit code {exit_code}")
        modules = sorted(Path(made).rglob("*_pb2.py*"))
        return {f"{PROTO_ROOT}/{module.relative_to(made)}": module.read_text() for module in modules}


def differing(wanted: Mapping[str, str]) -> list[str]:
    """Returns the files that are missing or have another text, and those that no source makes any more."""
    changed = [path for path, text in wanted.items() if read(path) != text]
    return sorted(changed + leftovers(wanted))


def read(path: str) -> str | None:
    """Returns the file's text, or None when there is no such file."""
    file = ROOT / path
    return file.read_text() if file.is_file() else None


def leftovers(wanted: Mapping[str, str]) -> list[str]:
    """Returns the generated files whose source is gone."""
    existing = (path for folder, pattern in GENERATED.items() for path in (ROOT / folder).glob(pattern))
    return [path for path in (str(file.relative_to(ROOT)) for file in existing) if path not in wanted]


def write(wanted: Mapping[str, str]) -> None:
    """Writes the files that differ and deletes those that no source makes any more; others stay untouched."""
    for path in differing(wanted):
        if path in wanted:
            (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / path).write_text(wanted[path])
        else:
            (ROOT / path).unlink()
        sys.stdout.write(f"{path}\n")


def main() -> int:
    """Runs the command line; returns the exit code."""
    parser = argparse.ArgumentParser(description="Write the protobuf modules and the CRDs.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a file is not up to date")
    check: bool = parser.parse_args().check
    wanted = protobuf_modules(PROTO_FOLDERS) | definitions.files()
    if not check:
        write(wanted)
        return 0
    stale = differing(wanted)
    for path in stale:
        sys.stdout.write(f"{path} is out of date: run `make generate` and commit the result\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
