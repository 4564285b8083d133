"""Hypothesis strategies for all specs that a CpuNode can have."""

from hypothesis import strategies as st

from dracpu_api.cpuset import CpuSet
from dracpu_api.memory_kinds import KINDS, LIMIT, ORDINARY, PAGE_SIZES, RESERVABLE, hugepages
from dracpu_api.names import DRIVER, DRIVER_MEMORY
from dracpu_api.settings import (
    Allocation,
    CpuNodeSpec,
    GroupBy,
    MemorySettings,
    Mode,
    OutstandingClaim,
    OutstandingDevice,
    ProvisionedPages,
    Publish,
    ReservedMemory,
    Settings,
    Strategy,
)

_names = st.text(alphabet="abcdefghijklmnopqrstuvwxyz0123456789-", min_size=1, max_size=63)


def _amounts(kind: str) -> st.SearchStrategy[int]:
    """Amounts that can be reserved: bytes of ordinary memory, or whole pages."""
    if kind == ORDINARY:
        return st.integers(1, 10**15 - 1)
    (size,) = (size for size in PAGE_SIZES if hugepages(size) == kind)
    return st.integers(1, 10_000).map(lambda pages: pages * size)


_reserved = st.builds(
    ReservedMemory,
    numa_node=st.integers(0, 1023),
    amounts=st.sets(st.sampled_from(sorted(RESERVABLE)), min_size=1).flatmap(
        lambda kinds: st.tuples(*(st.tuples(st.just(kind), _amounts(kind)) for kind in sorted(kinds)))
    ),
)

_provisioned = st.builds(
    ProvisionedPages,
    numa_node=st.integers(0, 1023),
    size=st.sampled_from([size for size in PAGE_SIZES if size < 1 << 30]),
    pages=st.integers(1, (1 << 31) - 1),
)

memory = st.builds(
    MemorySettings,
    enabled=st.booleans(),
    publish=st.sampled_from(Publish),
    hugepages=st.none() | st.sets(st.sampled_from(PAGE_SIZES)).map(lambda sizes: tuple(sorted(sizes))),
    reserved=st.lists(_reserved, max_size=3, unique_by=lambda entry: entry.numa_node).map(
        lambda entries: tuple(sorted(entries, key=lambda entry: entry.numa_node))
    ),
    provision=st.lists(_provisioned, max_size=3, unique_by=lambda entry: (entry.numa_node, entry.size)).map(
        lambda entries: tuple(sorted(entries))
    ),
    cpuless_nodes=st.booleans(),
)

settings = st.builds(
    Settings,
    mode=st.sampled_from(Mode),
    group_by=st.sampled_from(GroupBy),
    reserved_cpus=st.frozensets(st.integers(0, 512), max_size=40).map(CpuSet),
    allocation=st.builds(
        Allocation, strategy=st.sampled_from(Strategy), full_cores=st.booleans(), prefer_uncore_cache=st.booleans()
    ),
    expose_pcie_roots=st.booleans(),
    node_allocatable=st.booleans(),
    memory=memory,
)

_devices = st.builds(
    OutstandingDevice,
    name=_names,
    cpus=st.integers(0, 512),
    driver=st.sampled_from([DRIVER, DRIVER_MEMORY]),
    amounts=st.dictionaries(st.sampled_from(KINDS), st.integers(1, LIMIT - 1), max_size=3).map(
        lambda amounts: tuple(sorted(amounts.items()))
    ),
)

specs = st.builds(
    CpuNodeSpec,
    config_name=_names,
    config_generation=st.integers(0, 1 << 40),
    settings=settings,
    revision=_names,
    outstanding=st.lists(
        st.builds(
            OutstandingClaim,
            uid=_names,
            namespace=_names,
            name=_names,
            devices=st.lists(_devices, max_size=4).map(tuple),
        ),
        max_size=3,
        unique_by=lambda claim: claim.uid,
    ).map(tuple),
    settle_seconds=st.integers(0, 3600),
)
