"""Provides the nodes' kernel, from Debian's package, and a small initrd that mounts the node's disk."""

import shutil
from pathlib import Path
from typing import Final

from lab.errors import LabError, NotBuiltError
from lab.host import report, run
from lab.paths import Paths
from lab.versions import KERNEL_PACKAGE

BUSYBOX: Final = Path("/bin/busybox")

# in loading order; the package has no file for a driver that is built into the kernel
INITRD_MODULES: Final = (
    "virtio/virtio_ring",
    "virtio/virtio",
    "virtio/virtio_pci_modern_dev",
    "virtio/virtio_pci_legacy_dev",
    "virtio/virtio_pci",
    "block/virtio_blk",
)


def kernel_version(paths: Paths) -> str:
    """Returns the version of the unpacked kernel, which is also the name of its folder of modules."""
    images = _kernel_images(paths)
    if not images:
        raise NotBuiltError("the nodes' kernel is missing: run `python -m lab build`")
    return images[-1].name.removeprefix("vmlinuz-")


def _kernel_images(paths: Paths) -> list[Path]:
    flavour = KERNEL_PACKAGE.removeprefix("linux-image-")
    return sorted((paths.kernel / "boot").glob(f"vmlinuz-*-{flavour}"))


def kernel_image(paths: Paths) -> Path:
    """Returns the path of the kernel that the nodes boot."""
    return paths.kernel / "boot" / f"vmlinuz-{kernel_version(paths)}"


def initrd(paths: Paths) -> Path:
    """Returns the path of the initrd, which is named after the kernel whose modules it contains."""
    return paths.machine / f"initrd-{kernel_version(paths)}.gz"


def fetch_kernel(paths: Paths) -> None:
    """Downloads and unpacks the kernel's package if it is missing, without installing it on the host."""
    if _kernel_images(paths):
        return
    report(f"fetching {KERNEL_PACKAGE}")
    folder = paths.kernel.parent
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    # KERNEL_PACKAGE is empty and depends on the package of the current build
    depends = run("apt-cache", "depends", KERNEL_PACKAGE).split()
    builds = [word for word in depends if word.startswith("linux-image-") and word != KERNEL_PACKAGE]
    if not builds:
        raise LabError(f"apt lists no build of {KERNEL_PACKAGE}: run `apt-get update`")
    run("apt-get", "-o", "APT::Sandbox::User=root", "download", builds[0], cwd=folder)  # root owns the folder
    unpacked = folder / "unpacking"
    run("dpkg-deb", "--extract", next(folder.glob("*.deb")), unpacked)
    unpacked.rename(paths.kernel)


def make_initrd(paths: Paths) -> None:
    """Makes an initrd that loads the disk's drivers, mounts the disk and starts the init program on it."""
    if initrd(paths).exists():
        return
    tree = paths.machine / "initrd"
    shutil.rmtree(tree, ignore_errors=True)
    for folder in ("bin", "lib", "dev", "proc", "sys", "newroot"):
        (tree / folder).mkdir(parents=True)
    shutil.copy(BUSYBOX, tree / "bin/busybox")
    for applet in ("sh", "mount", "insmod", "switch_root", "sleep"):
        (tree / "bin" / applet).symlink_to("busybox")
    drivers = paths.kernel / "lib/modules" / kernel_version(paths) / "kernel/drivers"
    modules = [drivers / f"{name}.ko" for name in INITRD_MODULES if (drivers / f"{name}.ko").exists()]
    for module in modules:
        shutil.copy(module, tree / "lib")
    lines = [
        "#!/bin/sh",
        "mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev",
        *(f"insmod /lib/{module.name}" for module in modules),
        "while [ ! -b /dev/vda ]; do sleep 0.1; done",
        "mount -t ext4 /dev/vda /newroot && exec switch_root /newroot /sbin/init",
    ]
    (tree / "init").write_text("\n".join(lines) + "\n")
    (tree / "init").chmod(0o755)
    draft = paths.machine / "initrd.draft"
    run("sh", "-c", 'find . | cpio -o -H newc --quiet | gzip -1 > "$1"', "sh", draft, cwd=tree)
    draft.replace(initrd(paths))
