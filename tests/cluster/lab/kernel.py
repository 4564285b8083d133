"""The nodes' kernel, from Debian's package, and the small initrd that finds the node's disk."""

import shutil
from pathlib import Path
from typing import Final

from lab.errors import LabError, NotBuiltError
from lab.host import run, say
from lab.paths import Paths
from lab.versions import KERNEL_PACKAGE

BUSYBOX: Final = Path("/bin/busybox")

# in the order in which they are loaded; one that the kernel has built in is not in the package
INITRD_MODULES: Final = (
    "virtio/virtio_ring",
    "virtio/virtio",
    "virtio/virtio_pci_modern_dev",
    "virtio/virtio_pci_legacy_dev",
    "virtio/virtio_pci",
    "block/virtio_blk",
)


def kernel_version(paths: Paths) -> str:
    """The version of the unpacked kernel, which also names its folder of modules."""
    images = _kernel_images(paths)
    if not images:
        raise NotBuiltError("there is no kernel for the nodes: run `python -m lab build`")
    return images[-1].name.removeprefix("vmlinuz-")


def _kernel_images(paths: Paths) -> list[Path]:
    flavour = KERNEL_PACKAGE.removeprefix("linux-image-")
    return sorted((paths.kernel / "boot").glob(f"vmlinuz-*-{flavour}"))


def kernel_image(paths: Paths) -> Path:
    """The file to boot."""
    return paths.kernel / "boot" / f"vmlinuz-{kernel_version(paths)}"


def initrd(paths: Paths) -> Path:
    """The initrd, named by the kernel whose modules it carries."""
    return paths.machine / f"initrd-{kernel_version(paths)}.gz"


def fetch_kernel(paths: Paths) -> None:
    """Downloads and unpacks the package when it is not there; it is never installed on the host."""
    if _kernel_images(paths):
        return
    say(f"fetching {KERNEL_PACKAGE}")
    folder = paths.kernel.parent
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    # the named package is an empty one that depends on the current build
    depends = run("apt-cache", "depends", KERNEL_PACKAGE).split()
    builds = [word for word in depends if word.startswith("linux-image-") and word != KERNEL_PACKAGE]
    if not builds:
        raise LabError(f"apt knows no build of {KERNEL_PACKAGE}: run `apt-get update`")
    run("apt-get", "-o", "APT::Sandbox::User=root", "download", builds[0], cwd=folder)  # the folder is root's
    unpacked = folder / "unpacking"
    run("dpkg-deb", "--extract", next(folder.glob("*.deb")), unpacked)
    unpacked.rename(paths.kernel)


def make_initrd(paths: Paths) -> None:
    """Loads what is needed to see the disk, mounts it and hands over to its init."""
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
