"""The limits of hugepages of one cgroup, with processes that use pages: refuses what the kernel refuses."""

import errno
import os
from dataclasses import dataclass, field

from dracpu_agent.host.hugetlb import UNLIMITED, limit_files, limit_text


@dataclass
class Counter:
    """Pages of one size, in bytes."""

    limit: int
    reserved_limit: int
    used: int = 0
    reserved: int = 0


@dataclass
class CountedPages:
    """The counters by size of a page. `shown` are the limits of use and of reservation after each write."""

    counters: dict[int, Counter]
    shown: list[tuple[int, int, int]] = field(default_factory=list)

    def read(self, name: str) -> str | None:
        for page, counter in self.counters.items():
            limit, reserved = limit_files(page)
            if name in {limit, reserved}:
                return limit_text(counter.limit if name == limit else counter.reserved_limit, page)
        return None

    def write(self, name: str, text: str) -> None:
        page = next(page for page in self.counters if name in limit_files(page))
        counter = self.counters[page]
        value = UNLIMITED if text == "max" else int(text) // page * page
        of_use = name == limit_files(page)[0]
        if value < (counter.used if of_use else counter.reserved):
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        if of_use:
            counter.limit = value
        else:
            counter.reserved_limit = value
        self.shown.append((page, counter.limit, counter.reserved_limit))
