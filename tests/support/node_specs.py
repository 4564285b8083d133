"""Hypothesis strategies for all specs that a CpuNode can have."""

from hypothesis import strategies as st

from dracpu_api.cpuset import CpuSet
from dracpu_api.settings import Allocation, CpuNodeSpec, GroupBy, Mode, OutstandingClaim, Settings, Strategy

_names = st.text(alphabet="abcdefghijklmnopqrstuvwxyz0123456789-", min_size=1, max_size=63)

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
            devices=st.lists(st.tuples(_names, st.integers(1, 512)), max_size=4).map(tuple),
        ),
        max_size=3,
        unique_by=lambda claim: claim.uid,
    ).map(tuple),
    settle_seconds=st.integers(0, 3600),
)
