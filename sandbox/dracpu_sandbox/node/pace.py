"""The waiting times of the simulated parts of a node."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds: the real ones where no person has to wait for them, shorter ones elsewhere."""

    registry: float = 1.0  # kubelet: the plugin manager's loop has 1 s
    registration_retry: float = 0.5  # kubelet: the first wait, which doubles each time
    registration_retry_most: float = 122.0  # kubelet: the longest one
    wipe: float = 30.0  # kubelet: slices of a driver that has been away for so long are deleted
    health_retry: float = 5.0  # kubelet: a health stream that has ended is opened again
    pod_retry: float = 1.0  # the first wait, which doubles each time; the kubelet waits 10 to 15 s
    pod_retry_most: float = 10.0  # the longest one
    crash: float = 10.0  # kubelet: the wait before the second restart of a container, which doubles each time
    crash_most: float = 300.0  # kubelet: the longest one
    agent_restart: float = 10.0  # an agent that ends by itself is a crashed container of the DaemonSet
