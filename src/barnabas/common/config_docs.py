"""What Barnabas does with each of Kafka's keys: a sentence for those it heeds, a reason for those it does not.

A key is heeded if it stands in HEEDED; DescribeConfigs gives these sentences as documentation. Any other key loads, is
described and kept, but a node that starts with it set away from its default says why it has no effect.
"""

from __future__ import annotations

from typing import Final

HEEDED: Final[dict[str, str]] = {
    "add.partitions.to.txn.retry.backoff.max.ms": "How long a leader goes on asking a coordinator that is busy.",
    "add.partitions.to.txn.retry.backoff.ms": "How long it waits before it asks again.",
    "advertised.listeners": "What clients are told to connect to; the listeners themselves if not set.",
    "alter.log.dirs.replication.quota.window.num": "How many windows the rate of moves between directories looks at.",
    "alter.log.dirs.replication.quota.window.size.seconds": "How long each of these windows is.",
    "auto.create.topics.enable": "Whether a topic that a client asks for by name is created.",
    "auto.leader.rebalance.enable": "Whether leaders are brought back to the replicas that are preferred.",
    "broker.heartbeat.interval.ms": "How often a broker tells the controller that it lives.",
    "broker.id": "The same as node.id.",
    "broker.rack": "Where this broker stands; replicas of a partition are laid on different racks.",
    "broker.session.timeout.ms": "After this long without a heartbeat a broker is fenced.",
    "compression.gzip.level": "How hard gzip works where the broker compresses.",
    "compression.lz4.level": "How hard LZ4 works where the broker compresses.",
    "compression.type": "The codec in which batches are stored; `producer` keeps the producer's.",
    "compression.zstd.level": "How hard Zstandard works where the broker compresses.",
    "connections.max.idle.ms": "A connection without a request for this long is closed.",
    "controlled.shutdown.enable": "Whether a broker that stops asks the controller to move its leaderships first.",
    "controller.listener.names": "Which of the listeners belong to the controller.",
    "controller.quorum.bootstrap.servers": "Where controllers of the quorum may be found.",
    "controller.quorum.election.backoff.max.ms": "The longest that a voter waits after an election that nobody won.",
    "controller.quorum.election.timeout.ms": "A voter without a leader stands for election after this to twice this.",
    "controller.quorum.fetch.timeout.ms": "A voter that cannot fetch from its leader for so long stands for election.",
    "controller.quorum.request.timeout.ms": "How long a request within the quorum may take.",
    "controller.quorum.retry.backoff.ms": "How long to wait before a request within the quorum is repeated.",
    "controller.quorum.voters": "The fixed members of the quorum, id@host:port.",
    "default.replication.factor": "How many replicas a topic gets when nobody says a number.",
    "delete.topic.enable": "Whether topics may be deleted.",
    "fetch.max.bytes": "The most bytes one Fetch answer carries (its first batch always fits).",
    "follower.replication.throttled.replicas": "Replicas whose following is throttled.",
    "group.consumer.assignors": "How consumer groups share partitions, if not their members choose: the first listed.",
    "group.consumer.heartbeat.interval.ms": "How often members of consumer groups are to send heartbeats.",
    "group.consumer.max.heartbeat.interval.ms": "The longest heartbeat interval that a group may be given.",
    "group.consumer.max.session.timeout.ms": "The longest session timeout that a consumer group may be given.",
    "group.consumer.max.size": "The most members of one consumer group.",
    "group.consumer.migration.policy": "Which groups may change from one protocol to the other, with members in them.",
    "group.consumer.min.heartbeat.interval.ms": "The shortest heartbeat interval that a group may be given.",
    "group.consumer.min.session.timeout.ms": "The shortest session timeout that a consumer group may be given.",
    "group.consumer.regex.refresh.interval.ms": "How often regular expressions are matched anew if no topic changes.",
    "group.consumer.session.timeout.ms": "How long a member of a consumer group may be silent.",
    "group.coordinator.rebalance.protocols": "Which protocols of groups are served: classic ones always.",
    "group.initial.rebalance.delay.ms": "How long an empty group waits for more members before its first rebalance.",
    "group.max.session.timeout.ms": "The longest session timeout a group member may ask for.",
    "group.max.size": "The most members of one group.",
    "group.min.session.timeout.ms": "The shortest session timeout a group member may ask for.",
    "initial.broker.registration.timeout.ms": "How long a broker may try to register before it gives up.",
    "inter.broker.listener.name": "The listener by which brokers talk to one another.",
    "leader.imbalance.check.interval.seconds": "How often is looked for leaders to be brought back.",
    "leader.replication.throttled.replicas": "Replicas whose reading from their leader is throttled.",
    "listener.security.protocol.map": "The security protocol of each listener name.",
    "listeners": "Where this node listens, NAME://host:port.",
    "log.cleaner.backoff.ms": "How long compaction rests when no log needs it.",
    "log.cleaner.dedupe.buffer.size": "The most memory for the keys of one pass of compaction.",
    "log.cleaner.delete.retention.ms": "How long tombstones and transaction markers stay in a compacted log.",
    "log.cleaner.enable": "Whether logs are compacted.",
    "log.cleaner.io.buffer.size": "How much compaction reads and writes at once.",
    "log.cleaner.io.max.bytes.per.second": "The most that compaction reads and writes in a second.",
    "log.cleaner.max.compaction.lag.ms": "After this long a record is compacted, however clean its log is.",
    "log.cleaner.min.cleanable.ratio": "The share of a log's bytes that must be dirty before it is compacted.",
    "log.cleaner.min.compaction.lag.ms": "So long a record is not compacted.",
    "log.cleaner.threads": "The buffers are divided by it; there is one pass at a time.",
    "log.cleanup.policy": "Whether old segments are deleted, compacted, or both.",
    "log.dir": "The one directory for logs, if log.dirs is not set.",
    "log.dir.failure.timeout.ms": "A broker that cannot tell the controller of a failed directory for this long ends.",
    "log.dirs": "The directories for logs.",
    "log.flush.interval.messages": "After this many records in a partition its log is forced to disk.",
    "log.flush.interval.ms": "After this long unforced records are forced to disk.",
    "log.flush.offset.checkpoint.interval.ms": "How often what is written is synced beside the loop, so "
    "that the start after a kill is short, and recovery points are written down.",
    "log.flush.scheduler.interval.ms": "How often is looked for logs to be forced to disk.",
    "log.flush.start.offset.checkpoint.interval.ms": "How often log start offsets are written down.",
    "log.index.interval.bytes": "About this many bytes of log lie between two entries of an index.",
    "log.index.size.max.bytes": "The most bytes of an index; a full one rolls its segment.",
    "log.message.timestamp.after.max.ms": "How far in the future a record's timestamp may lie.",
    "log.message.timestamp.before.max.ms": "How far in the past a record's timestamp may lie.",
    "log.message.timestamp.type": "Whether records bear the producer's time or that of their append.",
    "log.retention.bytes": "The oldest segments of a partition above this size go; -1 is no limit.",
    "log.retention.check.interval.ms": "How often is looked for segments that may go.",
    "log.retention.hours": "As log.retention.ms in hours, if the finer ones are not set.",
    "log.retention.minutes": "As log.retention.ms in minutes, if that is not set.",
    "log.retention.ms": "Segments whose youngest record is older than this go; -1 keeps them.",
    "log.roll.hours": "As log.roll.ms in hours, if that is not set.",
    "log.roll.jitter.hours": "As log.roll.jitter.ms in hours, if that is not set.",
    "log.roll.jitter.ms": "A segment may roll up to this much earlier, by chance, lest all roll at once.",
    "log.roll.ms": "A segment older than this is closed and a new one begun.",
    "log.segment.bytes": "The most bytes of one segment.",
    "log.segment.delete.delay.ms": "How long a removed file stays on disk under another name.",
    "max.incremental.fetch.session.cache.slots": "How many fetch sessions are remembered.",
    "max.request.partition.size.limit": "The most partitions in one answer of DescribeTopicPartitions.",
    "message.max.bytes": "The largest batch of records that is accepted.",
    "metadata.log.dir": "Where the metadata log lies; the first log directory if not set.",
    "metadata.log.max.record.bytes.between.snapshots": "After this many bytes of metadata records a snapshot is made.",
    "metadata.log.max.snapshot.interval.ms": "After this long with new metadata records a snapshot is made.",
    "metadata.log.segment.bytes": "The most bytes of one segment of the metadata log.",
    "metadata.log.segment.ms": "A segment of the metadata log older than this is closed.",
    "metadata.max.idle.interval.ms": "The active controller writes a record that says nothing this often; 0: never.",
    "metadata.max.retention.bytes": "Segments of the metadata log go above this size, where a snapshot covers them.",
    "metadata.max.retention.ms": "Segments of the metadata log go after this long, where a snapshot covers them.",
    "min.insync.replicas": "Produce requests with acks=all need this many replicas in sync.",
    "node.id": "The number of this node in the cluster.",
    "num.partitions": "How many partitions a topic gets when nobody says a number.",
    "num.recovery.threads.per.data.dir": "How many logs of a directory are read again at once after an unclean stop.",
    "num.replica.alter.log.dirs.threads": "How many replicas move between directories at once; as many as there are.",
    "offset.metadata.max.bytes": "The longest text that may go with a committed offset.",
    "offsets.commit.timeout.ms": "How long an offset commit may take to be replicated.",
    "offsets.retention.check.interval.ms": "How often is looked for committed offsets that may go.",
    "offsets.retention.minutes": "How long offsets of a group without members are kept.",
    "offsets.topic.compression.codec": "The codec of the topic of committed offsets, by number.",
    "offsets.topic.num.partitions": "How many partitions the topic of committed offsets gets.",
    "offsets.topic.replication.factor": "How many replicas the topic of committed offsets gets.",
    "offsets.topic.segment.bytes": "The most bytes of one segment of the topic of committed offsets.",
    "process.roles": "What this node does: broker, controller or both.",
    "producer.id.expiration.check.interval.ms": "How often is looked for producers to be forgotten.",
    "producer.id.expiration.ms": "After this long without a batch a producer is forgotten.",
    "queued.max.request.bytes": "The memory for requests and answers of all connections; -1: by the machine's memory.",
    "replica.fetch.backoff.ms": "How long a follower waits after a fetch that failed.",
    "replica.fetch.max.bytes": "The most bytes of one partition in an answer to a follower.",
    "replica.fetch.min.bytes": "So many bytes are waited for before a follower is answered.",
    "replica.fetch.response.max.bytes": "The most bytes in an answer to a follower.",
    "replica.fetch.wait.max.ms": "The longest wait of a follower's fetch.",
    "replica.high.watermark.checkpoint.interval.ms": "How often high watermarks are written down.",
    "replica.lag.time.max.ms": "A follower that was not caught up for so long leaves the ISR.",
    "replica.selector.class": "Who finds the replica nearest to a consumer; Kafka's two selectors are known by name.",
    "replica.socket.timeout.ms": "How long a fetch of a follower may stay without an answer.",
    "replication.quota.window.num": "How many windows the rate of throttled replication looks at.",
    "replication.quota.window.size.seconds": "How long each of these windows is.",
    "request.timeout.ms": "How long another broker may take to answer.",
    "socket.listen.backlog.size": "The most connections that wait to be accepted, if set; else 1024.",
    "socket.receive.buffer.bytes": "The receive buffer of a client's socket, if set; -1 leaves it to the system.",
    "socket.request.max.bytes": "The largest request; a larger one ends its connection.",
    "socket.send.buffer.bytes": "The send buffer of a client's socket, if set; -1 leaves it to the system.",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "How often open transactions are looked at.",
    "transaction.max.timeout.ms": "The longest transaction timeout a producer may ask for.",
    "transaction.partition.verification.enable": "Whether the first write of an old producer is verified.",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "How often unused ids are looked for.",
    "transaction.state.log.min.isr": "min.insync.replicas of __transaction_state, when it is made.",
    "transaction.state.log.num.partitions": "How many partitions __transaction_state gets.",
    "transaction.state.log.replication.factor": "How many replicas __transaction_state gets.",
    "transaction.state.log.segment.bytes": "The segment size of __transaction_state.",
    "transactional.id.expiration.ms": "After this long without a change a transactional id is forgotten.",
    "unclean.leader.election.enable": "Whether a replica that lacks records may lead when no other one can.",
    "unclean.leader.election.interval.ms": "How often is looked for partitions that such a replica may lead.",
}

