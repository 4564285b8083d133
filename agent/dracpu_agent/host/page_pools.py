"""The hugepages of each NUMA node while the machine runs: how many there are, and writing how many there are to be.

The counts are read where the agent reads all of the machine. They are written through a mount of their own: below /sys,
a container can write nothing.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from dracpu_agent.host.beneath import Directory
from dracpu_agent.host.cgroup_errors import UnsafeCgroupError
from dracpu_agent.host.files import read_text
from dracpu_agent.host.memory import NODES, read_memory
from dracpu_agent.memory.available import Available, available_in
from dracpu_agent.memory.inventory import persistent
from dracpu_agent.memory.own_pages import Change
from dracpu_agent.memory.provision import Found
from dracpu_api.errors import DriverError

_BOOT: Final = "sys/kernel/random/boot_id"
_SIZES: Final = "kernel/mm/hugepages"
_COUNT, _SURPLUS = "nr_hugepages", "surplus_hugepages"
_NOT_WRITABLE: Final = (errno.EROFS, errno.EACCES, errno.EPERM)


class PoolError(DriverError):
    """The number of pages cannot be written."""


class PoolNotWritableError(PoolError):
    """The agent has no mount of the NUMA nodes, or may not write to it."""


class PagePools:
    """The pools of hugepages. The methods block."""

    def __init__(self, sysfs_root: Path, procfs_root: Path, nodes: Path | None) -> None:
        """`nodes` is where the host's /sys/devices/system/node is mounted for writing, if it is."""
        self._sysfs_root = sysfs_root
        self._procfs_root = procfs_root
        self._nodes = nodes

    def look(self) -> Found:
        """Reads what there is; raises TopologyError."""
        inventory = read_memory(self._sysfs_root, self._procfs_root)
        available = {node.numa: self._available(node.numa) for node in inventory.nodes}
        mapped = {page: self._mapped(page) for page in inventory.page_sizes}
        return Found(inventory, available, mapped, read_text(f"{self._procfs_root}/{_BOOT}") or "")

    def check(self, change: Change) -> None:
        """Raises PoolError if the number of pages cannot be written, or has changed meanwhile."""
        with self._pool(change):
            pass

    def write(self, change: Change) -> None:
        """Asks the kernel for this number of pages; it may make fewer. Raises PoolError."""
        with self._pool(change) as pool:
            pool.write(_COUNT, str(change.then))

    @contextmanager
    def _pool(self, change: Change) -> Iterator[Directory]:
        """The directory of the pages, which can be written and have the number that the change begins with."""
        if self._nodes is None:
            raise PoolNotWritableError(
                "this agent may neither make hugepages nor give them back: install the chart with "
                "agent.memory.provision=true, or remove memory.provision from the config"
            )
        names = [f"node{change.place.numa}", "hugepages", _directory(change.place.kind.page)]
        path = self._nodes.joinpath(*names, _COUNT)
        try:
            with Directory.at(self._nodes) as root:
                pool = root.beneath(names)
                if pool is None:
                    raise PoolError(f"{path.parent} does not exist: the kernel has no pages of this size there")
                with pool:
                    now = persistent(_number(pool, _COUNT, path), _number(pool, _SURPLUS, path))
                    if now != change.now:
                        raise PoolError(f"{path}: {change.now} pages have become {now} meanwhile, which others did")
                    pool.check_writable(_COUNT)
                    yield pool
        except UnsafeCgroupError as error:
            raise PoolError(f"{path} is a link or no file: mount the node's /sys/{NODES} at {self._nodes}") from error
        except OSError as error:
            raise _refusal(error, path, self._nodes) from error

    def _available(self, numa: int) -> Available:
        """Nothing for a NUMA node that has just disappeared, and where the kernel is built without NUMA."""
        path = f"{self._sysfs_root}/{NODES}/node{numa}/meminfo"
        text = read_text(path)
        return Available(0, 0) if text is None else available_in(text, path)

    def _mapped(self, page: int) -> int:
        text = read_text(f"{self._sysfs_root}/{_SIZES}/{_directory(page)}/resv_hugepages") or ""
        return int(text) if text.isdecimal() else 0


def _number(pool: Directory, name: str, path: Path) -> int:
    text = pool.read(name) or ""
    if not text.isdecimal():
        raise PoolError(f'{path.with_name(name)}: "{text}" is not a number of pages')
    return int(text)


def _directory(page: int) -> str:
    return f"hugepages-{page // 1024}kB"


def _refusal(error: OSError, path: Path, nodes: Path) -> PoolError:
    if error.errno in _NOT_WRITABLE:
        return PoolNotWritableError(
            f"{path}: {error.strerror}: mount the node's /sys/{NODES} at {nodes}, writable, and let the agent run as "
            "root with an AppArmor or SELinux profile that allows to write there"
        )
    if error.errno == errno.ENOENT:
        return PoolNotWritableError(f"{path}: {error.strerror}: mount the node's /sys/{NODES} at {nodes}, writable")
    return PoolError(f"{path}: {error.strerror}: the kernel has refused {_COUNT}; its log may show why")
