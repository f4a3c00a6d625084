"""The storage rows: starts on large directories, look-ups, appends, compaction.

Each experiment is a function of a `FreeSpace` and its options. It creates what it needs below `space.folder`,
alternates between the two sides of its comparison and passes each value to `space.record`.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from crc32c import crc32c

import compaction
import report
import wire
from barnabas.common.log_config import LogConfig
from client import percentile
from directories import Template, append, make_unclean, new_batch, open_partition
from targets import TARGETS, Target, addresses, resident_mb
from workloads import Experiment

Options = Mapping[str, Any]

#: The name of the other side of the append row.
WRITE_LOOP = "write loop"
_TIMEOUT_S = 600.0
#: The position in a batch from which its checksum covers all bytes: that of its attributes.
_CHECKED_FROM = 21


class FreeSpace:
    """The folder of one experiment, and the values that it records."""

    def __init__(self, folder: Path, targets: Sequence[str], values: report.Values, experiment: Experiment) -> None:
        self.folder = folder
        self._targets = list(targets)
        self._values = values
        self._experiment = experiment

    @property
    def with_barnabas(self) -> bool:
        return "barnabas" in self._targets

    def alternating(self, rounds: int) -> Iterator[tuple[int, str]]:
        """Yields (round, target); the order of the targets alternates from round to round."""
        for index in range(rounds):
            for name in self._targets if index % 2 == 0 else self._targets[::-1]:
                yield index, name

    def record(self, metric_name: str, side: str, value: float) -> None:
        metric = next(each for each in self._experiment.metrics if each.name == metric_name)
        report.record(self._values, metric, side, value)

    @contextmanager
    def target(self, name: str, properties: Mapping[str, str]) -> Iterator[Target]:
        """Yields a broker to launch; at the end kills it and removes its directory."""
        target = TARGETS[name](self.folder / name, properties)
        try:
            yield target
        except BaseException:
            print(f"{name}'s log ends:\n{target.log_tail()}", flush=True)
            raise
        finally:
            target.kill()
            shutil.rmtree(self.folder / name, ignore_errors=True)


def _require_space(folder: Path, size_bytes: float) -> None:
    free = shutil.disk_usage(folder).free
    if free < size_bytes * 1.3:
        raise SystemExit(f"bench: {size_bytes * 1.3 / 1e9:.1f} GB are needed in {folder}, {free / 1e9:.1f} GB are free")


def _start(target: Target, template: Template) -> float:
    """Returns the seconds from the launch until all partitions can be used."""
    os.sync()
    begun = time.monotonic()
    target.launch()
    wire.await_ready(target.port, target.process, template.topics, template.end_offset, _TIMEOUT_S)
    return time.monotonic() - begun


def unclean_start(space: FreeSpace, options: Options) -> None:
    """Starts on the same directory after a clean stop, after a kill that followed a flush, and without recovery points.

    The rate counts the whole start as scanning: the difference of two starts would be more favourable and less certain.
    """
    size_bytes, partitions = options["gigabytes"] * 1e9, options["partitions"]
    _require_space(space.folder, size_bytes)
    properties = addresses()
    template = Template(space.folder / "template", properties, {"unclean": partitions})
    template.create()
    template.fill(int(size_bytes / partitions), options["batch_bytes"], closed=False)
    for _, name in space.alternating(options["rounds"]):
        for state in ("clean", "current", "scanned"):
            with space.target(name, properties) as target:
                template.clone(target.data_dir)
                if state != "clean":
                    make_unclean(target.data_dir, recovery_point=state == "current")
                target.prepare()
                template.warm()
                taken_s = _start(target, template)
            space.record(f"start_{state}", name, taken_s)
            if state == "scanned":
                space.record("scan_rate", name, template.size_bytes / 1e9 / taken_s)
    template.remove()


def many_partitions(space: FreeSpace, options: Options) -> None:
    """Measures a clean start with many small partitions, and the memory of the process afterwards."""
    topics = {f"many-{index}": options["partitions_per_topic"] for index in range(options["topics"])}
    _require_space(space.folder, 100_000 * sum(topics.values()))
    properties = addresses()
    template = Template(space.folder / "template", properties, topics)
    template.create()
    template.fill(1, options["batch_bytes"], closed=True)
    for _, name in space.alternating(options["rounds"]):
        with space.target(name, properties) as target:
            template.clone(target.data_dir)
            target.prepare()
            space.record("many_start", name, _start(target, template))
            time.sleep(options["settle_s"])
            space.record("many_rss", name, resident_mb(target.pid))
    template.remove()


def lookup(space: FreeSpace, options: Options) -> None:
    """Measures a look-up of an offset in a large log: in the log itself, and by fetches of one batch."""
    size_bytes = options["gigabytes"] * 1e9
    _require_space(space.folder, size_bytes)
    properties = addresses()
    template = Template(space.folder / "template", properties, {"lookup": 1})
    template.create()
    template.fill(int(size_bytes), options["batch_bytes"], closed=True)
    template.warm()
    for index, name in space.alternating(options["rounds"]):
        if name == "barnabas":
            space.record("lookup_p99", name, percentile(_locate_us(template, options["lookups"], index), 0.99))
        with space.target(name, properties) as target:
            template.clone(target.data_dir)
            target.prepare()
            _start(target, template)
            times_ms = wire.fetch_times_ms(
                target.port, "lookup", template.end_offset, options["fetches"], options["warm_up"], index
            )
            space.record("random_fetch_p50", name, percentile(times_ms, 0.5))
            space.record("random_fetch_p99", name, percentile(times_ms, 0.99))
    template.remove()


def _locate_us(template: Template, count: int, seed: int) -> list[float]:
    """Returns the microseconds from an offset to the position of its batch, in a log that was just opened."""
    log = open_partition(template.data_dir, "lookup")
    chance = Random(seed)
    times_us = []
    for _ in range(count):
        offset = chance.randrange(log.log_end_offset)
        begun = time.perf_counter()
        segment = log.segments[log.segments.place_of(offset)]
        position = segment.locate(offset)
        times_us.append((time.perf_counter() - begun) * 1e6)
        assert position is not None, f"offset {offset} is in the log"
    log.segments.release()
    return times_us


def sequential_append(space: FreeSpace, options: Options) -> None:
    """Appends large batches to an empty log, compared with a loop that checks and writes the same bytes into an empty
    file.
    """
    if not space.with_barnabas:
        return
    size_bytes = int(options["megabytes"] * 1e6)
    _require_space(space.folder, size_bytes)
    batches = [new_batch(options["batch_bytes"], seed) for seed in range(4)]
    ways = [("barnabas", append_to_log), (WRITE_LOOP, write_in_loop)]
    for _, way in ways:  # not measured
        way(space.folder / "append", batches, size_bytes // 4)
    for index in range(options["rounds"]):
        for name, way in ways if index % 2 == 0 else ways[::-1]:
            os.sync()
            written_bytes, elapsed_s = way(space.folder / "append", batches, size_bytes)
            space.record("append", name, written_bytes / 1e6 / elapsed_s)


def append_to_log(folder: Path, batches: Sequence[bytearray], size_bytes: int) -> tuple[int, float]:
    """Appends all batches in turns, about `size_bytes`; returns the bytes in the log, and seconds. The folder is
    removed.
    """
    turns = round(size_bytes / sum(map(len, batches)))
    config = LogConfig(max_message_bytes=2 << 20, segment_bytes=max(1 << 30, size_bytes * 2))
    folder.mkdir()
    try:
        log = open_partition(folder, "appended", config=config)
        begun = time.perf_counter()
        for _ in range(turns):
            for batch in batches:
                append(log, batch, 1)
        elapsed_s = time.perf_counter() - begun
        log.segments.release()
        return log.size_bytes, elapsed_s
    finally:
        # The folder is removed before it is written back, so that the next measurement does not pay for it.
        shutil.rmtree(folder)


def write_in_loop(folder: Path, batches: Sequence[bytearray], size_bytes: int) -> tuple[int, float]:
    """Writes the same bytes with nothing but a checksum and a write."""
    turns = round(size_bytes / sum(map(len, batches)))
    folder.mkdir()
    try:
        fd = os.open(folder / "written", os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            begun = time.perf_counter()
            for _ in range(turns):
                for batch in batches:
                    crc32c(memoryview(batch)[_CHECKED_FROM:])
                    if os.write(fd, batch) != len(batch):
                        raise RuntimeError("the disk is full")
            elapsed_s = time.perf_counter() - begun
            return os.fstat(fd).st_size, elapsed_s
        finally:
            os.close(fd)
    finally:
        shutil.rmtree(folder)


def compact(space: FreeSpace, options: Options) -> None:
    """Measures how fast a log is compacted, and the effect on a producer."""
    properties = {"log.cleaner.backoff.ms": "50"}
    for _, name in space.alternating(options["rounds"]):
        with space.target(name, properties) as target:
            target.prepare()
            target.launch()
            target.wait()
            outcome = compaction.run(target.bootstrap, target.data_dir, options)
        space.record("compaction", name, outcome.mb_per_s)
        space.record("produce_without_compaction_p99", name, percentile(outcome.without_ms, 0.99))
        space.record("produce_with_compaction_p99", name, percentile(outcome.during_ms, 0.99))


EXPERIMENTS: dict[str, Callable[[FreeSpace, Options], None]] = {
    "unclean_start": unclean_start,
    "many_partitions": many_partitions,
    "lookup": lookup,
    "append": sequential_append,
    "compaction": compact,
}


def run(experiments: Sequence[Experiment], data: Path, targets: Sequence[str], values: report.Values) -> None:
    """Runs all experiments one after the other, each in a folder that is removed afterwards."""
    for experiment in experiments:
        print(f"storage: {experiment.name}", flush=True)
        begun = time.monotonic()
        folder = data / experiment.name
        folder.mkdir()
        try:
            EXPERIMENTS[experiment.name](FreeSpace(folder, targets, values, experiment), experiment.options)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        print(f"  took {time.monotonic() - begun:.0f} s", flush=True)
