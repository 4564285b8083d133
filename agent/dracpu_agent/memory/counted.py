"""Decides whether Kubernetes counts the memory of a claim. Only arithmetic.

A claim is a guarantee only where the container's memory request covers it: scheduler and kubelet count requests alone,
and the kubelet evicts first the pods that use more than they request. The runtime does not pass on the request, but the
kubelet makes the container's oom_score_adj from it.
"""

from typing import Final

BEST_EFFORT: Final = 1000  # kubelet: the oom_score_adj of a container in a pod without any request
_LEAST_BURSTABLE: Final = 3  # kubelet: of a container that requests almost all memory; Guaranteed pods have less


def request_covers(claimed: int, score: int, capacity: int) -> bool:
    """Whether the memory request may be as large as the claim, where the kubelet has chosen this oom_score_adj.
    `capacity` is the machine's memory. The score shows the request only in thousandths of it."""
    if score <= _LEAST_BURSTABLE:  # Guaranteed pods, too: they cannot use more than they request
        return True
    if score >= BEST_EFFORT:
        return claimed <= 0
    # kubelet: the score is 1000 less the request, in thousandths of the capacity and rounded down
    return claimed * 1000 < (1001 - score) * capacity
