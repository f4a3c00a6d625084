"""Random metadata logs: the image against the simple model, deltas against images, logs with transactions against logs
without.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.metadata_model import MetadataModel, assert_same

from barnabas.metadata.frame import decode_record, encode_record
from barnabas.metadata.image import EMPTY_IMAGE, MetadataDelta, MetadataImage
from barnabas.metadata.snapshot import image_records
from barnabas.metadata.store import MetadataLoader
from barnabas.protocol.kafka_json import to_json_object
from barnabas.protocol.message import Message
from barnabas.protocol.messages import records_metadata as r

BROKERS = (1, 2, 3)
DIRECTORIES = [bytes([10 + broker]) * 16 for broker in range(4)]


class Scribe:
    """Writes a log in which each record fits what came before it."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self._next_id = 0
        self.topics: dict[str, tuple[bytes, int]] = {}
        self.epochs: dict[int, int] = {}
        self.records: list[tuple[Message, int]] = [(r.FeatureLevelRecord(name="metadata.version", feature_level=27), 0)]

    def write_some(self) -> None:
        kinds = [self.topic, self.register, self.config, self.feature, self.producer_ids, self.no_op]
        if self.topics:
            kinds += [self.partition, self.change, self.change, self.change, self.remove, self.clear_elr]
        if self.epochs:
            kinds += [self.broker_change, self.broker_change]
        self._draw(st.sampled_from(kinds))()

    def _replicas(self) -> list[int]:
        return self._draw(st.lists(st.sampled_from(BROKERS), unique=True, max_size=3))

    def _some_topic(self) -> tuple[str, bytes, int]:
        name = self._draw(st.sampled_from(sorted(self.topics)))
        return (name, *self.topics[name])

    def topic(self) -> None:
        name = self._draw(st.sampled_from(["a", "b", "c", "d.e"]))
        if name in self.topics:
            return
        self._next_id += 1
        self.topics[name] = (self._next_id.to_bytes(16, "big"), 0)
        self.records.append((r.TopicRecord(name=name, topic_id=self.topics[name][0]), 0))
        self._partition_of(name)

    def partition(self) -> None:
        self._partition_of(self._some_topic()[0])

    def _partition_of(self, name: str) -> None:
        topic_id, count = self.topics[name]
        self.topics[name] = (topic_id, count + 1)
        replicas = self._replicas() or [1]
        record = r.PartitionRecord(
            partition_id=count,
            topic_id=topic_id,
            replicas=replicas,
            isr=self._replicas(),
            leader=self._draw(st.sampled_from([-1, *replicas])),
            leader_epoch=self._draw(st.integers(0, 3)),
            partition_epoch=self._draw(st.integers(0, 3)),
            directories=[DIRECTORIES[replica] for replica in replicas],
            eligible_leader_replicas=self._draw(st.none() | st.just([1, 2])),
            last_known_elr=self._draw(st.none() | st.just([3])),
            leader_recovery_state=self._draw(st.integers(0, 1)),
        )
        self.records.append((record, 2))

    def change(self) -> None:
        _, topic_id, count = self._some_topic()
        draw = self._draw
        replicas = draw(st.none() | st.lists(st.sampled_from(BROKERS), unique=True, min_size=1, max_size=3))
        optional = st.none() | st.lists(st.sampled_from(BROKERS), unique=True, max_size=3)
        record = r.PartitionChangeRecord(
            partition_id=draw(st.integers(0, count - 1)),
            topic_id=topic_id,
            isr=draw(optional),
            leader=draw(st.sampled_from([-2, -2, -1, 1, 2])),
            replicas=replicas,
            directories=None if replicas is None else [DIRECTORIES[replica] for replica in replicas],
            removing_replicas=draw(optional),
            adding_replicas=draw(optional),
            leader_recovery_state=draw(st.integers(-1, 1)),
            eligible_leader_replicas=draw(optional),
            last_known_elr=draw(optional),
        )
        self.records.append((record, 2))

    def remove(self) -> None:
        name, topic_id, _ = self._some_topic()
        del self.topics[name]
        self.records.append((r.RemoveTopicRecord(topic_id=topic_id), 0))

    def clear_elr(self) -> None:
        name = self._draw(st.sampled_from(["", self._some_topic()[0]]))
        self.records.append((r.ClearElrRecord(topic_name=name), 0))

    def config(self) -> None:
        record = r.ConfigRecord(
            resource_type=self._draw(st.sampled_from([2, 4])),
            resource_name=self._draw(st.sampled_from(["a", "b", ""])),
            name=self._draw(st.sampled_from(["k", "l"])),
            value=self._draw(st.none() | st.sampled_from(["1", "2"])),
        )
        self.records.append((record, 0))

    def feature(self) -> None:
        level = self._draw(st.integers(0, 2))
        self.records.append((r.FeatureLevelRecord(name="group.version", feature_level=level), 0))

    def producer_ids(self) -> None:
        self.records.append((r.ProducerIdsRecord(broker_id=1, next_producer_id=1000 * len(self.records)), 0))

    def no_op(self) -> None:
        self.records.append((r.NoOpRecord(), 0))

    def register(self) -> None:
        broker_id = self._draw(st.sampled_from(BROKERS))
        self.epochs[broker_id] = len(self.records)
        record = r.RegisterBrokerRecord(
            broker_id=broker_id,
            incarnation_id=bytes([len(self.records) % 256]) * 16,
            broker_epoch=self.epochs[broker_id],
            end_points=[r.RegisterBrokerRecord.BrokerEndpoint(name="P", host="h", port=broker_id)],
            fenced=self._draw(st.booleans()),
            log_dirs=[DIRECTORIES[broker_id]],
        )
        self.records.append((record, 3))

    def broker_change(self) -> None:
        broker_id = self._draw(st.sampled_from(sorted(self.epochs)))
        record = r.BrokerRegistrationChangeRecord(
            broker_id=broker_id,
            broker_epoch=self.epochs[broker_id],
            fenced=self._draw(st.integers(-1, 1)),
            in_controlled_shutdown=self._draw(st.integers(0, 1)),
            log_dirs=self._draw(st.sampled_from([[], [DIRECTORIES[0]]])),
        )
        self.records.append((record, 2))


