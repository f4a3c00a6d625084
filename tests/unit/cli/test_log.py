"""`barnabas log dump|verify|repair` as commands: their output, their exit codes, and the files that they change."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support import golden

from barnabas.cli.app import run
from barnabas.server.disk import OsDisk

Output = pytest.CaptureFixture[str]


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A data directory whose last segment ends inside a batch."""
    return golden.unpack("stage3-killed", tmp_path / "killed")


@pytest.fixture
def clean(tmp_path: Path) -> Path:
    return golden.unpack("stage1-clean-shutdown", tmp_path / "clean")


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_verify_of_an_embedded_cluster_looks_into_all_of_its_brokers(tmp_path: Path, capsys: Output) -> None:
    (tmp_path / "cluster.json").write_text("{}")
    for number in (1, 2):
        golden.unpack("stage1-clean-shutdown", tmp_path / f"broker-{number}" / "data")
    run(["log", "verify", str(tmp_path / "broker-1" / "data"), "--json"])
    alone = json.loads(capsys.readouterr().out)
    run(["log", "verify", str(tmp_path), "--json"])
    both = json.loads(capsys.readouterr().out)
    assert both["segments"] == 2 * alone["segments"] > 0


def test_dump_prints_what_kafkas_tool_prints(clean: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(clean)
    name = "headers-0/00000000000000000000.log"
    assert run(["log", "dump", "--deep-iteration", "--print-data-log", "--files", name]) == 0
    recorded = golden.files()["stage1-clean-shutdown.dumps/headers-0.dump.txt"].decode()
    section = recorded.partition("\n")[2].partition("$ ")[0]
    assert capsys.readouterr().out == section


def test_dump_of_a_directory_shows_all_in_it(clean: Path, capsys: Output) -> None:
    assert run(["log", "dump", str(clean / "txn-rolled-0")]) == 0
    printed = capsys.readouterr().out
    names = sorted(path.name for path in (clean / "txn-rolled-0").iterdir() if path.name[:20].isdigit())
    assert [line.rpartition("/")[2] for line in printed.splitlines() if line.startswith("Dumping ")] == names
    assert "| offset" not in printed


def test_dump_with_a_decoder_prints_records(clean: Path, capsys: Output) -> None:
    log = clean / "__transaction_state-0" / "00000000000000000000.log"
    assert run(["log", "dump", "--transaction-log-decoder", "--max-bytes", "200", str(log)]) == 0
    assert 'key: {"type":"0","data":{"transactionalId":"java-compact-tx"}}' in capsys.readouterr().out


def test_dump_without_record_metadata_prints_keys_and_values_only(clean: Path, capsys: Output) -> None:
    log = clean / "nulls-0" / "00000000000000000000.log"
    assert run(["log", "dump", "--print-data-log", "--skip-record-metadata", str(log)]) == 0
    lines = capsys.readouterr().out.splitlines()[3:]
    assert lines == [
        " payload: null key",
        "| key: null value",
        "",
        "| key:  payload: ",
        "| key: ",
        "| key: k payload: ",
    ]


def test_dump_ends_as_kafkas_tool_where_an_index_is_corrupt(killed: Path, capsys: Output) -> None:
    index = killed / "crash-0" / "00000000000000000028.timeindex"
    assert run(["log", "dump", "--index-sanity-check", str(index)]) == 1
    said = capsys.readouterr().err
    assert said.startswith('Exception in thread "main" org.apache.kafka.storage.internals.log.CorruptIndexException: ')
    assert f"time index file ({index}) has non-zero size" in said


def test_dump_refuses_what_it_cannot_do(clean: Path, capsys: Output) -> None:
    log = str(clean / "nulls-0" / "00000000000000000000.log")
    assert run(["log", "dump"]) == 1
    assert "no file given" in capsys.readouterr().err
    assert run(["log", "dump", "--value-decoder-class", "com.example.MyDecoder", log]) == 1
    assert "com.example.MyDecoder" in capsys.readouterr().err
    assert run(["log", "dump", "--value-decoder-class", "kafka.serializer.StringDecoder", log]) == 0
    assert "payload: null key" in capsys.readouterr().out
    assert run(["log", "dump", str(clean / "nulls-0" / "00000000000000000007.log")]) == 1
    assert "NoSuchFileException" in capsys.readouterr().err


def test_verify_of_a_clean_directory_finds_nothing_and_changes_nothing(clean: Path, capsys: Output) -> None:
    before = contents(clean)
    assert run(["log", "verify", str(clean), "--jobs", "2"]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("31 partitions, 58 segments, 339 batches, ")
    assert printed.out.endswith("no faults\n")
    assert "verified 31 of 31 partitions" in printed.err
    assert contents(clean) == before


def test_verify_names_each_fault_and_fails(killed: Path, capsys: Output) -> None:
    before = contents(killed)
    assert run(["log", "verify", str(killed)]) == 1
    log = killed / "crash-0" / "00000000000000000028.log"
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"torn: {log}, byte 394, offset 30: a batch of 195 bytes, but only 100 bytes are left"
    assert lines[-1].endswith(": 1 fault")
    assert run(["log", "verify", "--json", str(killed / "crash-0")]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["batches"] == 30
    assert found["faults"] == [
        {
            "file": str(log),
            "position": 394,
            "offset": 30,
            "kind": "torn",
            "message": "a batch of 195 bytes, but only 100 bytes are left",
        }
    ]
    assert contents(killed) == before


def test_verify_reports_checkpoints_beyond_the_end_of_a_log(clean: Path, capsys: Output) -> None:
    log = clean / "epochs-0" / "00000000000000000000.log"
    log.write_bytes(b"")
    assert run(["log", "verify", "--shallow", str(clean)]) == 1
    printed = capsys.readouterr().out
    assert f"checkpoint: {clean / 'recovery-point-offset-checkpoint'}" in printed
    assert "epochs-0 is at" in printed


def test_epochs_behind_the_recovery_point_need_not_be_on_file_while_a_broker_runs(clean: Path, capsys: Output) -> None:
    """The file is written in the background; a start after a kill finds the epochs in the batches."""
    (clean / "epochs-0" / "leader-epoch-checkpoint").write_text("0\n0\n")
    assert run(["log", "verify", str(clean)]) == 1, "a clean stop leaves all of them"
    (clean / ".kafka_cleanshutdown").unlink()
    assert run(["log", "verify", str(clean)]) == 1, "of what the recovery point says, all are there"
    assert "the file has no epoch, but the log has epoch" in capsys.readouterr().out
    points = clean / "recovery-point-offset-checkpoint"
    kept = [line for line in points.read_text().splitlines()[2:] if not line.startswith("epochs ")]
    points.write_text("\n".join(["0", str(len(kept)), *kept, ""]))
    assert run(["log", "verify", str(clean)]) == 0
    assert run(["log", "verify", str(clean / "epochs-0")]) == 0
    points.unlink()
    assert run(["log", "verify", str(clean)]) == 0


def test_an_older_epoch_than_the_last_on_file_is_a_fault_wherever_it_stands(clean: Path, capsys: Output) -> None:
    (clean / "epochs-0" / "leader-epoch-checkpoint").write_text("0\n1\n77 0\n")
    (clean / ".kafka_cleanshutdown").unlink()
    (clean / "recovery-point-offset-checkpoint").unlink()
    assert run(["log", "verify", str(clean)]) == 1
    assert "leader-epoch-checkpoint has 77" in capsys.readouterr().out


def test_verify_refuses_what_is_no_data_directory(tmp_path: Path, capsys: Output) -> None:
    assert run(["log", "verify", str(tmp_path / "nowhere")]) == 1
    assert "is not a directory" in capsys.readouterr().err
    assert run(["log", "verify", str(tmp_path)]) == 1
    assert "contains no logs" in capsys.readouterr().err


def test_repair_changes_nothing_unless_it_is_confirmed(killed: Path, capsys: Output) -> None:
    before = contents(killed)
    assert run(["log", "repair", str(killed)]) == 0
    printed = capsys.readouterr()
    assert "00000000000000000028.log: cut at byte 394, offset 30; 100 bytes saved in the repair folder" in printed.out
    assert "--yes" in printed.err
    assert contents(killed) == before


def test_repair_cuts_the_log_and_keeps_what_it_cut(killed: Path, capsys: Output) -> None:
    before = contents(killed)
    assert run(["log", "repair", "--yes", str(killed)]) == 0
    assert run(["log", "verify", str(killed)]) == 0
    after = contents(killed)
    kept = {name: data for name, data in after.items() if "/repair-" in name}
    tail = next(data for name, data in kept.items() if name.endswith("00000000000000000028.log.from-394"))
    log = "crash-0/00000000000000000028.log"
    assert after[log] + tail == before[log]
    capsys.readouterr()
    for directory in (killed, killed / "crash-0"):
        assert run(["log", "repair", "--yes", str(directory)]) == 0
        assert capsys.readouterr().out == "nothing to repair\n"


def test_repair_puts_checkpoints_back_and_takes_the_clean_marker_away(clean: Path, capsys: Output) -> None:
    log = clean / "epochs-0" / "00000000000000000000.log"
    data = log.read_bytes()
    log.write_bytes(data[:-1])
    assert run(["log", "repair", "--yes", str(clean)]) == 0
    assert run(["log", "verify", str(clean)]) == 0
    assert not (clean / ".kafka_cleanshutdown").exists()
    kept = sorted(path.name.partition(".repair-")[0] for path in clean.glob("*.repair-*"))
    assert kept == [".kafka_cleanshutdown", "recovery-point-offset-checkpoint", "replication-offset-checkpoint"]
    assert data.startswith(log.read_bytes())


def test_repair_refuses_a_directory_in_use(killed: Path, capsys: Output) -> None:
    before = contents(killed)
    lock = OsDisk().lock(str(killed / ".lock"))
    try:
        for options in ([], ["--yes"]):
            assert run(["log", "repair", *options, str(killed)]) == 1
            assert "is in use" in capsys.readouterr().err
    finally:
        lock.release()
    (killed / ".lock").unlink()
    assert contents(killed) == before


def test_repair_says_what_it_cannot_repair(killed: Path, capsys: Output) -> None:
    (killed / "crash-0" / "partition.metadata").write_text("version: 0\ntopic_id: nonsense")
    assert run(["log", "repair", "--yes", str(killed)]) == 1
    assert "not repaired: checkpoint: " in capsys.readouterr().out
    assert (killed / "crash-0" / "partition.metadata").read_text().endswith("nonsense")
