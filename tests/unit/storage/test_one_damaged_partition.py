"""Finding 14: damage to the files of one partition costs that partition, not its directory."""

from __future__ import annotations

import pytest
from tests.support.damage import Files
from tests.support.damaged_world import DAMAGED, ROOT, SOUND, killed, logs_of, readable, started, stopped, taken_up

from barnabas.storage.recovery import recovery

IDENTITY = f"{ROOT}/{DAMAGED}/partition.metadata"


@pytest.mark.parametrize("stop", [stopped, killed])
@pytest.mark.parametrize(
    "data", [b"", b"junk", b"version: 9\ntopic_id: x", b"version: 0\ntopic_id: \xff\xfe", bytes(43)]
)
def test_a_damaged_topic_id_is_taken_from_the_metadata(stop: object, data: bytes) -> None:
    files: Files = stop() | {IDENTITY: data}  # type: ignore[operator]
    manager, host = started(files)
    assert manager.offline_directories == set()
    assert host.faults.reported == []
    assert any("orders-0: its topic id is taken from the metadata" in text for text in host.faults.informed)
    log = taken_up(manager)
    assert len(readable(log)) == 40
    assert host.disk.read(IDENTITY) == files[IDENTITY.replace("orders", "payments")]


@pytest.mark.parametrize("junk", [b"\x00" * 100, b"junk" * 50, b"\xff" * 7])
def test_junk_behind_the_last_batch_is_cut_and_logged(junk: bytes) -> None:
    files = stopped()
    last = logs_of(files)[-1]
    manager, host = started(files | {last: files[last] + junk})
    assert manager.offline_directories == set()
    assert any(f"{len(junk)} bytes" in text and "cut off" in text for text in host.faults.informed)
    log = taken_up(manager)
    assert log.log_end_offset == 40
    assert host.disk.size(last) == len(files[last])


@pytest.mark.parametrize("junk", [b"\x00" * 100, b"junk" * 50])
def test_junk_behind_an_older_segment_is_never_read(junk: bytes) -> None:
    files = stopped()
    path = logs_of(files)[1]
    manager, _ = started(files | {path: files[path] + junk})
    assert len(readable(taken_up(manager))) == 40


def test_a_log_that_cannot_be_opened_leaves_the_others_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    files = stopped()
    real = recovery._open_log

    def failing(services: object, opening: recovery.Opening) -> object:
        if opening.topic_partition == DAMAGED:
            raise recovery.DamagedLogError(opening.directory, "no way")
        return real(services, opening)  # type: ignore[arg-type]

    monkeypatch.setattr(recovery, "_open_log", failing)
    manager, host = started(files)
    assert manager.offline_directories == set()
    assert manager.damaged.unusable == {DAMAGED: f"{ROOT}/{DAMAGED}"}
    assert manager.previous_broker_epoch == -1
    (line,) = [text for text, _ in host.faults.reported]
    assert "no way" in line
    assert len(readable(taken_up(manager, SOUND))) == 40
    manager.damaged.set_aside(DAMAGED)
    assert any(name.endswith("-stray") for name in host.disk.list_dir(ROOT))
