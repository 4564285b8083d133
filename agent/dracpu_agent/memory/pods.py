"""How many bytes of hugepages each pod may use: what its spec asks for, and its claims.

The kubelet writes what the spec asks for into the pod's cgroup, 0 for most pods. This figure is read once for each size
of pages, before the claims are added to it, and kept: afterwards the cgroup has the sum. A new cgroup has no limits
until the kubelet has written them, so a size without a limit is looked at again.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from dracpu_agent.memory.kinds import Kind

Pages = Mapping[int, int]  # size of a page -> bytes of all pages; a size without a limit is absent


class PodPages:
    """The pods that have, or had, claims of hugepages, by UID."""

    def __init__(self) -> None:
        self._own: dict[str, Pages] = {}
        self._claimed: Mapping[str, Pages] = {}
        self._unreadable: frozenset[str] = frozenset()  # pods with claims that cannot be decoded
        self._any_unreadable = False  # such a claim is there, and its pod is not known

    @property
    def known(self) -> frozenset[str]:
        """The pods of which the figure of the spec is known."""
        return frozenset(self._own)

    @property
    def claiming(self) -> frozenset[str]:
        """The pods that have claims."""
        return frozenset(self._claimed)

    def set_claims(self, claimed: Mapping[str, Pages], unreadable: Iterable[Collection[str]] = ()) -> None:
        """Takes over what the claims of each pod have. `unreadable` are the pods of each claim that cannot be decoded,
        which may have more than was found of it; a claim without pods there may be that of any pod."""
        pods = list(unreadable)
        self._claimed = claimed
        self._unreadable = frozenset().union(*pods)
        self._any_unreadable = not all(pods)

    def learn(self, pod_uid: str, found: Pages, *, with_claims: bool = False) -> None:
        """The cgroup of a pod has these limits. They are those of its spec unless an earlier agent has added claims."""
        claimed = self.claimed(pod_uid) if with_claims else {}
        own = {page: max(0, limit - claimed.get(page, 0)) for page, limit in found.items()}
        self._own[pod_uid] = {**self.own(pod_uid), **own}

    def forget(self, pod_uid: str) -> None:
        """The pod is gone."""
        self._own.pop(pod_uid, None)

    def claimed(self, pod_uid: str) -> Pages:
        """The pages that the claims of a pod have."""
        return self._claimed.get(pod_uid, {})

    def own(self, pod_uid: str) -> Pages:
        """The pages that the spec of a pod requests, as far as they are known."""
        return self._own.get(pod_uid, {})

    def limits(self, pod_uid: str) -> Pages:
        """The limits that the cgroup of a pod needs."""
        claimed = self.claimed(pod_uid)
        return {page: own + claimed.get(page, 0) for page, own in self.own(pod_uid).items()}

    def limits_to_write(self, pod_uid: str, found: Pages, written: Pages) -> Pages:
        """The limits to write into a cgroup that has the limits `found`; `written` are those that the agent wrote last.
        Sizes that the cgroup cannot limit are left out unless claims have them: writing those fails with the reason. A
        pod that may have a claim that cannot be decoded keeps at least what it has."""
        own, claimed = self.own(pod_uid), self.claimed(pod_uid)
        pages = (own.keys() & found.keys()) | (claimed.keys() - found.keys())
        limits = {page: own.get(page, 0) + claimed.get(page, 0) for page in sorted(pages)}
        if not (self._any_unreadable or pod_uid in self._unreadable):
            return limits
        return {page: max(limit, found.get(page, 0), written.get(page, 0)) for page, limit in limits.items()}

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
