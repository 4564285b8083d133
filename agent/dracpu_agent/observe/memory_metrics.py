"""The metrics of memory and hugepages, by kind: those that all drivers have are in driver_metrics.py."""

from collections import Counter
from collections.abc import Callable, Mapping

from dracpu_agent.drivers.memory import MemoryDriver
from dracpu_agent.memory.kinds import Place
from dracpu_agent.memory.use import Sizes
from dracpu_agent.observe.exposition import Family, Readings


def memory_families(driver: MemoryDriver, used: Callable[[], Sizes], beyond: Callable[[], Sizes]) -> tuple[Family, ...]:
    """The metrics of what claims hold, what they can have in all, what is left of that, and what containers use of
    their claims and beyond them."""

    def by_kind(read: Callable[[], Sizes]) -> Callable[[], Mapping[str, float]]:
        return lambda: _by_kind(read())

    def capacity() -> Sizes:
        return driver.available()[0]

    def free() -> Sizes:
        return driver.available()[1]

    return (
        Readings("dra_memory_promised_bytes", "Bytes that claims hold", "kind", by_kind(driver.promised)),
        Readings("dra_memory_capacity_bytes", "Bytes that claims can hold in all", "kind", by_kind(capacity)),
        Readings("dra_memory_wanted_pages", "Hugepages that the settings name", "kind", by_kind(driver.wanted_pages)),
        Readings("dra_memory_own_pages", "Hugepages that the agent has made", "kind", by_kind(driver.pages_made)),
        Readings("dra_memory_free_bytes", "Bytes that claims can still get", "kind", by_kind(free)),
        Readings("dra_memory_used_bytes", "Bytes that containers use of their claims", "kind", by_kind(used)),
        Readings(
            "dra_memory_used_beyond_claims_bytes",
            "Bytes that containers with claims use where their claims have less",
            "kind",
            by_kind(beyond),
        ),
    )


def _by_kind(sizes: Mapping[Place, int]) -> Mapping[str, float]:
    sums: Counter[str] = Counter()
    for place, size in sizes.items():
        sums[place.kind.name] += size
    return sums