_ONE_LOOP = "has no effect: one event loop serves all connections"
_NOT_NEEDED = "has no effect: nothing here works that way"
_NO_QUOTAS = "has no effect: there are no quotas"
_NO_SECURITY = "has no effect: there is no TLS and no SASL"
_NO_TIERS = "has no effect: there is no tiered storage"
_NO_TWO_PHASES = "has no effect: two-phase commit is not served"
_OWN_SLICES = "has no effect: __transaction_state is read in slices of a fixed size"
_NO_PLUGINS = "has no effect: Java classes cannot be loaded"

_REASONS: Final[dict[str, str]] = {
    "background.threads": _ONE_LOOP,
    "num.io.threads": _ONE_LOOP,
    "num.network.threads": _ONE_LOOP,
    "num.replica.fetchers": "has no effect: one fetch per leader is under way, for all its partitions",
    "queued.max.requests": _ONE_LOOP,
    "log.preallocate": "has no effect: the file of a segment grows as it is written",
    "log.cleaner.io.buffer.load.factor": "has no effect: the map of keys is bounded by its memory",
    "early.start.listeners": "has no effect: there is no authorizer to wait for",
}

#: By the beginning of the key; the first that fits.
_REASONS_BY_PREFIX: Final = (
    (("remote.", "log.local."), _NO_TIERS),
    (("group.share.", "share."), "has no effect: share groups are not served"),
    (("group.streams.",), "has no effect: streams groups are not served"),
    (("group.coordinator.",), "has no effect: groups are coordinated on the broker's one loop, and write at once"),
    (("transaction.two.phase.commit.",), _NO_TWO_PHASES),
    (("transaction.state.log.load.buffer.size",), _OWN_SLICES),
    (("ssl.", "sasl.", "security.", "principal.", "connection.failed.", "connections.max.reauth."), _NO_SECURITY),
    (("delegation.token.",), _NO_SECURITY),
    (("alter.config.policy.", "create.topic.policy.", "client.quota.callback."), _NO_PLUGINS),
    (("metric", "kafka.metrics.", "telemetry."), "has no effect: there are no Java metrics reporters"),
    (("quota.", "replication.quota.", "controller.quota.", "alter.log.dirs.replication.quota."), _NO_QUOTAS),
    (("max.connection",), "has no effect: connections are not limited"),
    (("replica.", "num.replica.", "controller.", "leader.", "auto.leader.", "unclean.leader."), _NOT_NEEDED),
)


