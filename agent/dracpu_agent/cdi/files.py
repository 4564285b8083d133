"""Writes and deletes the CDI files of one driver: a file for each claim, replaced atomically."""

import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Generic

from dracpu_agent.cdi import spec
from dracpu_agent.claims.ledger import C
from dracpu_agent.errors import ClaimError
from dracpu_api.errors import DriverError

Stamp = tuple[int, int, int, int]

_UID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,127}")


class CdiFileError(ClaimError):
    """A CDI file could not be written or deleted."""


class DirectoryDeletedError(DriverError):
    """The directory was deleted under the mount that the agent sees it through, and cannot be used any more."""


class CdiDirectory(Generic[C]):
    """The directory that the runtime reads when it creates a container. Every method blocks on the file system."""

    def __init__(self, directory: Path, kind: type[C]) -> None:
        """`kind` is the class of the driver's claims."""
        self._directory = directory
        self._kind = kind
        self._prefix = kind.names.cdi_kind.replace("/", "-") + "_"

    @property
    def driver(self) -> str:
        """The driver whose files these are."""
        return self._kind.names.driver

    def write(self, claim: C) -> bool:
        """Writes a claim's file; returns False if there is one already that serves the claim."""
        path = self._path(claim.ref.uid)
        try:
            if spec.serves(_read(path), claim):
                return False
            self._directory.mkdir(parents=True, exist_ok=True)
            _write_atomically(path, spec.encode(claim))
        except OSError as error:
            raise CdiFileError(f"cannot write the CDI file of claim {claim.ref}: {error}") from error
        return True

    def delete(self, uid: str) -> None:
        """Deletes a claim's file, if it exists."""
        try:
            self._path(uid).unlink(missing_ok=True)
        except OSError as error:
            raise CdiFileError(f"cannot delete the CDI file of claim {uid}: {error}") from error

    def delete_unfinished(self) -> None:
        """Deletes temporary files that a killed agent left."""
        try:
            for path in self._directory.glob(f".{self._prefix}*"):
                path.unlink(missing_ok=True)
        except OSError as error:
            raise CdiFileError(f"cannot delete temporary files in {self._directory}: {error}") from error

    def stamps(self) -> Mapping[str, Stamp]:
        """Claim UID -> what changes when the claim's file is replaced or altered; raises DirectoryDeletedError."""
        stamps: dict[str, Stamp] = {}
        try:
            if self._is_deleted():
                raise DirectoryDeletedError(
                    f"the directory {self._directory} was deleted on the node: the agent has to start again to see the "
                    "one that the runtime uses"
                )
            with os.scandir(self._directory) as entries:
                for entry in entries:
                    if entry.name.startswith(self._prefix) and entry.name.endswith(".json"):
                        found = entry.stat(follow_symlinks=False)
                        uid = entry.name.removeprefix(self._prefix).removesuffix(".json")
                        stamps[uid] = (found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode)
        except FileNotFoundError:  # the directory is missing, or a file has gone meanwhile
            pass
        except OSError as error:
            raise CdiFileError(f"cannot list the CDI files in {self._directory}: {error}") from error
        return stamps

    def uids(self) -> frozenset[str]:
        """The UIDs of the claims that have a file."""
        return frozenset(path.stem.removeprefix(self._prefix) for path in self._files())

    def read_all(self) -> Iterator[C]:
        """The claims in the files; a file that cannot be read or decoded gives a frozen claim."""
        for path in self._files():
            yield spec.decode(self._kind, _read(path), path.stem.removeprefix(self._prefix))

    def _is_deleted(self) -> bool:
        """A deleted directory has no links, as directories of some file systems, but also takes no file any more."""
        if self._directory.stat().st_nlink:
            return False
        try:
            handle, path = tempfile.mkstemp(dir=self._directory, prefix=f".{self._prefix}")
        except FileNotFoundError:
            return True
        os.close(handle)
        Path(path).unlink()
        return False

    def _files(self) -> list[Path]:
        return sorted(self._directory.glob(f"{self._prefix}*.json"))

    def _path(self, uid: str) -> Path:
        if not _UID.fullmatch(uid):
            raise CdiFileError(f"{uid!r} is not the UID of a claim")
        return self._directory / f"{self._prefix}{uid}.json"


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # missing or unreadable; a write that follows reports the cause
        return b""


def _write_atomically(path: Path, data: bytes) -> None:
    # the runtime loads only *.json and *.yaml, not the temporary name
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
