"""The images and charts of other versions of this project, for the test of upgrades.

Their images are on the nodes' disks from the start, because no registry has them, and unpacking them takes an emulated
node minutes.
"""

import hashlib
import shutil
from pathlib import Path

from lab.cluster import Lab
from lab.host import timed, write_whole
from next_version import PRESENT, Version, former_version, next_version

from harness.release import IMAGES, TAG


def other_versions(lab: Lab) -> tuple[Version, Version]:
    """Makes the files of the former and of the next version."""
    folder = lab.paths.root / "versions"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return former_version(folder / "former"), next_version(folder / "next")


def images(lab: Lab, version: Version) -> list[Path]:
    """Builds the images of a version from its own Dockerfiles, unless they were built from the same files before;
    returns their archives."""
    archives = []
    digest = _digest(version.root)
    for component, repository in IMAGES.items():
        archive = lab.paths.images / f"{component}-{version.name}.tar"
        stamp = archive.with_suffix(".source")
        if not (archive.exists() and stamp.exists() and stamp.read_text() == digest):
            with timed(f"the {component}'s image of the {version.name} version"):
                dockerfile, tag = version.root / f"Dockerfile.{component}", f"{repository}:{tag_of(version)}"
                lab.image(dockerfile, tag, archive, version.root, {})
            write_whole(stamp, digest)
        archives.append(archive)
    return archives


def tag_of(version: Version) -> str:
    """Returns the tag of a version's images on the nodes."""
    return TAG if version is PRESENT else version.name


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
        digest.update(f"{file.relative_to(folder)}\0".encode() + file.read_bytes())
    return digest.hexdigest()
