"""`barnabas history record` on a phantom cluster: a change of very many partitions is recorded with its causes."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.phantom_feeds import feeds_of, run, until

from barnabas.cli import history
from barnabas.history.recorder import Recorder
from barnabas.history.retention import Bounds
from barnabas.monitor.packed_changes import PACKED_FROM, PackedChanges
from barnabas.testing.phantom import PhantomCluster

TOPICS, PARTITIONS = 1_000, 4


def explained(file: Path) -> int:
    """Returns the number of recorded changes that have a cause."""
    connection = sqlite3.connect(file)
    try:
        return int(connection.execute("SELECT count(*) FROM events WHERE cause IS NOT NULL").fetchone()[0])
    finally:
        connection.close()


def test_a_kill_is_recorded_packed_and_with_the_cause_of_each_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "h.db"
    added: list[int] = []
    explain_packed = Recorder.explain_packed

    def counted(recorder: Recorder, packed: PackedChanges) -> None:
        added.append(len(packed))
        explain_packed(recorder, packed)

    monkeypatch.setattr(Recorder, "explain_packed", counted)

    async def main(phantom: PhantomCluster) -> None:
        task = asyncio.create_task(history._record(feeds_of(phantom), file, Bounds(7, 100_000_000), 0.05))
        try:
            await until(lambda: task.done() or (file.exists() and file.stat().st_size > 0), "nothing is recorded")
            await asyncio.sleep(0.5)
            phantom.change(lambda state: state.kill(2))
            await until(lambda: task.done() or sum(added) >= TOPICS * PARTITIONS, "the kill is not seen")
            await asyncio.sleep(0.5)
            assert not task.done(), task
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    with PhantomCluster(topics=TOPICS, partitions=PARTITIONS, journal=True) as phantom:
        run(main(phantom))
    assert max(added) >= PACKED_FROM
    assert explained(file) >= TOPICS * PARTITIONS
