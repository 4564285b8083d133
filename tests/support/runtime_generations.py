"""Generations of container runtimes that differ in what matters to the agent."""

from dataclasses import dataclass
from typing import Final

from dracpu_agent.placement.container import RuntimeInfo
from dracpu_agent.runtime.versions import runtime_info


@dataclass(frozen=True)
class Generation:
    """A generation of runtimes, by what matters to the agent."""

    info: RuntimeInfo
    reports_failed_creations: bool = True
    cgroups_readable: bool = True  # False: a machine with cgroup v1

    def __repr__(self) -> str:
        return f"{self.info.name} {self.info.version}"


GENERATIONS: Final = (
    Generation(runtime_info("containerd", "v2.4.2", "v0.12.3")),
    Generation(runtime_info("containerd", "v2.3.0", "v0.12.0")),
    Generation(runtime_info("containerd", "v1.7.25", ""), cgroups_readable=False),
    Generation(runtime_info("cri-o", "1.34.0", ""), reports_failed_creations=False),
)
