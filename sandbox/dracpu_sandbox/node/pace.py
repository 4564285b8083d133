"""How long the simulated parts of a node wait."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds. The real parts' own where nobody has to sit through them, shorter where somebody would."""

    registry: float = 1.0  # kubelet: the plugin manager's loop has 1 s
    registration_retry: float = 0.5  # kubelet: doubles ...
    registration_retry_most: float = 122.0  # ... up to 2 min 2 s
    wipe: float = 30.0  # kubelet: slices of a driver that has been away for so long are deleted
    health_retry: float = 5.0  # kubelet: a health stream that has ended is opened again
    pod_retry: float = 1.0  # kubelet: 10 to 15 s; doubles ...
    pod_retry_most: float = 10.0  # ... up to this
    crash: float = 10.0  # kubelet: the second restart of a container waits 10 s, the next ones twice as long ...
    crash_most: float = 300.0  # ... up to 5 min
    agent_restart: float = 10.0  # an agent that ends by itself is a crashed container of the DaemonSet
