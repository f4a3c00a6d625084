"""The directories that the storage rows start on, and the requests that show when a broker is ready."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from barnabas.storage import checkpoints

BENCH = Path(__file__).parents[3] / "bench"
sys.path.insert(0, str(BENCH))

import directories  # noqa: E402
import storage  # noqa: E402
import targets  # noqa: E402
import wire  # noqa: E402

BATCH_BYTES = 4_000
SIZE_BYTES = 50_000


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> directories.Template:
    folder = tmp_path_factory.mktemp("bench")
    made = directories.Template(folder / "template", targets.addresses(), {"unclean": 3, "other": 1})
    made.create()
    made.fill(SIZE_BYTES, BATCH_BYTES, closed=False)
    return made


def test_every_partition_holds_the_same_records_and_is_named_in_the_checkpoints(
    template: directories.Template,
) -> None:
    assert SIZE_BYTES * 4 <= template.size_bytes < (SIZE_BYTES + BATCH_BYTES) * 4
    ends = set()
    for partition in template.partitions():
        log = directories.open_partition(template.data_dir, partition.topic, partition.partition)
        headers = [header for header, _ in log.batches(0, 1 << 20)]
        assert headers[-1].next_offset == log.log_end_offset == template.end_offset
        assert all(abs(header.size_bytes - BATCH_BYTES) < 100 for header in headers)
        assert log.topic_id != bytes(16), "its topic id is its own"
        ends.add(log.log_end_offset)
        log.segments.release()
    assert len(ends) == 1
    for name in (checkpoints.RECOVERY_POINT_CHECKPOINT, checkpoints.HIGH_WATERMARK_CHECKPOINT):
        offsets = checkpoints.decode_offsets(name, (template.data_dir / name).read_bytes())
        assert offsets == dict.fromkeys(template.partitions(), template.end_offset)


def test_a_clone_shares_segments_and_nothing_else(template: directories.Template, tmp_path: Path) -> None:
    template.clone(tmp_path / "data")
    shared = 0
    for path in template.data_dir.rglob("*"):
        if path.is_file():
            other = tmp_path / "data" / path.relative_to(template.data_dir)
            is_segment = path.suffix == ".log" and path.parent.name.startswith(("unclean-", "other-"))
            assert other.samefile(path) == is_segment, f"{path.name}"
            assert other.read_bytes() == path.read_bytes()
            shared += is_segment
    assert shared == 4


@pytest.mark.parametrize("recovery_point", [True, False])
def test_a_broker_is_ready_when_every_partition_reports_its_end(
    template: directories.Template, tmp_path: Path, recovery_point: bool
) -> None:
    target = targets.TARGETS["barnabas"](tmp_path / "node", targets.addresses())
    template.clone(target.data_dir)
    directories.make_unclean(target.data_dir, recovery_point=recovery_point)
    assert not (target.data_dir / checkpoints.CLEAN_SHUTDOWN_FILE).exists()
    assert (target.data_dir / checkpoints.RECOVERY_POINT_CHECKPOINT).exists() == recovery_point
    target.prepare()
    target.launch()
    try:
        wire.await_ready(target.port, target.process, template.topics, template.end_offset, 30)
        with pytest.raises(RuntimeError, match=f"ends at {template.end_offset}, not at 7"):
            wire.check_ready(wire.Link(target.port), template.topics, 7)
        with pytest.raises(wire.NotReady, match="missing"):
            wire.check_ready(wire.Link(target.port), {"missing": 1}, template.end_offset)
        assert len(wire.fetch_times_ms(target.port, "other", template.end_offset, 20, 5, seed=1)) == 20
        with pytest.raises(RuntimeError, match="error 1"):
            wire.fetch_times_ms(target.port, "other", template.end_offset + 10**9, 20, 0, seed=1)
    finally:
        target.kill()


def test_waiting_for_a_broker_that_ended_fails_at_once(tmp_path: Path) -> None:
    target = targets.TARGETS["barnabas"](tmp_path / "node", {**targets.addresses(), "log.dirs": "/proc/none"})
    target.prepare()
    target.launch()
    target.process.wait(30)
    with pytest.raises(RuntimeError, match="exit code 1"):
        wire.await_ready(target.port, target.process, {"any": 1}, 0, 30)


def test_both_ways_to_append_write_all_bytes_and_leave_nothing(tmp_path: Path) -> None:
    batches = [directories.new_batch(100_000, seed) for seed in range(4)]
    expected = sum(map(len, batches)) * 5
    for way in (storage.append_to_log, storage.write_in_loop):
        written_bytes, elapsed_s = way(tmp_path / "append", batches, 2_000_000)
        assert (written_bytes, elapsed_s > 0) == (expected, True)
        assert os.listdir(tmp_path) == []
