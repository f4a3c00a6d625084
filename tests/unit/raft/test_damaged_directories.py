"""Every file of a metadata directory, damaged in every way: all that was committed is served, or the start is refused
with the name of the file. Nothing is ever missing without a message.

A directory has several segments, with snapshots or without, and three epochs; it is left by a clean stop, by a kill,
and by a power failure after which the checkpoint is some seconds old.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.support.damage import Files, disk_of, files_in
from tests.support.node_world import LOG_DIR, METADATA_DIR, NodeWorld, content

from barnabas.common.errors import ConfigError, FatalFault
from barnabas.metadata.image import EMPTY_IMAGE, MetadataImage
from barnabas.raft.log_checkpoint import log_checkpoint_path
from barnabas.raft.quorum_state import FILE_NAME
from barnabas.storage.checkpoints import META_PROPERTIES

PROPERTIES = {
    "metadata.log.max.record.bytes.between.snapshots": "700",
    "metadata.max.retention.bytes": "2500",
    "internal.metadata.log.segment.bytes": "1000",
    "metadata.log.max.snapshot.interval.ms": "0",
}
#: A log without snapshots, from its beginning.
PLAIN = {"internal.metadata.log.segment.bytes": "1500", "metadata.log.max.snapshot.interval.ms": "0"}
CHECKPOINT = log_checkpoint_path(LOG_DIR)
KINDS = ("flip", "cut", "zero")
Base = tuple[Files, MetadataImage, dict[str, str]]


@functools.cache
def base(name: str) -> Base:
    """Returns (files, their image, properties)."""
    properties = PLAIN if name.startswith("plain") else PROPERTIES
    world = NodeWorld(properties).join()
    for life in range(3):
        if life:
            world.raft.stop()
            world = NodeWorld(properties, disk=world.host.disk, seed=life).start()
            assert world.register().error_code == 0
            assert not world.beat().is_fenced
        for number in range(3):
            assert world.create(f"topic-{life}-{number}").topics[0].error_code == 0
            world.host.time.run_for(5)
    old_checkpoint = world.host.disk.read(CHECKPOINT)
    assert world.create("the-last").topics[0].error_code == 0
    if name.endswith("clean"):
        world.raft.stop()
    files = files_in(world.host.disk, LOG_DIR)
    if name.endswith("power"):
        files[CHECKPOINT] = old_checkpoint
    return files, held(world.image), properties


def held(image: MetadataImage) -> MetadataImage:
    """Returns the image without the registrations that a controller writes at each start."""
    return replace(content(image), controllers=EMPTY_IMAGE.controllers)


#: The advice that a refusal gives the operator.
ADVICE = ("restore the", "`barnabas log repair", "correct", "use the directory of this node")
BASES = ("clean", "kill", "plain-clean", "plain-kill")


def damaged(data: bytes, kind: str, at: int) -> bytes:
    if kind == "cut":
        return data[:at]
    if kind == "zero":
        return data[:at] + bytes(len(data) - at)
    return data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :]


def places(files: Files, step: int) -> Iterator[tuple[str, str, int]]:
    """Yields (path, kind, byte): all places where damage changes something, or a sample of them with every file and its
    ends.
    """
    for path, data in sorted(files.items()):
        for kind in KINDS:
            for at in range(len(data)):
                is_chosen = at % step == hash_of(path, kind) % step or at in (0, len(data) - 1)
                if is_chosen and damaged(data, kind, at) != data:
                    yield path, kind, at


def hash_of(path: str, kind: str) -> int:
    return sum(path.encode()) + 7 * len(kind) + ord(kind[0])


def start(files: Files, properties: dict[str, str]) -> tuple[NodeWorld | None, str]:
    """Returns the node, or the reason why it does not start."""
    try:
        return NodeWorld(properties, disk=disk_of(files), seed=9).start(), ""
    except (FatalFault, ConfigError) as refusal:
        return None, str(refusal)


def check(files: Files, whole: MetadataImage, properties: dict[str, str], path: str, where: str) -> str:
    """Starts with the damaged files, and returns the outcome."""
    world, refusal = start(files, properties)
    if world is None:
        assert path in refusal or path.rpartition("/")[0] in refusal, f"{where}: {refusal}"
        assert "\n" not in refusal, f"{where}: {refusal}"
        assert any(advice in refusal for advice in ADVICE), f"{where}: {refusal}"
        return "refused"
    assert world.raft.is_leader, f"{where}: it started and leads nobody"
    assert held(world.image) == whole, f"{where}: something is missing, and all that was said is {world.said}"
    return "served"


def check_all(name: str, step: int) -> dict[tuple[str, str], set[str]]:
    files, whole, properties = base(name)
    outcomes: dict[tuple[str, str], set[str]] = {}
    for path, kind, at in places(files, step):
        changed = {**files, path: damaged(files[path], kind, at)}
        outcome = check(changed, whole, properties, path, f"{name}: {path}, {kind} at {at}")
        outcomes.setdefault((path.rpartition(".")[2], kind), set()).add(outcome)
    for path in files:
        changed = {other: data for other, data in files.items() if other != path}
        check(changed, whole, properties, path, f"{name}: {path} missing")
    return outcomes


@pytest.mark.parametrize("name", BASES)
def test_a_sample_of_all_damages(name: str) -> None:
    outcomes = check_all(name, 61)
    assert outcomes["log", "flip"] == outcomes["log", "cut"] == {"refused"}
    assert "served" in outcomes["checkpoint", "flip"]


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", BASES)
def test_every_byte(name: str) -> None:
    check_all(name, 1)


@pytest.mark.parametrize("name", ["kill", "plain-kill"])
def test_a_torn_tail_that_was_never_acknowledged_is_cut_and_logged(name: str) -> None:
    files, whole, properties = base(name)
    last = max(path for path in files if path.endswith(".log"))
    torn = {**files, last: files[last] + bytes(40)}
    world = NodeWorld(properties, disk=disk_of(torn), seed=9).start()
    assert held(world.image) == whole
    (warning,) = world.host.faults.warned
    assert f"{last}, byte {len(files[last])}, offset " in warning
    assert "40 bytes are cut off the metadata log (a torn tail that was not flushed)" in warning


@pytest.mark.parametrize("name", ["power", "plain-power"])
def test_after_a_power_failure_the_old_checkpoint_still_proves_what_was_before(name: str) -> None:
    files, whole, properties = base(name)
    last = max(path for path in files if path.endswith(".log"))
    data = files[last]
    told = refused = 0
    for kind in KINDS:
        for at in range(0, len(data), 7):
            world, refusal = start({**files, last: damaged(data, kind, at)}, properties)
            if world is None:
                assert last in refusal
                refused += 1
            elif held(world.image) != whole:
                (warning,) = world.host.faults.warned
                assert last in warning
                assert "are cut off the metadata log" in warning
                assert set(whole.topics_by_name) - set(world.image.topics_by_name) == {"the-last"}
                told += 1
    assert told > 5
    assert refused > 20


@pytest.mark.parametrize("name", BASES)
def test_a_log_without_the_checkpoint_is_cut_at_its_very_end_only(name: str) -> None:
    """The directory is as Apache Kafka leaves it: an intact batch after the damage proves that it is no torn end."""
    files, whole, properties = base(name)
    without = {path: data for path, data in files.items() if path != CHECKPOINT}
    assert held(NodeWorld(properties, disk=disk_of(without), seed=9).start().image) == whole
    for path in sorted(path for path in files if path.endswith(".log")):
        data = files[path]
        for at in range(0, len(data), 13):
            world, refusal = start({**without, path: damaged(data, "flip", at)}, properties)
            if world is None:
                assert path.rpartition("/")[0] in refusal
            elif held(world.image) != whole:
                assert len(data) - at < 200, f"{path} at {at}"
                assert "are cut off the metadata log" in world.host.faults.warned[0]


def test_a_missing_log_next_to_topics_is_refused_without_any_checkpoint() -> None:
    files, _, properties = base("clean")
    kept = {path: data for path, data in files.items() if not path.startswith(METADATA_DIR) and path != CHECKPOINT}
    kept[f"{LOG_DIR}/orders-0/partition.metadata"] = b""
    with pytest.raises(
        FatalFault, match=r"missing or empty, but there are 1 partition directories, such as /data/orders-0"
    ):
        NodeWorld(properties, disk=disk_of(kept), seed=9).start()


def test_an_empty_log_next_to_a_quorum_state_is_refused_without_any_checkpoint() -> None:
    files, _, properties = base("plain-clean")
    kept = {path: data for path, data in files.items() if path.endswith((META_PROPERTIES, FILE_NAME))}
    with pytest.raises(FatalFault, match=r"missing or empty, but its quorum-state has epoch 3: restore the"):
        NodeWorld(properties, disk=disk_of(kept), seed=9).start()


def test_what_was_refused_is_left_as_it_was() -> None:
    files, _, properties = base("clean")
    for path in [path for path in files if path.endswith(".log")]:
        disk = disk_of({**files, path: damaged(files[path], "flip", 100)})
        for _ in range(2):
            with pytest.raises(FatalFault):
                NodeWorld(properties, disk=disk, seed=9).start()
        after = files_in(disk, LOG_DIR)
        for other, data in files.items():
            # A file that is rebuilt from the log can be incomplete at that moment.
            if not other.endswith((".index", ".timeindex", ".snapshot")) and other != path:
                assert after[other] == data, other
        assert after[path] == damaged(files[path], "flip", 100)
