"""The paths of the lab's files and the name of its network namespace."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from lab.versions import DEFAULT, Versions


@dataclass(frozen=True, slots=True)
class Paths:
    """The layout of the lab's directory. Labs in different directories do not affect one another."""

    root: Path
    versions: Versions = DEFAULT

    @classmethod
    def default(cls, versions: Versions | None = None) -> "Paths":
        """Returns the paths of this user's lab, for the versions in the environment unless others are given."""
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return cls(Path(cache) / "dra-cpu-operator" / "lab", versions or Versions.from_environment())

    @property
    def programs(self) -> Path:
        """The compiled programs: a folder for each version of each module."""
        return self.root / "programs"

    @property
    def bin(self) -> Path:
        """Links to the programs of the chosen versions."""
        return self.root / "bin" / str(self.versions)

    @property
    def kernel(self) -> Path:
        """The unpacked kernel package: boot/ and lib/modules/."""
        return self.root / "kernel" / "x"

    @property
    def modules(self) -> Path:
        """Go modules for the programs that `go install` refuses to build."""
        return self.root / "mod"

    @property
    def control_plane(self) -> Path:
        """Certificates, kubeconfigs and etcd's data."""
        return self.root / "cp"

    @property
    def pki(self) -> Path:
        """Certificates, keys and tokens."""
        return self.control_plane / "pki"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig; its server is reachable inside the lab's network only."""
        return self.control_plane / "admin.kubeconfig"

    @property
    def machine(self) -> Path:
        """The nodes' disk images and initrd."""
        return self.root / "vm"

    @property
    def storage(self) -> Path:
        """buildah's images and containers."""
        return self.root / "storage"

    @property
    def images(self) -> Path:
        """Container images as archives."""
        return self.root / "images"

    @property
    def logs(self) -> Path:
        """The output of the control plane and of the nodes' consoles."""
        return self.root / "log"

    @property
    def pids(self) -> Path:
        """One file for each process that the lab started."""
        return self.root / "pids"

    @property
    def namespace(self) -> str:
        """The name of the network namespace; it depends on the directory, so that two labs do not share one."""
        return f"dralab-{hashlib.sha256(str(self.root).encode()).hexdigest()[:6]}"
