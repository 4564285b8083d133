"""Runs the sampler on a node, and judges its log."""

import base64
import gzip
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from lab.host import run

from harness.exclusivity import Verdict, judge
from harness.node import Node
from harness.samples import SampleLog, parse
from harness.waiting import eventually

SOURCE: Final = Path(__file__).with_name("sampler.go")
PROGRAM: Final = "/run/sampler"  # on the node
LOG: Final = "/run/sampler.log"


@dataclass(frozen=True, slots=True)
class Sampler:
    """A sampler that runs on a node."""

    node: Node

    def verdict(self) -> Verdict:
        """Ends the sampler and judges where containers ran."""
        return judge(*self.finish())

    def finish(self) -> tuple[SampleLog, list[float]]:
        """Ends the sampler. Returns its log, of which a copy stays beside the lab's other logs, and when the runtime
        had synchronized an agent."""
        self.node.sh("killall sampler")

        def complete() -> SampleLog:
            log = self.log()
            assert log.complete, f"the sampler on {self.node.name} has not written the end of its log"
            return log

        return eventually(complete, within=30), synchronizations(self.node)

    def log(self) -> SampleLog:
        """Returns what the sampler has recorded so far."""
        text = self.node.sh(f"cat {LOG}")
        (self.node.kubectl.lab.paths.logs / f"{self.node.name}.samples").write_text(text)
        return parse(text[: text.rfind("\n") + 1])  # the sampler may be writing the last line


@contextmanager
def sampled(node: Node) -> Iterator[Sampler]:
    """Runs a sampler on a node during the body; it is ended there at the latest."""
    program = build(node.kubectl.lab.paths.machine / "sampler").read_bytes()
    encoded = base64.encodebytes(gzip.compress(program)).decode()
    node.sh(f"base64 -d << end | gunzip > {PROGRAM}\n{encoded}end\nchmod +x {PROGRAM}")
    node.sh(f"rm -f {LOG}; setsid {PROGRAM} > {LOG} 2>&1 < /dev/null & until [ -s {LOG} ]; do sleep 0.1; done")
    try:
        yield Sampler(node)
    finally:
        node.sh("killall -q sampler; true")


def build(target: Path) -> Path:
    """Compiles the sampler, in less than a second when Go has compiled it before; returns the program's path."""
    target.parent.mkdir(parents=True, exist_ok=True)
    run("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", target, SOURCE, env={"CGO_ENABLED": "0"})
    return target


def synchronizations(node: Node) -> list[float]:
    """Returns when the runtime had applied the answers of the node's agents to Synchronize, by the runtime's log."""
    lines = node.sh("grep 'dra-cpu.* connected and synchronized' /var/log/containerd.log").splitlines()
    times = (re.match('time="(.+?)"', line) for line in lines)
    return [datetime.fromisoformat(time[1]).timestamp() for time in times if time]
