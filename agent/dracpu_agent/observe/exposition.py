"""Counters, gauges and histograms, and their text format for Prometheus.

This replaces prometheus_client, which imports HTTP servers and mail parsers and so costs 2.5 MiB on every node. Values
change only in the event loop, so there are no locks.
"""

import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Labels = tuple[tuple[str, str], ...]
Sample = tuple[str, Labels, float]  # suffix of the family's name, labels, value


class Family:
    """A metric family: all series of one name. `kind` is its Prometheus type."""

    kind = "gauge"

    def __init__(self, name: str, summary: str, *label_names: str) -> None:
        self.name = name
        self.summary = summary
        self._label_names = label_names

    def samples(self) -> Iterator[Sample]:
        """The series with their current values."""
        raise NotImplementedError

    def _labels(self, values: Sequence[str]) -> Labels:
        return tuple(zip(self._label_names, values, strict=True))


class Gauge(Family):
    """A number that can increase and decrease."""

    def __init__(self, name: str, summary: str) -> None:
        super().__init__(name, summary)
        self._value = 0.0

    def set(self, value: float) -> None:
        """Sets the current value."""
        self._value = value

    def samples(self) -> Iterator[Sample]:
        """A single series."""
        yield "", (), self._value


class Info(Family):
    """Texts, as labels of a series whose value is 1."""

    def __init__(self, name: str, summary: str) -> None:
        super().__init__(f"{name}_info", summary)
        self._texts: Labels | None = None

    def set(self, **texts: str) -> None:
        """Replaces the texts."""
        self._texts = tuple(sorted(texts.items()))

    def samples(self) -> Iterator[Sample]:
        """A single series, or none before the texts are set."""
        if self._texts is not None:
            yield "", self._texts, 1


class Counter(Family):
    """Numbers that only increase, one for each value of the label. A series for each known value exists from the start:
    a rate over a series that starts with 1 misses the first event."""

    kind = "counter"

    def __init__(self, name: str, summary: str, label: str = "", values: Iterable[str] = ()) -> None:
        super().__init__(name, summary, *([label] if label else []))
        self._counts: dict[tuple[str, ...], int] = {(value,): 0 for value in values} if label else {(): 0}

    def count(self, *values: str) -> None:
        """Increases the number of this label value by 1."""
        self._counts[values] = self._counts.get(values, 0) + 1

    def samples(self) -> Iterator[Sample]:
        """A series for each value of the label."""
        for values, count in self._counts.items():
            yield "", self._labels(values), count


class Histogram(Family):
    """The number of values up to each bound, their sum and their total number."""

    kind = "histogram"

    def __init__(self, name: str, summary: str, bounds: Sequence[float], label: str = "") -> None:
        super().__init__(name, summary, *([label] if label else []))
        self._bounds = tuple(bounds)
        self._observed: dict[tuple[str, ...], tuple[list[int], float]] = {}
        if not label:
            self._observed[()] = self._empty()

    def observe(self, value: float, *values: str) -> None:
        """Adds a value."""
        counts, total = self._observed.get(values) or self._empty()
        counts[bisect_left(self._bounds, value)] += 1  # a bucket includes its bound
        self._observed[values] = (counts, total + value)

    def samples(self) -> Iterator[Sample]:
        """The cumulative buckets, the sum and the number, for each value of the label."""
        for values, (counts, total) in self._observed.items():
            labels, cumulative = self._labels(values), 0
            for bound, count in zip((*map(_number, self._bounds), "+Inf"), counts, strict=True):
                cumulative += count
                yield "_bucket", (*labels, ("le", bound)), cumulative
            yield "_sum", labels, total
            yield "_count", labels, cumulative

    def _empty(self) -> tuple[list[int], float]:
        return [0] * (len(self._bounds) + 1), 0.0


class Reading(Family):
    """A number that is read whenever the metrics are rendered."""

    def __init__(self, name: str, summary: str, read: Callable[[], float], kind: str = "gauge") -> None:
        super().__init__(name, summary)
        self.kind = kind
        self._read = read

    def samples(self) -> Iterator[Sample]:
        """A single series."""
        yield "", (), self._read()


class Readings(Family):
    """Numbers that are read whenever the metrics are rendered, one for each value of the label."""

    def __init__(self, name: str, summary: str, label: str, read: Callable[[], Mapping[str, float]]) -> None:
        super().__init__(name, summary, label)
        self._read = read

    def samples(self) -> Iterator[Sample]:
        """A series for each value of the label."""
        for value, number in self._read().items():
            yield "", self._labels((value,)), number


def render(families: Iterable[Family]) -> bytes:
    """Renders all metrics as text in the format 0.0.4, at their current values."""
    lines: list[str] = []
    for family in families:
        lines += [f"# HELP {family.name} {family.summary}", f"# TYPE {family.name} {family.kind}"]
        for suffix, labels, value in family.samples():
            selector = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels)
            series = f"{family.name}{suffix}{{{selector}}}" if selector else f"{family.name}{suffix}"
            lines.append(f"{series} {_number(value)}")
    return "\n".join(lines).encode() + b"\n"


def process_families() -> tuple[Family, ...]:
    """Metrics of the process, under the names that Prometheus clients and dashboards use."""
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    return (
        Reading("process_resident_memory_bytes", "Resident memory", lambda: int(_stat()[21]) * page),
        Reading("process_virtual_memory_bytes", "Virtual memory", lambda: int(_stat()[20])),
        Reading("process_open_fds", "Open file descriptors", lambda: sum(1 for _ in Path("/proc/self/fd").iterdir())),
        Reading("process_start_time_seconds", "Start time, in seconds since 1970", _start_time(ticks)),
        Reading(
            "process_cpu_seconds_total",
            "CPU time used",
            lambda: (int(_stat()[11]) + int(_stat()[12])) / ticks,
            "counter",
        ),
    )


def _stat() -> list[str]:
    """The fields of /proc/self/stat after the process name, which may contain any character."""
    return Path("/proc/self/stat").read_text().rpartition(")")[2].split()


def _start_time(ticks: int) -> Callable[[], float]:
    boot = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime"))
    started = int(boot.split()[1]) + int(_stat()[19]) / ticks
    return lambda: started


def _number(value: float) -> str:
    return repr(float(value))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
