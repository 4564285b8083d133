"""The kinds of memory by their names in settings and statuses: ordinary memory, and the hugepages of each size."""

from typing import Final

from dracpu_api.quantity import format_binary

ORDINARY: Final = "memory"
PAGE_SIZES: Final = tuple(1 << bits for bits in range(14, 35))  # bytes: 16Ki to 16Gi
LIMIT: Final = 1 << 50  # bytes; an amount on one NUMA node is below it: no machine has so much


def hugepages(size: int) -> str:
    """The kind of hugepages with this size in bytes, such as "hugepages_2Mi"."""
    return f"hugepages_{format_binary(size)}"


KINDS: Final = (ORDINARY, *map(hugepages, PAGE_SIZES))  # in the order in which people read them

# what settings can reserve: the sizes that Linux has on amd64, arm64, ppc64le, riscv64 and s390x
RESERVABLE: Final = (
    ORDINARY,
    "hugepages_64Ki",
    "hugepages_1Mi",
    "hugepages_2Mi",
    "hugepages_16Mi",
    "hugepages_32Mi",
    "hugepages_512Mi",
    "hugepages_1Gi",
    "hugepages_2Gi",
    "hugepages_16Gi",
)
