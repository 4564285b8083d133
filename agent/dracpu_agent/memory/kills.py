"""Decides whether a container was killed at the limit of its memory, from what the kernel counts. Only arithmetic.

The kernel counts in memory.events of a cgroup how often it had no memory left within the limit (`oom`), and how many
processes it killed for that or another reason (`oom_kill`). Both grow together at the cgroup's own limit. Where the
NUMA nodes of a container or the machine had no memory left, only the second one grows. A cgroup counts what happens in
the cgroups below it, too; memory.events.local does not.
"""

from typing import Final, NamedTuple


class OomCounts(NamedTuple):
    """The counts of a cgroup since it was created."""

    at_limit: int = 0  # no memory was left within the limit
    killed: int = 0  # processes

    def since(self, before: "OomCounts") -> "OomCounts":
        """The difference to earlier counts."""
        return OomCounts(self.at_limit - before.at_limit, self.killed - before.killed)

    def plus(self, other: "OomCounts") -> "OomCounts":
        """The sums."""
        return OomCounts(self.at_limit + other.at_limit, self.killed + other.killed)

    @property
    def killed_at_limit(self) -> bool:
        """Whether processes were killed because the limit was reached."""
        return self.at_limit > 0 and self.killed > 0


NOTHING: Final = OomCounts()


def counts_in(events: str) -> OomCounts:
    """The counts in a file memory.events; what an older kernel does not count is 0."""
    words = dict(line.partition(" ")[::2] for line in events.splitlines())
    at_limit, killed = (words.get(name, "").strip() for name in ("oom", "oom_kill"))
    return OomCounts(*(int(text) if text.isdecimal() else 0 for text in (at_limit, killed)))
