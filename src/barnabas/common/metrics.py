"""Metrics as values, and as the text that Prometheus reads (exposition format 0.0.4).

    Family      one metric: its name, type, help text, and its samples
    TimeBuckets durations by power of two, for a histogram

Each component owns plain integers; families are made from them on request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

GAUGE: Final = "gauge"
COUNTER: Final = "counter"
HISTOGRAM: Final = "histogram"
#: The type of a counter that has Kafka's name, which does not end in _total.
UNTYPED: Final = "untyped"

Labels = tuple[tuple[str, str], ...]
Number = int | float

_LAST_BUCKET: Final = 20
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Sample(NamedTuple):
    labels: Labels
    value: Number
    #: The suffix of the family's name: "_bucket", "_sum", "_count" of a histogram.
    suffix: str = ""


class Family(NamedTuple):
    name: str
    kind: str
    help: str
    samples: Iterable[Sample]


def single(name: str, kind: str, text: str, value: Number) -> Family:
    return Family(name, kind, text, (Sample((), value),))


def labelled(name: str, kind: str, text: str, label: str, values: Iterable[tuple[str, Number]]) -> Family:
    """Returns a family with one sample for each value of a label."""
    return Family(name, kind, text, [Sample(((label, key),), value) for key, value in values])


def lines_of(family: Family) -> Iterator[str]:
    """Yields the lines of the exposition format, each with its line end."""
    name = family.name
    yield f"# HELP {name} {family.help}\n# TYPE {name} {family.kind}\n"
    for labels, number, suffix in family.samples:
        value = number if number == number else "NaN"
        shown = ",".join([f'{key}="{text.translate(_ESCAPES)}"' for key, text in labels])
        yield f"{name}{suffix}{{{shown}}} {value}\n" if shown else f"{name}{suffix} {value}\n"


class TimeBuckets:
    """Durations in buckets: bucket 0 counts less than 1 ms, bucket n less than 2**n ms; the last one counts the
    others.
    """

    __slots__ = ("counts", "total_ms")

    def __init__(self) -> None:
        self.counts = [0] * (_LAST_BUCKET + 1)
        self.total_ms = 0

    def add(self, elapsed_ms: int) -> None:
        if elapsed_ms:
            self.counts[min(elapsed_ms.bit_length(), _LAST_BUCKET)] += 1
            self.total_ms += elapsed_ms
        else:
            self.counts[0] += 1

    @property
    def count(self) -> int:
        return sum(self.counts)


def histogram(labels: Labels, times: Sequence[TimeBuckets]) -> Iterator[Sample]:
    """Returns all buckets as one histogram, in seconds."""
    cumulative = 0
    for place in range(_LAST_BUCKET):
        cumulative += sum(each.counts[place] for each in times)
        yield Sample((*labels, ("le", repr((1 << place) / 1000))), cumulative, "_bucket")
    cumulative += sum(each.counts[_LAST_BUCKET] for each in times)
    yield Sample((*labels, ("le", "+Inf")), cumulative, "_bucket")
    yield Sample(labels, sum(each.total_ms for each in times) / 1000, "_sum")
    yield Sample(labels, cumulative, "_count")
