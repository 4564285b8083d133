"""The directory of CDI files: one for each claim, each there as a whole or not at all."""

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dracpu_agent.cdi import spec
from dracpu_agent.claims.ledger import HeldClaim
from dracpu_agent.errors import ClaimError
from dracpu_api import names

_PREFIX: Final = names.CDI_KIND.replace("/", "-") + "_"
_UID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,127}")


class CdiFileError(ClaimError):
    """A CDI file could not be written or deleted."""


class CdiDirectory:
    """The runtime reads this directory when a container is created. Every method blocks on the file system."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def write(self, claim: HeldClaim) -> None:
        """Writes a claim's file unless it is there already, word for word."""
        path = self._path(claim.ref.uid)
        data = spec.encode(claim)
        try:
            if _read(path) == data:
                return
            self._directory.mkdir(parents=True, exist_ok=True)
            _write_atomically(path, data)
        except OSError as error:
            raise CdiFileError(f"cannot write the CDI file of claim {claim.ref}: {error}") from error

    def delete(self, uid: str) -> None:
        """Deletes a claim's file; a missing one is as good as deleted."""
        try:
            self._path(uid).unlink(missing_ok=True)
        except OSError as error:
            raise CdiFileError(f"cannot delete the CDI file of claim {uid}: {error}") from error

    def delete_unfinished(self) -> None:
        """Deletes what a killed agent was writing."""
        try:
            for path in self._directory.glob(f".{_PREFIX}*"):
                path.unlink(missing_ok=True)
        except OSError as error:
            raise CdiFileError(f"cannot clear {self._directory}: {error}") from error

    def uids(self) -> frozenset[str]:
        """The claims that have a file."""
        return frozenset(path.stem.removeprefix(_PREFIX) for path in self._files())

    def read_all(self) -> Iterator[HeldClaim]:
        """The claims that the files were written for; files of somebody else's making are passed over."""
        for path in self._files():
            data = _read(path)
            if data is not None:
                with contextlib.suppress(spec.CdiSpecError):  # not ours to judge: whoever made it, it names no claim
                    yield spec.decode(data)

    def _files(self) -> list[Path]:
        return sorted(self._directory.glob(f"{_PREFIX}*.json"))

    def _path(self, uid: str) -> Path:
        if not _UID.fullmatch(uid):
            raise CdiFileError(f"{uid!r} is no UID of a claim")
        return self._directory / f"{_PREFIX}{uid}.json"


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:  # missing or unreadable: it is written anew, and that tells what is wrong
        return None


def _write_atomically(path: Path, data: bytes) -> None:
    # the runtime loads only *.json and *.yaml: it never sees the temporary name
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
