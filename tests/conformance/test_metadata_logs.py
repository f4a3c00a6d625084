"""Metadata logs and snapshots that Kafka 4.1.0 wrote: read record by record as Kafka reads them, written back to the
same bytes, and replayed to the image that Kafka's records describe.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.metadata_logs import DATA, RECORDED, batches, dumped, logs, snapshots
from tests.support.metadata_model import MetadataModel, assert_same

from barnabas.metadata.frame import encode_record
from barnabas.metadata.image import EMPTY_IMAGE, MetadataDelta, MetadataImage
from barnabas.metadata.snapshot import image_records
from barnabas.metadata.store import MetadataLoader
from barnabas.protocol.kafka_json import to_json_object
from barnabas.raft.snapshots import decode_snapshot, encode_snapshot, parse_name
from barnabas.records.batch import iter_headers

FILES = [(name, path) for name in RECORDED for path in (*logs(name), *snapshots(name))]


@pytest.mark.parametrize(("name", "path"), FILES, ids=lambda value: getattr(value, "name", value))
def test_every_record_is_what_kafka_says_and_has_kafkas_bytes(name: str, path: Path) -> None:
    said = dumped(name).get(path.name, {})
    seen = 0
    for _, records in batches(path):
        for offset, value, message, version in records:
            kind = "".join("_" + c if c.isupper() and i else c for i, c in enumerate(message.NAME)).upper()
            shown = {"type": kind, "version": version, "data": to_json_object(message, version)}
            assert shown == said[offset]
            assert encode_record(message, version) == value
            seen += 1
    assert seen == len(said)


def replay_snapshot(path: Path) -> MetadataImage:
    snapshot_id = parse_name(path.name)
    assert snapshot_id is not None
    snapshot = decode_snapshot(path.read_bytes())
    delta = MetadataDelta(EMPTY_IMAGE)
    for record, _ in snapshot.records:
        delta.replay(record)
    return delta.apply(snapshot_id.end_offset - 1, snapshot_id.epoch, snapshot.last_contained_log_timestamp_ms)


def test_the_log_of_a_node_gives_the_image_of_the_dumb_model_after_each_batch() -> None:
    said = dumped("one-node")
    loader, model = MetadataLoader(), MetadataModel()
    compared = 0
    for path in logs("one-node"):
        for header, records in batches(path):
            if header.is_control:
                loader.skip(header.last_offset, header.partition_leader_epoch, header.max_timestamp)
                continue
            loader.load(
                header.base_offset,
                header.partition_leader_epoch,
                header.max_timestamp,
                [record for _, _, record, _ in records],
            )
            for offset, _, _, _ in records:
                model.replay(said[path.name][offset]["type"], said[path.name][offset]["data"])
            assert_same(loader.image, model)
            compared += 1
    assert compared > 20
    assert loader.image.offset == loader.last_offset == 345


@pytest.mark.parametrize("path", snapshots("three-nodes") + snapshots("one-node")[1:], ids=lambda path: path.name)
def test_a_snapshot_gives_the_image_of_the_dumb_model(path: Path) -> None:
    model = MetadataModel()
    for payload in dumped(path.parent.name)[path.name].values():
        model.replay(payload["type"], payload["data"])
    assert_same(replay_snapshot(path), model)


def without_position(image: MetadataImage) -> MetadataImage:
    return MetadataDelta(image).apply(0, 0, 0)


@pytest.mark.parametrize("name", RECORDED)
def test_a_snapshot_and_the_log_after_it_give_the_next_snapshot(name: str) -> None:
    """Kafka took its snapshots from its own image of the same log."""
    files = [path for path in snapshots(name) if path.name != "00000000000000000000-0000000000.checkpoint"]
    loader = MetadataLoader() if name == "one-node" else MetadataLoader(replay_snapshot(files.pop(0)))
    compared = 0
    for path in logs(name):
        for header, records in batches(path):
            if header.last_offset <= loader.last_offset:
                continue
            if header.is_control:
                loader.skip(header.last_offset, header.partition_leader_epoch, header.max_timestamp)
            else:
                loader.load(
                    header.base_offset,
                    header.partition_leader_epoch,
                    header.max_timestamp,
                    [record for _, _, record, _ in records],
                )
            if files and replay_snapshot(files[0]).offset == loader.image.offset:
                kafkas = replay_snapshot(files.pop(0))
                assert without_position(loader.image) == without_position(kafkas)
                assert (loader.image.offset, loader.image.timestamp_ms) == (kafkas.offset, kafkas.timestamp_ms)
                compared += 1
    assert not files
    assert compared == len(snapshots(name)) - 1


@pytest.mark.parametrize("path", snapshots("three-nodes") + snapshots("one-node"), ids=lambda path: path.name)
def test_our_snapshot_of_kafkas_image_is_read_back_equal(path: Path) -> None:
    image = replay_snapshot(path)
    kafkas = decode_snapshot(path.read_bytes())
    data = encode_snapshot(
        image_records(image),
        epoch=image.epoch,
        wall_ms=1,
        last_contained_log_timestamp_ms=image.timestamp_ms,
        kraft_version=kafkas.kraft_version,
        voters=kafkas.voters,
    )
    ours = decode_snapshot(data)
    assert ours.voters == kafkas.voters
    assert ours.kraft_version == kafkas.kraft_version
    assert ours.last_contained_log_timestamp_ms == kafkas.last_contained_log_timestamp_ms
    assert len(ours.records) == len(kafkas.records)
    assert {(type(record), version) for record, version in ours.records} == {
        (type(record), version) for record, version in kafkas.records
    }
    delta = MetadataDelta(EMPTY_IMAGE)
    for record, _ in ours.records:
        delta.replay(record)
    assert delta.apply(image.offset, image.epoch, image.timestamp_ms) == image
    heads = [(h.is_control, h.base_offset, h.partition_leader_epoch) for _, h in iter_headers(data)]
    assert heads == [
        (h.is_control, h.base_offset, h.partition_leader_epoch) for _, h in iter_headers(path.read_bytes())
    ]


def test_the_data_is_there() -> None:
    assert len(list(DATA.iterdir())) == 7
