"""Makes the disk that every node boots from: busybox, kubelet, containerd, runc and the images that its pods use.

The images are unpacked on this host, with the containerd that the nodes run, because an emulated node needs minutes for
what the host does in seconds.
"""

import hashlib
import json
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from lab.errors import NotBuiltError
from lab.host import report, run, wait_until, write_whole
from lab.kernel import BUSYBOX, kernel_version
from lab.paths import Paths
from lab.pki import kubeconfig, node_token
from lab.processes import terminate

DISK_SIZE: Final = "6G"  # sparse
FILES: Final = Path(__file__).parent / "files"

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
    "cgroupDriver": "cgroupfs",
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


def disk_image(paths: Paths) -> Path:
    """Returns the path of the disk that `up` copies for each node."""
    return paths.machine / "root.img"


def make_disk(paths: Paths, images: Sequence[Path]) -> None:
    """Makes the disk with these container images, unless the disk that exists has an equal recipe."""
    recipe = disk_recipe(paths, images)
    stamp = paths.machine / "disk.recipe"
    if disk_image(paths).exists() and stamp.exists() and stamp.read_text() == recipe:
        return
    report("making the nodes' disk")
    stamp.unlink(missing_ok=True)
    tree = paths.machine / "root"
    _make_tree(paths, tree)
    _unpack_images(paths, tree, images)
    draft = paths.machine / "root.draft"
    draft.unlink(missing_ok=True)
    run("mke2fs", "-q", "-t", "ext4", "-d", tree, draft, DISK_SIZE)
    draft.replace(disk_image(paths))
    shutil.rmtree(tree)
    write_whole(stamp, recipe)


def disk_recipe(paths: Paths, images: Iterable[Path]) -> str:
    """Returns a digest of everything that goes into the disk: equal digests mean equal disks."""
    digest = hashlib.sha256(kernel_version(paths).encode())
    for name, text in sorted(_configuration(paths).items()):
        digest.update(f"{name}\0{text}\0".encode())
    programs = [paths.bin / name for name in (*_PROGRAMS, *_CNI_PLUGINS)]
    for file in (*programs, BUSYBOX, *images):
        if not file.exists():
            raise NotBuiltError(f"{file} is missing: run `python -m lab build`")
        status = file.stat()
        digest.update(f"{file}\0{status.st_size}\0{status.st_mtime_ns}\0".encode())
    return digest.hexdigest()


def _configuration(paths: Paths) -> dict[str, str]:
    """Returns the text of every file that is not a program, by its path on the node."""
    return {
        "sbin/init": (FILES / "node-init").read_text(),
        "etc/passwd": "root:x:0:0:root:/root:/bin/sh\n",
        "etc/group": "root:x:0:\n",
        "etc/hosts": "127.0.0.1 localhost\n",
        "etc/resolv.conf": "nameserver 127.0.0.1\n",
        "etc/os-release": "NAME=lab\n",
        "etc/machine-id": "0" * 31 + "1\n",
        "etc/cni/net.d/10-lab.conflist": json.dumps(_CNI),
        "etc/containerd/config.toml": (FILES / "containerd.toml").read_text(),
        "etc/kubernetes/kubelet.yaml": json.dumps(_KUBELET),
        "etc/kubernetes/kubelet.kubeconfig.in": kubeconfig(node_token("@NODE@"), Path("/etc/kubernetes/ca.crt")),
        "etc/kubernetes/ca.crt": (paths.pki / "ca.crt").read_text(),
    }


def _make_tree(paths: Paths, tree: Path) -> None:
    shutil.rmtree(tree, ignore_errors=True)
    for folder in _FOLDERS:
        (tree / folder).mkdir(parents=True)
    (tree / "var/run").symlink_to("../run")
    shutil.copy(BUSYBOX, tree / "bin/busybox")
    for applet in busybox_applets():
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
    for name, text in _configuration(paths).items():
        (tree / name).write_text(text)
    (tree / "sbin/init").chmod(0o755)


def busybox_applets() -> list[str]:
    """Returns the names of the commands that busybox contains."""
    return [name for name in run(BUSYBOX, "--list").split() if name != "busybox"]


def _unpack_images(paths: Paths, tree: Path, images: Iterable[Path]) -> None:
    """Imports the archives with a temporary containerd whose store is in the tree."""
    work = paths.machine / "unpack"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    socket, log = work / "sock", work / "log"
    config = work / "config.toml"
    config.write_text(
        "version = 3\n"
        f"root = '{tree}/var/lib/containerd'\n"
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
