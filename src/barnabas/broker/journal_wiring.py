"""A node's journal, put together from the node's parts."""

from __future__ import annotations

from barnabas.broker.requests.context import Services
from barnabas.broker.topics.topic_creation import ensure_internal_topic
from barnabas.common.types import EVENTS_TOPIC
from barnabas.journal.journal import Journal, Where
from barnabas.journal.topic import EventsTopic
from barnabas.replication.internal import InternalPartitions


def make_journal(services: Services, partitions: InternalPartitions) -> Journal:
    """Decisions, images and what replicas have lost are for the caller to hand to it."""
    topic = EventsTopic(services.host, services.config, services.metadata, partitions)
    where = Where(services.metadata, services.raft, services.controller, services.cluster_id)
    return Journal(services.host, services.config, where, topic, lambda: ensure_internal_topic(services, EVENTS_TOPIC))
