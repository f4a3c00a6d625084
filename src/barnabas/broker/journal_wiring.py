"""A node's journal, put together from the node's parts."""

from __future__ import annotations

from barnabas.broker.requests.context import Services
from barnabas.broker.topics.topic_creation import ensure_internal_topic
from barnabas.common.types import EVENTS_TOPIC
from barnabas.journal.journal import Journal, Where
from barnabas.journal.topic import EventsTopic
from barnabas.replication.internal import InternalPartitions


def make_journal(services: Services, partitions: InternalPartitions) -> Journal:
    """It hears of decisions and of what replicas lost from now on; its `on_image` is for the caller to subscribe."""
    topic = EventsTopic(services.host, services.config, services.metadata, partitions)
    where = Where(services.metadata, services.raft, services.controller, services.cluster_id)
    journal = Journal(
        services.host, services.config, where, topic, lambda: ensure_internal_topic(services, EVENTS_TOPIC)
    )
    services.controller.journal = journal.on_decision
    services.metadata.on_past = journal.on_past
    services.replicas.surroundings.witness = lambda replica, what, facts: journal.on_witness(
        *replica.topic_partition, replica.topic_id, what, facts
    )
    return journal
