"""Makes the disks that nodes boot from: an init system, kubelet, containerd, runc and the images that their pods use.

The images are unpacked on this host, with the containerd that the nodes run, because an emulated node needs minutes for
what the host does in seconds.
"""

import hashlib
import json
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final

from lab.errors import NotBuiltError
from lab.host import report, run, wait_until, write_whole
from lab.kernel import BUSYBOX, kernel_version
from lab.paths import Paths
from lab.pki import kubeconfig, node_token
from lab.processes import terminate
from lab.systemd import copy_systemd, systemd_files, systemd_recipe

DISK_SIZE: Final = "6G"  # sparse
FILES: Final = Path(__file__).parent / "files"


class Init(StrEnum):
    """What a node runs as its first process; the cgroup driver of kubelet and containerd follows from it."""

    SYSTEMD = "systemd"  # as most clusters have it; its cgroup driver is systemd, too
    BUSYBOX = "busybox"  # a shell script of the lab; the cgroup driver is cgroupfs

    @property
    def cgroup_driver(self) -> str:
        """The kubelet's name of the cgroup driver."""
        return "systemd" if self is Init.SYSTEMD else "cgroupfs"


_FOLDERS: Final = (
    *("bin", "sbin", "usr/bin", "usr/sbin", "lib/modules", "root", "opt/cni/bin"),
    *("etc/cni/net.d", "etc/containerd", "etc/kubernetes/manifests", "etc/ssl/certs"),
    *("dev", "proc", "sys", "run", "tmp", "var/lib", "var/log"),
)
_PROGRAMS: Final = ("kubelet", "containerd", "containerd-shim-runc-v2", "ctr", "runc")
_CNI_PLUGINS: Final = ("bridge", "host-local", "loopback")
_UNUSED_DRIVERS: Final = frozenset({"sound", "gpu", "media", "scsi", "infiniband", "ethernet"})

_BRIDGE: Final = {
    "type": "bridge",
    "bridge": "cni0",
    "isGateway": True,
    "hairpinMode": True,
    "ipam": {"type": "host-local", "ranges": [[{"subnet": "@PODS@"}]], "routes": [{"dst": "0.0.0.0/0"}]},
}
_CNI: Final = {"cniVersion": "1.0.0", "name": "lab", "plugins": [_BRIDGE]}

_KUBELET: Final = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "authentication": {
        "anonymous": {"enabled": False},
        "webhook": {"enabled": True},
        "x509": {"clientCAFile": "/etc/kubernetes/ca.crt"},
    },
    "authorization": {"mode": "Webhook"},
    "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
    "makeIPTablesUtilChains": False,  # the nodes have no iptables
    "failSwapOn": False,
    "localStorageCapacityIsolation": False,
    "evictionHard": {"memory.available": "50Mi"},
    "imageGCHighThresholdPercent": 100,  # keeps all images: there is no registry to pull one from again
    "resolvConf": "",
    "staticPodPath": "/etc/kubernetes/manifests",
    "nodeStatusUpdateFrequency": "5s",
}


def disk_image(paths: Paths, init: Init) -> Path:
    """Returns the path of the disk that `up` copies for each node with this init system."""
    return paths.machine / f"root-{init}.img"


def make_disks(paths: Paths, inits: Iterable[Init], images: Sequence[Path]) -> None:
    """Makes the disks of these init systems with these container images, except those whose recipe has not changed."""
    outdated = [init for init in inits if not _is_current(paths, init, images)]
    if not outdated:
        return
    report(f"making the disk of nodes with {' and '.join(outdated)}")
    store = paths.machine / "store"
    _unpack_images(paths, store, images)
    for init in outdated:
        _stamp(paths, init).unlink(missing_ok=True)
        tree = paths.machine / "root"
        _make_tree(paths, init, tree)
        inside = tree / "var/lib/containerd"
        store.rename(inside)
        draft = paths.machine / "root.draft"
        draft.unlink(missing_ok=True)
        run("mke2fs", "-q", "-t", "ext4", "-d", tree, draft, DISK_SIZE)
        draft.replace(disk_image(paths, init))
        inside.rename(store)
        shutil.rmtree(tree)
        write_whole(_stamp(paths, init), disk_recipe(paths, init, images))
    shutil.rmtree(store)


