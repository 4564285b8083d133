"""The delays of the simulated parts of a node."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Delays:
    """Delays in seconds: the real ones where no user waits for them, shorter ones elsewhere."""

    registry: float = 1.0  # kubelet: the plugin manager's loop runs every second
    registration_retry: float = 0.5  # kubelet: the first wait, which doubles each time
    registration_retry_most: float = 122.0  # kubelet: the longest wait
    wipe: float = 30.0  # kubelet: deletes the slices of a driver after it was disconnected for so long
    health_retry: float = 5.0  # kubelet: opens a health stream again after its end
    prepare_retry: tuple[float, float] = (60.0, 90.0)  # kubelet: a failed Prepare is repeated at the pod's next resync
    pod_retry: float = 1.0  # the first wait, which doubles each time; the kubelet waits 10 to 15 s
    pod_retry_most: float = 10.0  # the longest wait
    crash: float = 10.0  # kubelet: the wait before the second restart of a container, which doubles each time
    crash_most: float = 300.0  # kubelet: the longest wait
    agent_restart: float = 10.0  # after an agent has exited by itself, like a crashed container
