"""Finding 8: `log verify` finds a batch with a right checksum whose records cannot be decoded, and `log repair` removes
it; all other records keep their offsets, and the batch is set aside.
"""

from __future__ import annotations

import pytest
from tests.support.batches import NOW_MS
from tests.support.damage import DIRECTORY, KEPT, batches, disk_of, files_in, records, repaired, verified
from tests.support.log_world import LogWorld
from tests.unit.storage.test_compaction import lying_batch

from barnabas.storage.file_faults import FileFault, FileFaultKind
from barnabas.storage.offline.repair import is_repairable


def poisoned() -> LogWorld:
    world = LogWorld()
    world.append(NOW_MS, NOW_MS + 1)
    world.log.append_as_follower(lying_batch(2))
    world.append(NOW_MS + 2, NOW_MS + 3, NOW_MS + 4)
    world.log.close(clean=True)
    return world


@pytest.mark.parametrize(("directory", "expected"), [("/data/orders-0", True), ("/data/__cluster_metadata-0", False)])
def test_records_of_the_metadata_log_are_not_repaired(directory: str, expected: bool) -> None:
    fault = FileFault(f"{directory}/{0:020d}.log", FileFaultKind.RECORDS, "a batch that cannot be decoded")
    assert is_repairable(fault) == expected


def test_it_is_named_and_taken_out() -> None:
    world = poisoned()
    disk = disk_of(files_in(world.disk, world.root))
    _, faults = verified(disk)
    (fault,) = [fault for fault in faults if fault.kind is FileFaultKind.RECORDS]
    assert (fault.offset, fault.path.rpartition("/")[2]) == (2, f"{0:020d}.log")
    steps = repaired(disk)
    assert any("offsets 2 to 6, is replaced by an empty one" in step for step in steps)
    after = files_in(disk, world.root)
    assert [record.offset for record in records(batches(after))] == [0, 1, 7, 8, 9]
    assert verified(disk)[1] == []
    (kept,) = [data for path, data in after.items() if f"/{KEPT}/" in path and ".log.at-" in path]
    assert kept == lying_batch(2)
    again = LogWorld(disk=disk, clean=False)
    assert again.offsets() == [0, 1, 7, 8, 9]
    assert again.log.log_end_offset == 10
    assert again.directory == DIRECTORY


def test_a_second_repair_has_nothing_to_do() -> None:
    disk = disk_of(files_in(poisoned().disk, "/logs"))
    repaired(disk)
    assert repaired(disk) == []
