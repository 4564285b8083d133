"""Makes the files of a node whose first process is systemd: packages of Debian, and the units of the lab."""

import hashlib
import shutil
from pathlib import Path
from typing import Final

from lab.host import report, run
from lab.paths import Paths
from lab.versions import NODE_PACKAGES, NODE_RELEASE

_UNITS: Final = Path(__file__).parent / "files" / "systemd"
_SYSTEM: Final = Path("etc/systemd/system")

# the packages' documentation and lists, and what debootstrap has copied from this host
_REMOVED: Final = (
    *("usr/share/doc", "usr/share/locale", "usr/share/man", "var/cache/apt", "var/lib/apt/lists"),
    *("etc/hostname", "etc/resolv.conf"),
)

# Units that no test needs. Each one costs up to a second of the boot, because an emulated CPU is slow.
_MASKED: Final = (
    *("getty.target", "remote-fs.target", "timers.target", "dev-mqueue.mount", "kmod-static-nodes.service"),
    *("proc-sys-fs-binfmt_misc.automount", "sys-fs-fuse-connections.mount", "sys-kernel-config.mount"),
    *("sys-kernel-debug.mount", "sys-kernel-tracing.mount", "ldconfig.service", "systemd-ask-password-console.path"),
    *("systemd-ask-password-wall.path", "systemd-binfmt.service", "systemd-creds.socket", "systemd-firstboot.service"),
    *("systemd-hibernate-clear.service", "systemd-hostnamed.service", "systemd-hostnamed.socket"),
    *("systemd-initctl.socket", "systemd-journal-catalog-update.service", "systemd-journal-flush.service"),
    *("systemd-logind.service", "systemd-machine-id-commit.service", "systemd-modules-load.service"),
    *("systemd-networkd.service", "systemd-pcrextend.socket", "systemd-pcrlock.socket", "systemd-pstore.service"),
    *("systemd-random-seed.service", "systemd-sysctl.service", "systemd-sysext.socket", "systemd-sysusers.service"),
    *("systemd-tmpfiles-setup-dev.service", "systemd-tmpfiles-setup-dev-early.service", "systemd-update-done.service"),
    *("systemd-tpm2-setup.service", "systemd-tpm2-setup-early.service", "systemd-user-sessions.service"),
)


def fetch_systemd(paths: Paths) -> None:
    """Makes the folder with Debian's packages if it is missing."""
    folder = _packages_folder(paths)
    if folder.exists():
        return
    content = f"{NODE_RELEASE} {' '.join(NODE_PACKAGES)}"
    report(f"making the files of a node with systemd: Debian {content}")
    draft = folder.with_name("systemd.draft")
    shutil.rmtree(draft, ignore_errors=True)
    run("debootstrap", "--variant=minbase", f"--include={','.join(NODE_PACKAGES)}", NODE_RELEASE, draft)
    for name in _REMOVED:
        run("rm", "-rf", draft / name)
    draft.rename(folder)


def copy_systemd(paths: Paths, tree: Path) -> None:
    """Copies Debian's packages into the tree, which must not exist yet, and enables the units of the lab."""
    fetch_systemd(paths)
    run("cp", "-a", _packages_folder(paths), tree)
    (tree / _SYSTEM / "default.target").symlink_to("/usr/lib/systemd/system/multi-user.target")
    for unit in _MASKED:
        (tree / _SYSTEM / unit).symlink_to("/dev/null")
    for file in _UNITS.iterdir():
        (tree / _SYSTEM / "multi-user.target.wants" / file.name).symlink_to(f"../{file.name}")


def systemd_files() -> dict[str, str]:
    """Returns the text of each unit of the lab, by its path on the node."""
    return {str(_SYSTEM / file.name): file.read_text() for file in _UNITS.iterdir()}


def systemd_recipe() -> str:
    """Returns a text that differs when `copy_systemd` would copy or enable something else."""
    return repr((NODE_RELEASE, NODE_PACKAGES, _REMOVED, _MASKED))


def _packages_folder(paths: Paths) -> Path:
    content = repr((NODE_RELEASE, NODE_PACKAGES, _REMOVED))
    return paths.root / f"systemd-{hashlib.sha256(content.encode()).hexdigest()[:12]}"
