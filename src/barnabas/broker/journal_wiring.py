"""The wiring of a node's journal."""

from __future__ import annotations

from barnabas.broker.requests.context import Services
from barnabas.broker.sides import MetadataSide
from barnabas.broker.topics.topic_creation import ensure_internal_topic
from barnabas.common.types import EVENTS_TOPIC
from barnabas.journal.journal import Journal, JournalContext
from barnabas.journal.topic import EventsTopic
from barnabas.replication.internal import InternalPartitions


def make_journal(services: Services, side: MetadataSide, partitions: InternalPartitions) -> Journal:
    """Creates the journal. The caller passes decisions, images and data losses of replicas to it."""
    topic = EventsTopic(services.host, services.config, services.metadata, partitions)
    context = JournalContext(services.metadata, side.decisions, side.journal_controller)
    return Journal(
        services.host, services.config, context, topic, lambda: ensure_internal_topic(services, EVENTS_TOPIC)
    )
