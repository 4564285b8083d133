"""Makes container images without a registry: busybox and pause from the host's busybox, others from Dockerfiles."""

import hashlib
import io
import json
import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from lab.disk import busybox_applets
from lab.host import Argument, report, run, write_whole
from lab.kernel import BUSYBOX
from lab.paths import Paths
from lab.versions import BASE_PACKAGES, BASE_RELEASE

PAUSE_IMAGE: Final = "localhost/pause:lab"
BUSYBOX_IMAGE: Final = "localhost/busybox:lab"
CERTIFICATES: Final = "/etc/ssl/certs"


def busybox_archive(paths: Paths) -> Path:
    """Returns an archive with the images of the pods' sandboxes and of the tests' containers; makes it if needed."""
    archive = paths.images / "busybox.tar"
    if not archive.exists() or archive.stat().st_mtime < BUSYBOX.stat().st_mtime:
        commands = {PAUSE_IMAGE: ["/bin/sleep", "2147483647"], BUSYBOX_IMAGE: ["/bin/sh"]}
        write_whole(archive, docker_archive(_busybox_layer(), commands))
    return archive


def docker_archive(layer: bytes, commands: Mapping[str, list[str]]) -> bytes:
    """Returns an archive as `docker save` writes it: one image for each tag and its command, all of one layer."""
    digest = hashlib.sha256(layer).hexdigest()
    files = {f"{digest}.tar": layer}
    manifest = []
    for tag, command in commands.items():
        document = {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Cmd": command, "Env": ["PATH=/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
            "history": [{"created_by": tag}],
        }
        config = json.dumps(document).encode()
        name = f"{hashlib.sha256(config).hexdigest()}.json"
        files[name] = config
        manifest.append({"Config": name, "RepoTags": [tag], "Layers": [f"{digest}.tar"]})
    files["manifest.json"] = json.dumps(manifest).encode()
    return _tar({name: (tarfile.TarInfo(name), data) for name, data in files.items()})


def _busybox_layer() -> bytes:
    entries: dict[str, tuple[tarfile.TarInfo, bytes]] = {}
    for folder in ("bin", "proc", "sys", "dev", "tmp", "etc"):
        entry = tarfile.TarInfo(folder)
        entry.type, entry.mode = tarfile.DIRTYPE, 0o755
        entries[folder] = (entry, b"")
    entry = tarfile.TarInfo("bin/busybox")
    entry.mode = 0o755
    entries[entry.name] = (entry, BUSYBOX.read_bytes())
    for applet in busybox_applets():
        entry = tarfile.TarInfo(f"bin/{applet}")
        entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
        entries[entry.name] = (entry, b"")
    return _tar(entries)


def _tar(entries: Mapping[str, tuple[tarfile.TarInfo, bytes]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for entry, data in entries.values():
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def base_image(paths: Paths) -> str:
    """Returns the tag of the image that replaces python:3.13-slim; makes it with debootstrap if it is missing."""
    content = f"{BASE_RELEASE} {' '.join(BASE_PACKAGES)}"
    tag = f"localhost/python-base:{hashlib.sha256(content.encode()).hexdigest()[:12]}"
    if _image_id(paths, tag):
        return tag
    report(f"making the base image: Debian {content}")
    tree = paths.root / "base"
    shutil.rmtree(tree, ignore_errors=True)
    include = f"--include={','.join(BASE_PACKAGES)}"
    run("debootstrap", "--variant=minbase", include, BASE_RELEASE, tree)
    container = _buildah(paths, "from", "scratch").strip()
    _buildah(paths, "add", "--quiet", container, tree, "/")
    _buildah(paths, "commit", "--quiet", "--rm", container, tag)
    shutil.rmtree(tree)
    return tag


def build_image(
    paths: Paths, dockerfile: Path, tag: str, archive: Path, context: Path, arguments: Mapping[str, str] | None = None
) -> str:
    """Builds a Dockerfile on the base image into an archive; returns the image's id.

    The archive is written only when the image has changed, so that a disk made from the archive stays current.
    """
    values = {"BASE": base_image(paths), **(arguments or {})}
    words = [word for name, value in values.items() for word in ("--build-arg", f"{name}={value}")]
    # the base image lacks the certificate of an authority that only this network uses; the host has it
    volume = ("--volume", f"{CERTIFICATES}:{CERTIFICATES}:ro")
    source = ("--file", dockerfile, "--tag", tag, context)
    _buildah(paths, "bud", "--layers", "--network", "host", *volume, *words, *source)
    image = _image_id(paths, tag)
    stamp = archive.with_suffix(".id")
    if not archive.exists() or not stamp.exists() or stamp.read_text() != image:
        draft = archive.with_suffix(".draft")
        draft.unlink(missing_ok=True)
        draft.parent.mkdir(parents=True, exist_ok=True)
        _buildah(paths, "push", "--quiet", tag, f"docker-archive:{draft}:{tag}")
        draft.replace(archive)
        write_whole(stamp, image)
    return image


def _image_id(paths: Paths, tag: str) -> str:
    listed = json.loads(_buildah(paths, "images", "--json") or "null")
    return next((image["id"] for image in listed or [] if tag in (image["names"] or [])), "")


def _buildah(paths: Paths, *arguments: Argument) -> str:
    """Runs buildah with chroot isolation, which needs no container engine and works inside a container, too."""
    storage = ("--root", paths.storage, "--runroot", paths.storage / "run", "--storage-driver", "overlay")
    return run("buildah", *storage, *arguments, env={"BUILDAH_ISOLATION": "chroot"})
