"""Directories that Apache Kafka left by a clean shutdown have no fault. The torn one has that fault, and repair cuts
its log where Kafka's own recovery did.
"""

from __future__ import annotations

import pytest
from tests.support import golden
from tests.support.damage import Files, disk_of, files_in

from barnabas.common.types import TopicPartition
from barnabas.records.batch import iter_headers
from barnabas.storage.checkpoints import parse_dir_name
from barnabas.storage.file_faults import FileFault, FileFaultKind
from barnabas.storage.offline.repair import Repair, is_repairable
from barnabas.storage.offline.verify import (
    PartitionReport,
    PartitionVerification,
    check_directory,
    partition_dirs,
    verify_partition,
)

ROOT = "/data"
SOUND = (
    "formatted-standalone",
    "formatted-static",
    "formatted-scram-release-4.0",
    "formatted-broker-only",
    "stage1-clean-shutdown",
    "stage2-cleaned",
    "stage3-recovered",
    "old-formats-3.9.1-zookeeper",
    "replicated/n1",
    "replicated/n2",
    "replicated/n3",
)


def recorded(name: str) -> Files:
    found = {
        f"{ROOT}/{path.removeprefix(name + '/')}": data
        for path, data in golden.files().items()
        if path.startswith(name + "/")
    }
    assert found
    return found


def faults_in(files: Files) -> tuple[list[FileFault], int]:
    """Returns all faults, and the number of batches that were checked."""
    disk = disk_of(files)
    directories, _ = partition_dirs(disk, ROOT)
    reports: dict[TopicPartition, PartitionReport] = {}
    for directory in directories:
        parsed = parse_dir_name(directory.rpartition("/")[2])
        assert parsed is not None
        reports[parsed.topic_partition] = verify_partition(disk, directory)
    faults = [fault for report in reports.values() for fault in report.faults]
    return [*faults, *check_directory(disk, ROOT, reports)], sum(report.batches for report in reports.values())


@pytest.mark.parametrize("name", SOUND)
def test_what_kafka_left_in_order_has_no_fault(name: str) -> None:
    files = recorded(name)
    faults, batches = faults_in(files)
    # Indexes that were still at their full size when they were recorded were too large to be kept.
    missing = [fault for fault in faults if fault.kind is FileFaultKind.MISSING]
    assert [fault for fault in faults if fault not in missing] == []
    assert not missing or name == "replicated/n3"
    assert batches > 0 or name.startswith("formatted-")


def test_torn_tail_is_named() -> None:
    faults, _ = faults_in(recorded("stage3-killed"))
    assert [(fault.path, fault.kind, fault.position, fault.offset) for fault in faults] == [
        (f"{ROOT}/crash-0/00000000000000000028.log", FileFaultKind.TORN, 394, 30)
    ]


def test_repair_cuts_where_kafkas_recovery_cut() -> None:
    files = recorded("stage3-killed")
    disk = disk_of(files)
    verification = PartitionVerification(disk, f"{ROOT}/crash-0")
    verification.run()
    kept = Repair(disk, verification).apply("repair-now")
    assert kept == f"{ROOT}/crash-0/repair-now"
    after = files_in(disk, ROOT)
    assert faults_in(after)[0] == []
    logs = {path: data for path, data in recorded("stage3-recovered").items() if path.endswith(".log")}
    assert {path: data for path, data in after.items() if path.endswith(".log")} == logs
    assert after[f"{kept}/00000000000000000028.log.from-394"] == files[f"{ROOT}/crash-0/00000000000000000028.log"][394:]


def test_compaction_leaves_notes_but_no_faults() -> None:
    disk = disk_of(recorded("stage2-cleaned"))
    report = verify_partition(disk, f"{ROOT}/compacted-0")
    assert report.faults == []
    assert {note.kind for note in report.notes} == {FileFaultKind.GAP, FileFaultKind.LEFTOVER}


@pytest.mark.parametrize("change", ["flip", "footer", "header"])
def test_a_damaged_metadata_snapshot_is_named_and_left_alone(change: str) -> None:
    files = recorded("formatted-standalone")
    path = f"{ROOT}/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
    sizes = [header.size_bytes for _, header in iter_headers(files[path])]
    data = {
        "flip": files[path][:100] + b"?" + files[path][101:],
        "footer": files[path][: -sizes[-1]],
        "header": files[path][sizes[0] :],
    }[change]
    files[path] = data
    faults, _ = faults_in(files)
    assert [fault.path for fault in faults] == [path]
    assert not is_repairable(faults[0])
    verification = PartitionVerification(disk_of(files), f"{ROOT}/__cluster_metadata-0")
    verification.run()
    assert Repair(disk_of(files), verification).steps == []


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex"])
def test_an_index_that_is_gone_is_named_and_made_anew(suffix: str) -> None:
    files = recorded("stage1-clean-shutdown")
    path = f"{ROOT}/txn-rolled-0/00000000000000000003{suffix}"
    original = files.pop(path)
    disk = disk_of(files)
    verification = PartitionVerification(disk, f"{ROOT}/txn-rolled-0")
    report = verification.run()
    assert [fault.path for fault in report.faults] == [path]
    Repair(disk, verification).apply("repair-now")
    # The others are as dense as the settings of a topic ask for, which are not known here.
    assert suffix != ".txnindex" or disk.read(path) == original
    assert disk.exists(path)
    assert verify_partition(disk, f"{ROOT}/txn-rolled-0").faults == []
