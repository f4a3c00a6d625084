"""Topics whose deletion this broker has missed: it was without a session, or the controller that announced it failed.

A controller announces a deletion to the brokers that are alive, and the next full UpdateMetadata only leaves the topic
out. So the first UpdateMetadata of a controller to a registration starts a comparison with the znodes: a topic of the
image has no znode -> it leaves the image. A deletion that has not ended by then is announced again. Kafka 3.9.1 does
not compare: clients of such a broker see the topic until it starts again.
"""

from __future__ import annotations

from functools import partial

from barnabas.broker.zookeeper.store_steps import Steps
from barnabas.common.host import Clock
from barnabas.metadata.image import MetadataDelta, MetadataImage
from barnabas.metadata.store import MetadataStore
from barnabas.protocol.messages.records_metadata import RemoveTopicRecord
from barnabas.znodes import paths
from barnabas.zookeeper.client.store import ChildrenReply, ZnodeStore
from barnabas.zookeeper.wire.codes import ANY_VERSION, OpCode
from barnabas.zookeeper.wire.operations import Part
from barnabas.zookeeper.wire.records import CheckVersionRequest


def remove_deleted(store: ZnodeStore, metadata: MetadataStore, clock: Clock, known: MetadataImage) -> Steps[None]:
    """Removes the topics of `known` that have no znode from the image. Roles and logs stay: StopReplica ends them."""
    # The leader of the ensemble answers this, so that the read after it cannot be older than a topic of the image.
    yield partial(store.multi, [Part(OpCode.CHECK, CheckVersionRequest(paths.TOPICS, ANY_VERSION))])
    reply: ChildrenReply = yield partial(store.children, paths.TOPICS)
    if reply.names is None:
        return
    names = frozenset(reply.names)
    image = metadata.image
    delta = MetadataDelta(image)
    delta.roles = frozenset()
    for name, topic in known.topics_by_name.items():
        present = None if name in names else image.topics_by_name.get(name)
        if present is not None and present.topic_id == topic.topic_id:
            delta.replay(RemoveTopicRecord(topic_id=topic.topic_id))
    if delta.deleted_topics:
        metadata.publish(delta, delta.apply(image.offset + 1, image.epoch, clock.wall_ms()))
