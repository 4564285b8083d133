"""How many bytes of hugepages each pod may use: what its spec asks for, and its claims.

The kubelet writes what the spec asks for into the pod's cgroup, 0 for most pods. This figure is read once, before the
claims are added to it, and kept: afterwards the cgroup has the sum.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from dracpu_agent.memory.kinds import Kind

Pages = Mapping[int, int]  # size of a page -> bytes of all pages; a size without a limit is absent


class PodPages:
    """The pods that have, or had, claims of hugepages, by UID."""

    def __init__(self) -> None:
        self._own: dict[str, Pages] = {}
        self._claimed: Mapping[str, Pages] = {}

    @property
    def known(self) -> frozenset[str]:
        """The pods of which the figure of the spec is known."""
        return frozenset(self._own)

    @property
    def claiming(self) -> frozenset[str]:
        """The pods that have claims."""
        return frozenset(self._claimed)

    def set_claims(self, claimed: Mapping[str, Pages]) -> None:
        """Takes over what the claims of each pod have."""
        self._claimed = claimed

    def learn(self, pod_uid: str, found: Pages, *, with_claims: bool = False) -> None:
        """The cgroup of a pod has these limits. They are those of its spec unless an earlier agent has added claims."""
        claimed = self.claimed(pod_uid) if with_claims else {}
        self._own[pod_uid] = {page: max(0, limit - claimed.get(page, 0)) for page, limit in found.items()}

    def forget(self, pod_uid: str) -> None:
        """The pod is gone."""
        self._own.pop(pod_uid, None)

    def claimed(self, pod_uid: str) -> Pages:
        """What the claims of a pod have."""
        return self._claimed.get(pod_uid, {})

    def own(self, pod_uid: str) -> Pages:
        """What the spec of a pod asks for, as far as it is known."""
        return self._own.get(pod_uid, {})

    def limits(self, pod_uid: str) -> Pages:
        """What the cgroup of a pod has to allow."""
        claimed = self.claimed(pod_uid)
        return {page: own + claimed.get(page, 0) for page, own in self.own(pod_uid).items()}

    def state(self) -> dict[str, Any]:
        """The figures as JSON."""
        return {
            pod: {Kind(page).name: limit for page, limit in sorted(own.items())}
            for pod, own in sorted(self._own.items())
        }

    def restore(self, state: Any) -> None:
        """Takes over the figures of an earlier agent; those that cannot be read are read from the cgroups again."""
        pods = state.items() if isinstance(state, dict) else ()
        self._own = {pod: dict(_pages(own.items())) for pod, own in pods if isinstance(own, dict)}


def _pages(named: Iterable[tuple[Any, Any]]) -> Iterable[tuple[int, int]]:
    for name, limit in named:
        kind = Kind.named(name) if isinstance(name, str) else None
        if kind is not None and kind.is_huge and isinstance(limit, int) and limit >= 0:
            yield kind.page, limit