@st.composite
def written_logs(draw: st.DrawFn) -> list[tuple[Message, int]]:
    scribe = Scribe(draw)
    for _ in range(draw(st.integers(0, 40))):
        scribe.write_some()
    return scribe.records


def replay(image: MetadataImage, records: list[tuple[Message, int]]) -> tuple[MetadataDelta, MetadataImage]:
    delta = MetadataDelta(image)
    for record, _ in records:
        delta.replay(record)
    return delta, delta.apply(image.offset + len(records), 1, 0)


def _snake(name: str) -> str:
    return "".join("_" + c if c.isupper() and i else c for i, c in enumerate(name)).lower()


@settings(max_examples=150, deadline=None)
@given(written_logs(), st.data())
def test_any_log_in_any_portions_gives_what_the_dumb_model_says(log: list[tuple[Message, int]], data: Any) -> None:
    image, model = EMPTY_IMAGE, MetadataModel()
    rest = [decode_record(encode_record(*record)) for record in log]
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        portion, rest = rest[:size], rest[size:]
        before = image
        delta, image = replay(image, portion)
        for record, version in portion:
            model.replay(_snake(record.NAME), to_json_object(record, version))
        assert_same(image, model)
        # Topics that the delta does not name have not changed; the others are as the delta says.
        for topic_id, topic in before.topics_by_id.items():
            if topic_id not in delta.changed_topics and topic_id not in delta.deleted_topics:
                assert image.topics_by_id[topic_id] is topic
        for topic_id, change in delta.changed_topics.items():
            for index, partition in enumerate(image.topics_by_id[topic_id].partitions):
                assert partition is change.partition(index)
        assert set(delta.deleted_topics) == set(before.topics_by_id) - set(image.topics_by_id)
        for broker_id, broker in image.brokers.items():
            assert delta.changed_brokers.get(broker_id, before.brokers.get(broker_id)) == broker
        for resource in set(before.configs) | set(image.configs):
            if resource not in delta.changed_configs:
                assert image.configs.get(resource) == before.configs.get(resource)


@settings(max_examples=100, deadline=None)
@given(written_logs())
def test_a_snapshot_of_any_image_gives_it_back(log: list[tuple[Message, int]]) -> None:
    _, image = replay(EMPTY_IMAGE, log)
    records = [decode_record(encode_record(*record)) for record in image_records(image)]
    _, again = replay(EMPTY_IMAGE, records)
    assert MetadataDelta(again).apply(0, 0, 0) == MetadataDelta(image).apply(0, 0, 0)


@settings(max_examples=100, deadline=None)
@given(written_logs(), st.data())
def test_the_difference_between_two_images_leads_from_one_to_the_other(
    log: list[tuple[Message, int]], data: Any
) -> None:
    cut = data.draw(st.integers(0, len(log)))
    _, old = replay(EMPTY_IMAGE, log[:cut])
    _, new = replay(old, log[cut:])
    difference = MetadataDelta.between(old, new)
    assert difference.apply(new.offset, new.epoch, new.timestamp_ms) == new
    for topic_id, change in difference.changed_topics.items():
        for index, partition in change.changed_partitions.items():
            assert new.topics_by_id[topic_id].partitions[index] == partition != change.partition_before(index)
    assert not MetadataDelta.between(new, new).changed_topics


@settings(max_examples=100, deadline=None)
@given(written_logs(), st.data())
def test_an_aborted_transaction_was_never_there(log: list[tuple[Message, int]], data: Any) -> None:
    """The log's second half in a transaction, over batches cut anywhere: aborted as if unwritten, else as written."""
    cut = data.draw(st.integers(1, len(log)))
    aborts = data.draw(st.booleans())
    end: Message = r.AbortTransactionRecord() if aborts else r.EndTransactionRecord()
    records = [record for record, _ in log]
    stream = [*records[:cut], r.BeginTransactionRecord(), *records[cut:], end]
    loader, offset = MetadataLoader(), 0
    seen: list[MetadataImage] = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        change = loader.load(offset, 1, 0, stream[:size])
        offset, stream = offset + size, stream[size:]
        assert (change is None) == loader.in_transaction
        if change is not None:
            seen.append(change[1])
    _, expected = replay(EMPTY_IMAGE, log[:cut] if aborts else log)
    assert seen[-1] is loader.image
    assert MetadataDelta(loader.image).apply(0, 0, 0) == MetadataDelta(expected).apply(0, 0, 0)
    assert loader.image.offset == len(log) + 1
