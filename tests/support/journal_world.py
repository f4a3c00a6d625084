"""A simulated cluster whose journal is compared with all changes in its metadata log."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from barnabas.broker.assembly import Broker
from barnabas.common.bulk_events import is_bulk, unpacked
from barnabas.common.types import EVENTS_TOPIC, uuid_to_text
from barnabas.journal.partition_changes import changes_of
from barnabas.metadata.image import EMPTY_IMAGE, MetadataDelta, MetadataImage
from barnabas.metadata.store import MetadataStore
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.simulation.checkers import NoUncaughtExceptions
from barnabas.simulation.simulated_cluster import Cluster, Layout
from barnabas.simulation.world import MILLISECOND_US, World
from barnabas.simulation.worlds.replicated import SHORT_TIMES, RawClient, log_values

Event = dict[str, Any]
#: (metadata offset, topic id, partition)
Key = tuple[int, str, int]


class Truth:
    """Every change of a leader, ISR or replica set that was published on any node, once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.changes: dict[Key, tuple[int, int, tuple[int, ...]]] = {}
        publish = MetadataStore.publish

        def observed(store: MetadataStore, delta: MetadataDelta, image: MetadataImage) -> None:
            if store.image is not EMPTY_IMAGE:
                self._note(delta, image)
            publish(store, delta, image)

        monkeypatch.setattr(MetadataStore, "publish", observed)

    def _note(self, delta: MetadataDelta, image: MetadataImage) -> None:
        for topic in delta.changed_topics.values():
            for index, after in topic.changed_partitions.items():
                before = topic.partition_before(index)
                if before is not None and changes_of(before, after):
                    key = (image.offset, uuid_to_text(topic.topic_id), index)
                    said = (after.leader, after.leader_epoch, after.isr)
                    assert self.changes.setdefault(key, said) == said


class JournalWorld:
    """Three nodes, which are controllers and brokers, or brokers with separate controllers."""

    def __init__(self, seed: int, *, controllers: int = 0, properties: Mapping[str, str] | None = None) -> None:
        self.world = World(seed)
        self.cluster = Cluster(self.world, Layout(3, controllers, {**SHORT_TIMES, **(properties or {})}))
        self.client = RawClient(self.cluster, "client")
        self.cluster.start()
        self.run_until(lambda: self.unfenced() == 3, "all brokers are registered")

    def run_for(self, duration_ms: int) -> None:
        self.world.run_for(duration_ms * MILLISECOND_US)
        NoUncaughtExceptions().check(self.cluster)

    def run_until(self, condition: Callable[[], bool], what: str, within_ms: int = 30_000) -> None:
        reached = self.world.run_while(lambda: not condition(), self.world.now_us + within_ms * MILLISECOND_US)
        NoUncaughtExceptions().check(self.cluster)
        assert reached or condition(), f"not within {within_ms} ms: {what}"

    # -- parts

    def brokers(self) -> list[Broker]:
        return [node.broker for node in self.cluster.nodes.values() if node.is_running and node.broker is not None]

    def active(self) -> str | None:
        for name, node in self.cluster.nodes.items():
            if node.is_running and node.broker is not None and node.broker.quorum.controller.is_active:
                return name
        return None

    def image(self) -> MetadataImage:
        return max((broker.metadata.image for broker in self.brokers()), key=lambda image: image.offset)

    def unfenced(self) -> int:
        return sum(not broker.fenced for broker in self.image().brokers.values()) if self.brokers() else 0

    def settled(self) -> bool:
        """Returns whether all replicas are in sync and, if there is a journal, it contains every change."""
        active = self.active()
        if active is None or self.unfenced() < 3:
            return False
        image = self.image()
        whole = all(
            partition.leader >= 0 and set(partition.isr) == set(partition.replicas)
            for topic in image.topics()
            for partition in topic.partitions
        )
        broker = self.cluster.nodes[active].broker
        return whole and broker is not None and (EVENTS_TOPIC not in image.topics_by_name or not broker.journal.window)

    def settle(self) -> None:
        """Runs until the cluster is settled; a topic for the journal is created after a second."""
        self.run_for(3_000)
        self.run_until(self.settled, "all replicas are in sync and every change is in the journal", 60_000)

    def create_topic(self, name: str, *assignments: list[int]) -> None:
        rows = [
            CreateTopicsRequest.CreatableReplicaAssignment(partition_index=index, broker_ids=replicas)
            for index, replicas in enumerate(assignments)
        ]
        topic = CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=-1, replication_factor=-1, assignments=rows
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=5_000)
        response = self.client.call("broker1", request, CreateTopicsResponse)
        assert [row.error_code for row in response.topics] == [0], response

    # -- the journal

    def events(self) -> list[Event]:
        """Returns all events, in the order of the topic, including duplicates."""
        for broker in self.brokers():
            partition = broker.replicas.find(EVENTS_TOPIC, 0)
            if partition is not None and partition.leadership is not None:
                return [json.loads(value) for _, value in log_values(partition) if value is not None]
        return []

    def unpacked_events(self) -> list[Event]:
        """Returns the events with those of single partitions in place of bulk events."""
        return [each for event in self.events() for each in (unpacked(event) if is_bulk(event) else (event,))]

    def recorded_changes(self) -> dict[Key, Event]:
        """Returns the events of partitions; duplicates of a change must be equal."""
        found: dict[Key, Event] = {}
        for event in self.unpacked_events():
            if "changes" not in event:
                continue
            key = (event["metadata_offset"], event["topic_id"], event["partition"])
            known = found.setdefault(key, event)
            assert (known["id"], known["before"], known["after"]) == (event["id"], event["before"], event["after"])
        return found
