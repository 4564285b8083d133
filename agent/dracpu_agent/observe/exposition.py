"""Counters, gauges and histograms, and their text for Prometheus.

Our own because it is small: prometheus_client brings HTTP servers and mail parsers along, which cost every node
2.5 MiB. Values are changed in the event loop only, so nothing is locked.
"""

import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Labels = tuple[tuple[str, str], ...]
Sample = tuple[str, Labels, float]  # suffix of the family's name, labels, value


class Family:
    """All series of one name; `kind` is what Prometheus calls its type."""

    kind = "gauge"

    def __init__(self, name: str, summary: str, *label_names: str) -> None:
        self.name = name
        self.summary = summary
        self._label_names = label_names

    def samples(self) -> Iterator[Sample]:
        """Its series as they are now."""
        raise NotImplementedError

    def _labels(self, values: Sequence[str]) -> Labels:
        return tuple(zip(self._label_names, values, strict=True))


class Gauge(Family):
    """A number that goes up and down."""

    def __init__(self, name: str, summary: str) -> None:
        super().__init__(name, summary)
        self._value = 0.0

    def set(self, value: float) -> None:
        """The number of now."""
        self._value = value

    def samples(self) -> Iterator[Sample]:
        """One series."""
        yield "", (), self._value


class Info(Family):
    """Texts about something, as labels of a 1; new texts replace the old ones."""

    def __init__(self, name: str, summary: str) -> None:
        super().__init__(f"{name}_info", summary)
        self._shown: Labels | None = None

    def show(self, **texts: str) -> None:
        """The texts of now."""
        self._shown = tuple(sorted(texts.items()))

    def samples(self) -> Iterator[Sample]:
        """One series, or none before the first text."""
        if self._shown is not None:
            yield "", self._shown, 1


class Counter(Family):
    """Numbers that only grow, one for each value of its label. All known values stand from the start: a rate over a
    series that is born with 1 misses the first event."""

    kind = "counter"

    def __init__(self, name: str, summary: str, label: str = "", values: Iterable[str] = ()) -> None:
        super().__init__(name, summary, *([label] if label else []))
        self._counts: dict[tuple[str, ...], int] = {(value,): 0 for value in values} if label else {(): 0}

    def count(self, *values: str) -> None:
        """One more."""
        self._counts[values] = self._counts.get(values, 0) + 1

    def samples(self) -> Iterator[Sample]:
        """A series for each value."""
        for values, count in self._counts.items():
            yield "", self._labels(values), count


class Histogram(Family):
    """How often values fell below each bound, their sum and number."""

    kind = "histogram"

    def __init__(self, name: str, summary: str, bounds: Sequence[float], label: str = "") -> None:
        super().__init__(name, summary, *([label] if label else []))
        self._bounds = tuple(bounds)
        self._observed: dict[tuple[str, ...], tuple[list[int], float]] = {}
        if not label:
            self._observed[()] = self._nothing()

    def observe(self, value: float, *values: str) -> None:
        """One more value."""
        counts, total = self._observed.get(values) or self._nothing()
        counts[bisect_left(self._bounds, value)] += 1  # a bound includes itself
        self._observed[values] = (counts, total + value)

    def samples(self) -> Iterator[Sample]:
        """The cumulative buckets, the sum and the number, for each value of the label."""
        for values, (counts, total) in self._observed.items():
            labels, reached = self._labels(values), 0
            for bound, count in zip((*map(_number, self._bounds), "+Inf"), counts, strict=True):
                reached += count
                yield "_bucket", (*labels, ("le", bound)), reached
            yield "_sum", labels, total
            yield "_count", labels, reached

    def _nothing(self) -> tuple[list[int], float]:
        return [0] * (len(self._bounds) + 1), 0.0


class Reading(Family):
    """A number that is read when it is asked for."""

    def __init__(self, name: str, summary: str, read: Callable[[], float], kind: str = "gauge") -> None:
        super().__init__(name, summary)
        self.kind = kind
        self._read = read

    def samples(self) -> Iterator[Sample]:
        """One series."""
        yield "", (), self._read()


def render(families: Iterable[Family]) -> bytes:
    """The text format 0.0.4."""
    lines: list[str] = []
    for family in families:
        lines += [f"# HELP {family.name} {family.summary}", f"# TYPE {family.name} {family.kind}"]
        for suffix, labels, value in family.samples():
            shown = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels)
            lines.append(
                f"{family.name}{suffix}{{{shown}}} {_number(value)}"
                if shown
                else f"{family.name}{suffix} {_number(value)}"
            )
    return "\n".join(lines).encode() + b"\n"


def process_families() -> tuple[Family, ...]:
    """What every process shows of itself, under the names that all dashboards know."""
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    return (
        Reading("process_resident_memory_bytes", "Resident memory", lambda: int(_stat()[21]) * page),
        Reading("process_virtual_memory_bytes", "Virtual memory", lambda: int(_stat()[20])),
        Reading("process_open_fds", "Open file descriptors", lambda: sum(1 for _ in Path("/proc/self/fd").iterdir())),
        Reading("process_start_time_seconds", "Start, as a Unix time", _boot_time_plus(ticks)),
        Reading(
            "process_cpu_seconds_total",
            "CPU time used",
            lambda: (int(_stat()[11]) + int(_stat()[12])) / ticks,
            "counter",
        ),
    )


def _stat() -> list[str]:
    """/proc/self/stat from the state on: the name before it may hold anything."""
    return Path("/proc/self/stat").read_text().rpartition(")")[2].split()


def _boot_time_plus(ticks: int) -> Callable[[], float]:
    boot = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime"))
    started = int(boot.split()[1]) + int(_stat()[19]) / ticks
    return lambda: started


def _number(value: float) -> str:
    return repr(float(value))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