def note_on(name: str) -> str | None:
    """Why a known key has no effect; None for one that is heeded."""
    if name in HEEDED:
        return None
    reason = _REASONS.get(name)
    if reason is not None:
        return reason
    return next(
        (reason for prefixes, reason in _REASONS_BY_PREFIX if name.startswith(prefixes)),
        "has no effect: Barnabas does not support it",
    )


#: Keys of Kafka 3.9 that 4.0 took away (those of ZooKeeper apart).
_REMOVED: Final = frozenset(
    {
        "auto.include.jmx.reporter",
        "broker.id.generation.enable",
        "control.plane.listener.name",
        "controlled.shutdown.max.retries",
        "controlled.shutdown.retry.backoff.ms",
        "delegation.token.master.key",
        "eligible.leader.replicas.enable",
        "group.coordinator.new.enable",
        "group.share.max.groups",
        "inter.broker.protocol.version",
        "leader.imbalance.per.broker.percentage",
        "log.message.downconversion.enable",
        "log.message.format.version",
        "log.message.timestamp.difference.max.ms",
        "metadata.log.segment.min.bytes",
        "offsets.commit.required.acks",
        "reserved.broker.max.id",
    }
)


def unknown(name: str) -> str:
    """What to say of a key that is none of Kafka 4.1's."""
    if name.startswith("zookeeper."):
        return f"{name} is left out: it belongs to ZooKeeper mode, which ended with Kafka 3.9"
    if name in _REMOVED or name.startswith("password.encoder."):
        return f"{name} is left out: it ended with Kafka 3.9"
    if name == "config.providers" or name.startswith("config.providers."):
        return f"{name} is left out: values from config providers (${{provider:key}}) are not looked up"
    return f"{name} is left out: neither Kafka 4.1 nor Barnabas knows it"