def disk_recipe(paths: Paths, init: Init, images: Iterable[Path]) -> str:
    """Returns a digest of everything that goes into the disk: equal digests mean equal disks."""
    digest = hashlib.sha256(kernel_version(paths).encode())
    for name, text in sorted(_configuration(paths, init).items()):
        digest.update(f"{name}\0{text}\0".encode())
    if init is Init.SYSTEMD:
        digest.update(systemd_recipe().encode())
    programs = [paths.bin / name for name in (*_PROGRAMS, *_CNI_PLUGINS)]
    for file in (*programs, BUSYBOX, *images):
        if not file.exists():
            raise NotBuiltError(f"{file} is missing: run `python -m lab build`")
        status = file.stat()
        digest.update(f"{file}\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    return digest.hexdigest()


def _is_current(paths: Paths, init: Init, images: Sequence[Path]) -> bool:
    stamp = _stamp(paths, init)
    made = disk_image(paths, init).exists() and stamp.exists()
    return made and stamp.read_text() == disk_recipe(paths, init, images)


def _stamp(paths: Paths, init: Init) -> Path:
    return disk_image(paths, init).with_suffix(".recipe")


def _configuration(paths: Paths, init: Init) -> dict[str, str]:
    """Returns the text of every file of the lab that is not a program, by its path on the node."""
    uses_systemd = "true" if init.cgroup_driver == "systemd" else "false"
    common = {
        "usr/bin/node-setup": (FILES / "node-setup").read_text(),
        "usr/bin/node-kubelet": (FILES / "node-kubelet").read_text(),
        "etc/hosts": "127.0.0.1 localhost\n",
        "etc/resolv.conf": "nameserver 127.0.0.1\n",
        "etc/machine-id": "0" * 31 + "1\n",
        "etc/cni/net.d/10-lab.conflist": json.dumps(_CNI),
        "etc/containerd/config.toml": (FILES / "containerd.toml").read_text().replace("@SYSTEMD@", uses_systemd),
        "etc/kubernetes/kubelet.yaml": json.dumps({**_KUBELET, "cgroupDriver": init.cgroup_driver}),
        "etc/kubernetes/kubelet.kubeconfig.in": kubeconfig(node_token("@NODE@"), Path("/etc/kubernetes/ca.crt")),
        "etc/kubernetes/ca.crt": (paths.pki / "ca.crt").read_text(),
    }
    return {**common, **(systemd_files() if init is Init.SYSTEMD else _busybox_files())}


def _busybox_files() -> dict[str, str]:
    return {
        "sbin/init": (FILES / "busybox-init").read_text(),
        "etc/passwd": "root:x:0:0:root:/root:/bin/sh\n",
        "etc/group": "root:x:0:\n",
        "etc/os-release": "NAME=lab\n",
    }


def _make_tree(paths: Paths, init: Init, tree: Path) -> None:
    """Makes the files of a node. Programs of Debian's packages take precedence over busybox."""
    shutil.rmtree(tree, ignore_errors=True)
    if init is Init.SYSTEMD:
        copy_systemd(paths, tree)
    for folder in _FOLDERS:
        (tree / folder).mkdir(parents=True, exist_ok=True)
    if not (tree / "var/run").is_symlink():
        (tree / "var/run").symlink_to("../run")
    installed = {file.name for folder in ("bin", "sbin", "usr/bin", "usr/sbin") for file in (tree / folder).iterdir()}
    shutil.copy(BUSYBOX, tree / "bin/busybox")
    for applet in busybox_applets():
        if applet not in installed:
            (tree / "bin" / applet).symlink_to("busybox")
    for name in _PROGRAMS:
        shutil.copy(paths.bin / name, tree / "usr/bin")
    for name in _CNI_PLUGINS:
        shutil.copy(paths.bin / name, tree / "opt/cni/bin")
    version = kernel_version(paths)
    shutil.copytree(
        paths.kernel / "lib/modules" / version,
        tree / "lib/modules" / version,
        symlinks=True,
        ignore=lambda _, names: _UNUSED_DRIVERS.intersection(names),
    )
    run("depmod", "-b", tree, version)
    for name, text in _configuration(paths, init).items():
        (tree / name).write_text(text)
        if text.startswith("#!"):
            (tree / name).chmod(0o755)


def busybox_applets() -> list[str]:
    """Returns the names of the commands that busybox contains."""
    return [name for name in run(BUSYBOX, "--list").split() if name != "busybox"]


def _unpack_images(paths: Paths, store: Path, images: Iterable[Path]) -> None:
    """Imports the archives with a temporary containerd into a new store."""
    shutil.rmtree(store, ignore_errors=True)
    work = paths.machine / "unpack"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    socket, log = work / "sock", work / "log"
    config = work / "config.toml"
    config.write_text(
        "version = 3\n"
        f"root = '{store}'\n"
        f"state = '{work}/state'\n"
        "disabled_plugins = ['io.containerd.grpc.v1.cri', 'io.containerd.nri.v1.nri']\n"
        f"[grpc]\n  address = '{socket}'\n"
        f"[ttrpc]\n  address = '{socket}.ttrpc'\n"
    )
    with log.open("w") as output:
        daemon = subprocess.Popen([paths.bin / "containerd", "-c", config], stdout=output, stderr=output)
    try:
        wait_until("containerd on this host", socket.exists, 30, look=str(log))
        for image in images:
            run(paths.bin / "ctr", "-a", socket, "-n", "k8s.io", "images", "import", image)
    finally:
        terminate(daemon)
    shutil.rmtree(work)
