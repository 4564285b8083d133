"""Writes the files that are made from other files: the protobuf modules and the CRDs.

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


class GenerateError(Exception):
    """A source file that cannot be translated; protoc has told why on stderr."""


def protobuf_modules(folders: Iterable[str]) -> dict[str, str]:
    """Path -> text of the Python modules and their types, made from all .proto files in these folders."""
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
    """Files that do not say what is wanted, and protobuf modules that no source makes any more."""
    changed = [path for path, text in wanted.items() if read(path) != text]
    return sorted(changed + leftovers(wanted))


def read(path: str) -> str | None:
    """The file's text; None when there is no such file."""
    file = ROOT / path
    return file.read_text() if file.is_file() else None


def leftovers(wanted: Mapping[str, str]) -> list[str]:
    """Protobuf modules whose source is gone."""
    standing = (str(path.relative_to(ROOT)) for folder in PROTO_FOLDERS for path in (ROOT / folder).glob("*_pb2.py*"))
    return [path for path in standing if path not in wanted]


def write(wanted: Mapping[str, str]) -> None:
    """Brings the files on disk to what is wanted; files that already are stay untouched."""
    for path in differing(wanted):
        if path in wanted:
            (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / path).write_text(wanted[path])
        else:
            (ROOT / path).unlink()
        sys.stdout.write(f"{path}\n")


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="Write the protobuf modules and the CRDs.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a file is not up to date")
    check: bool = parser.parse_args().check
    wanted = protobuf_modules(PROTO_FOLDERS) | definitions.files()
    if not check:
        write(wanted)
        return 0
    stale = differing(wanted)
    for path in stale:
        sys.stdout.write(f"{path} is not what its source makes: run `make generate` and commit the result\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
