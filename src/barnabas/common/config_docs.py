"""Documentation of Kafka's configuration keys: what a key does, or why it has no effect.

HEEDED lists the keys that have an effect; DescribeConfigs returns these texts as documentation. Every other key is
parsed, described and kept, but a node that starts with a value other than the default logs why it has no effect.
"""

from __future__ import annotations

from typing import Final

from barnabas.common import oauth_config_docs

HEEDED: Final[dict[str, str]] = {
    "add.partitions.to.txn.retry.backoff.max.ms": "How long a partition leader keeps retrying to add a partition to a "
    "transaction while the coordinator is completing the producer's previous transaction, in milliseconds.",
    "add.partitions.to.txn.retry.backoff.ms": "How long a partition leader waits between two attempts to "
    "add a partition to a transaction, in milliseconds.",
    "advertised.listeners": "The addresses that clients and other brokers are given to connect to, as "
    "NAME://host:port, separated by commas. If not set, the value of listeners is used.",
    "alter.log.dirs.replication.quota.window.num": "The number of samples kept in memory to measure the rate at which "
    "replicas move between log directories.",
    "alter.log.dirs.replication.quota.window.size.seconds": "The time span of each sample of the rate at which "
    "replicas move between log directories, in seconds.",
    "authorizer.class.name": "The authorizer: org.apache.kafka.metadata.authorizer.StandardAuthorizer, or "
    "kafka.security.authorizer.AclAuthorizer in ZooKeeper mode, which decides by the ACLs of the cluster, super.users "
    "and allow.everyone.if.no.acl.found; or empty, to let everyone do everything.",
    "auto.create.topics.enable": "Whether the broker creates a topic that does not exist when a client asks for it by "
    "name.",
    "auto.leader.rebalance.enable": "Whether the controller periodically moves leadership back to the preferred "
    "replica of each partition, every leader.imbalance.check.interval.seconds.",
    "broker.heartbeat.interval.ms": "How often a broker sends a heartbeat to the active controller, in milliseconds.",
    "broker.id": "The older name of node.id. If both are set, they must be equal.",
    "broker.rack": "The rack of this broker. The replicas of a partition are spread over racks, and a consumer can "
    "read from a replica in its own rack (replica.selector.class).",
    "broker.session.timeout.ms": "How long a broker can go without a heartbeat before the controller fences it, in "
    "milliseconds. Must be at least twice broker.heartbeat.interval.ms.",
    "compression.gzip.level": "The gzip compression level that the broker uses if compression.type is gzip: 1 to 9, "
    "or -1 for the default level.",
    "compression.lz4.level": "The LZ4 compression level that the broker uses if compression.type is lz4.",
    "compression.type": "The codec in which batches are stored: gzip, snappy, lz4, zstd, uncompressed, or producer, "
    "which keeps the codec of the producer.",
    "compression.zstd.level": "The Zstandard compression level that the broker uses if compression.type is zstd.",
    "connection.failed.authentication.delay.ms": "How long the broker waits before it answers a failed authentication "
    "and closes the connection, in milliseconds.",
    "connections.max.idle.ms": "How long a connection can be idle before the broker closes it, in milliseconds; -1 "
    "means no limit.",
    "connections.max.reauth.ms": "How long a client can use a connection to a SASL listener before it has to "
    "authenticate again, in milliseconds; the broker closes the connection of a client that does not. 0 sets no "
    "limit. With the prefix listener.name.LISTENER.MECHANISM. the key applies to one mechanism of one listener.",
    "controlled.shutdown.enable": "Whether a broker asks the controller to move its leaderships to other brokers "
    "before it stops.",
    "controller.listener.names": "The names of the listeners that controllers use, separated by commas. Voters reach "
    "each other over the first one.",
    "controller.quorum.bootstrap.servers": "Addresses of controllers from which a node finds the metadata quorum, as "
    "host:port, separated by commas.",
    "controller.quorum.election.backoff.max.ms": "The upper limit of the random, exponentially growing wait before a "
    "voter starts another election after one that no candidate won, in milliseconds.",
    "controller.quorum.election.timeout.ms": "How long a voter waits for a leader of the metadata quorum before it "
    "starts an election, in milliseconds. The actual wait is random, between one and two times this value.",
    "controller.quorum.fetch.timeout.ms": "How long a voter can go without a successful fetch from the leader of the "
    "metadata quorum before it starts an election, in milliseconds.",
    "controller.quorum.request.timeout.ms": "How long a node waits for the response to a request within the metadata "
    "quorum, in milliseconds.",
    "controller.quorum.retry.backoff.ms": "How long a node waits before it repeats a failed request within the "
    "metadata quorum, in milliseconds.",
    "controller.quorum.voters": "The voters of a static metadata quorum, as id@host:port, separated by commas. Leave "
    "it empty for a dynamic quorum and set controller.quorum.bootstrap.servers.",
    "controller.quota.window.num": "The number of samples kept in memory to measure the rate at which "
    "clients create and delete partitions.",
    "controller.quota.window.size.seconds": "The time span of each sample of the rate at which clients "
    "create and delete partitions, in seconds.",
    "default.replication.factor": "The replication factor of topics that are created automatically, or created "
    "without a replication factor.",
    "controller.socket.timeout.ms": "How long a stopping broker in ZooKeeper mode waits for the controller to move "
    "its leaderships, in milliseconds.",
    "delegation.token.expiry.check.interval.ms": "How often the active controller removes expired delegation tokens, "
    "in milliseconds.",
    "delegation.token.expiry.time.ms": "How long a delegation token is valid after it was created or renewed, in "
    "milliseconds.",
    "delegation.token.max.lifetime.ms": "How long a delegation token can be renewed after it was created, in "
    "milliseconds.",
    "delegation.token.secret.key": "The key from which the secrets of delegation tokens are derived. It must be the "
    "same on all brokers and controllers; without it there are no delegation tokens. The salts that unknown users of "
    "SCRAM get are derived from it, too.",
    "delete.topic.enable": "Whether topics can be deleted.",
    "fetch.max.bytes": "The maximum size of a Fetch response in bytes. Not an absolute limit: the first batch is "
    "returned even if it is larger, so that the reader makes progress.",
    "follower.replication.throttled.replicas": "The replicas of this topic whose fetching is throttled on the "
    "follower, as partition:broker pairs separated by commas; * means all.",
    "group.consumer.assignors": "The server-side assignors for consumer groups, separated by commas. The first one is "
    "used if the members of a group select none.",
    "group.consumer.heartbeat.interval.ms": "The heartbeat interval that the coordinator gives to the members of "
    "consumer groups, in milliseconds.",
    "group.consumer.max.heartbeat.interval.ms": "The maximum heartbeat interval that can be set for a consumer group, "
    "in milliseconds.",
    "group.consumer.max.session.timeout.ms": "The maximum session timeout that can be set for a consumer group, in "
    "milliseconds.",
    "group.consumer.max.size": "The maximum number of members in a consumer group of the consumer protocol (KIP-848).",
    "group.consumer.migration.policy": "Which groups can change protocol while they have members: UPGRADE (classic to "
    "consumer), DOWNGRADE (consumer to classic), BIDIRECTIONAL or DISABLED.",
    "group.consumer.min.heartbeat.interval.ms": "The minimum heartbeat interval that can be set for a consumer group, "
    "in milliseconds.",
    "group.consumer.min.session.timeout.ms": "The minimum session timeout that can be set for a consumer group, in "
    "milliseconds.",
    "group.consumer.regex.refresh.interval.ms": "How often the coordinator matches the regular expressions of "
    "subscriptions again if no topic has changed, in milliseconds.",
    "group.consumer.session.timeout.ms": "How long a member of a consumer group can go without a heartbeat before the "
    "coordinator removes it, in milliseconds.",
    "group.coordinator.rebalance.protocols": "The rebalance protocols that are enabled. classic is always enabled; "
    "consumer is enabled if it is listed; share and streams are not supported.",
    "group.initial.rebalance.delay.ms": "How long the coordinator waits for more members to join an empty classic "
    "group before the first rebalance, in milliseconds.",
    "group.max.session.timeout.ms": "The maximum session timeout that a member of a classic group can request, in "
    "milliseconds.",
    "group.max.size": "The maximum number of members in a classic group.",
    "group.min.session.timeout.ms": "The minimum session timeout that a member of a classic group can request, in "
    "milliseconds.",
    "initial.broker.registration.timeout.ms": "How long a broker tries to register with the controller before it "
    "gives up and exits, in milliseconds.",
    "inter.broker.listener.name": "The name of the listener that brokers use to communicate with each other.",
    "leader.imbalance.check.interval.seconds": "How often the controller checks for partitions whose leadership can "
    "move back to the preferred replica, in seconds.",
    "leader.replication.throttled.replicas": "The replicas of this topic whose fetches are throttled on the leader, "
    "as partition:broker pairs separated by commas; * means all.",
    "listener.security.protocol.map": "The security protocol of each listener name, as NAME:PROTOCOL, separated by "
    "commas: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
    "listeners": "The addresses that this node listens on, as NAME://host:port, separated by commas. At run time "
    "listeners can be added, and listeners that are not advertised can be removed; a new address of a listener takes "
    "effect at the next start.",
    "log.cleaner.backoff.ms": "How long the log cleaner waits when no log needs compaction, in milliseconds.",
    "log.cleaner.dedupe.buffer.size": "The memory for the log cleaner's map of keys in bytes. It is divided by "
    "log.cleaner.threads.",
    "log.cleaner.delete.retention.ms": "How long tombstones and transaction markers stay in a compacted log, in "
    "milliseconds. A reader that starts from offset 0 has this long to see them.",
    "log.cleaner.enable": "Whether the log cleaner compacts logs whose cleanup policy includes compact.",
    "log.cleaner.io.buffer.size": "The memory for the log cleaner's read and write buffers in bytes. It is divided by "
    "log.cleaner.threads.",
    "log.cleaner.io.max.bytes.per.second": "The maximum number of bytes per second that the log cleaner reads and "
    "writes together, on average.",
    "log.cleaner.max.compaction.lag.ms": "The maximum time, in milliseconds, for which a record stays uncompacted, "
    "whatever the dirty ratio of its log.",
    "log.cleaner.min.cleanable.ratio": "The minimum ratio of dirty bytes to total bytes at which a log is compacted.",
    "log.cleaner.min.compaction.lag.ms": "The minimum age of a record before it can be compacted, in milliseconds.",
    "log.cleaner.threads": "The number by which the buffers of the log cleaner are divided. It adds no threads: one "
    "log is compacted at a time.",
    "log.cleanup.policy": "What happens to old segments: delete removes them by age and size, compact keeps the last "
    "record of each key; both can be given.",
    "log.dir": "The log directory. Used only if log.dirs is not set.",
    "log.dir.failure.timeout.ms": "How long a broker tries to report a failed log directory to the controller before "
    "it exits, in milliseconds.",
    "log.dirs": "The log directories, separated by commas. If not set, log.dir is used.",
    "log.flush.interval.messages": "The number of records in a partition after which the log is synced to disk.",
    "log.flush.interval.ms": "The maximum time, in milliseconds, that a record stays in memory before the log is "
    "synced to disk. If log.flush.interval.ms is not set, log.flush.scheduler.interval.ms is used.",
    "log.flush.offset.checkpoint.interval.ms": "How often the recovery points are written to disk, in milliseconds. "
    "Here, the broker also syncs its logs in the background at this interval, which keeps recovery after a kill "
    "short.",
    "log.flush.scheduler.interval.ms": "How often the broker checks for logs to sync to disk (log.flush.interval.ms), "
    "in milliseconds.",
    "log.flush.start.offset.checkpoint.interval.ms": "How often the log start offsets are written to disk, in "
    "milliseconds.",
    "log.index.interval.bytes": "The approximate number of log bytes between two entries of the offset index.",
    "log.index.size.max.bytes": "The maximum size of an offset or time index in bytes. A segment is rolled when one "
    "of its indexes is full.",
    "log.message.timestamp.after.max.ms": "How far the timestamp of a record can be ahead of the broker's clock, in "
    "milliseconds. Ignored for LogAppendTime.",
    "log.message.timestamp.before.max.ms": "How far the timestamp of a record can be behind the broker's clock, in "
    "milliseconds. Ignored for LogAppendTime.",
    "log.message.timestamp.type": "Whether the timestamp of a record is the time it was created (CreateTime) or the "
    "time it was appended (LogAppendTime).",
    "log.retention.bytes": "The maximum size of the log of a partition in bytes. Above it the oldest segments are "
    "deleted; -1 means no limit.",
    "log.retention.check.interval.ms": "How often the broker checks for segments that retention allows it to delete, "
    "in milliseconds.",
    "log.retention.hours": "How long a segment is kept, in hours. Used only if log.retention.ms and "
    "log.retention.minutes are not set.",
    "log.retention.minutes": "How long a segment is kept, in minutes. Used only if log.retention.ms is not set.",
    "log.retention.ms": "How long a segment is kept, counted from the largest timestamp in it, in milliseconds; -1 "
    "means no limit. If log.retention.ms is not set, log.retention.minutes is used.",
    "log.roll.hours": "How long a segment can be active before it is rolled, in hours. Used only if log.roll.ms is "
    "not set.",
    "log.roll.jitter.hours": "The maximum jitter to subtract from log.roll.hours, in hours. Used only if "
    "log.roll.jitter.ms is not set.",
    "log.roll.jitter.ms": "The maximum random jitter, in milliseconds, to subtract from the roll time, so that not "
    "all segments roll at the same time. If log.roll.jitter.ms is not set, log.roll.jitter.hours is used.",
    "log.roll.ms": "How long a segment can be active before it is rolled, in milliseconds. If log.roll.ms is not set, "
    "log.roll.hours is used.",
    "log.segment.bytes": "The maximum size of a segment file in bytes.",
    "log.segment.delete.delay.ms": "How long a file stays on disk, under another name, after it is removed from the "
    "log, in milliseconds.",
    "max.connection.creation.rate": "The maximum number of connections per second that the broker, and each "
    "listener, accepts (listener.name.NAME.max.connection.creation.rate for one listener); above it, listeners "
    "delay the next connection. The inter-broker listener is exempt from the broker's rate.",
    "max.connections": "The maximum number of connections of the broker and of each listener "
    "(listener.name.NAME.max.connections for one listener). At the limit, a listener waits for a connection to close. "
    "The inter-broker listener is exempt from the broker's limit: each of its connections above that limit closes the "
    "least recently used connection of another listener.",
    "max.connections.per.ip": "The maximum number of connections from one address. Connections above it are closed "
    "immediately.",
    "max.connections.per.ip.overrides": "The limits for single addresses or host names that replace "
    "max.connections.per.ip, as host:number, separated by commas.",
    "max.incremental.fetch.session.cache.slots": "The maximum number of incremental fetch sessions that the broker "
    "keeps.",
    "max.request.partition.size.limit": "The maximum number of partitions in one DescribeTopicPartitions response.",
    "message.max.bytes": "The maximum size of a record batch in bytes, after compression.",
    "metadata.log.dir": "The directory of the metadata log. If not set, the first log directory is used.",
    "metadata.log.max.record.bytes.between.snapshots": "The maximum number of bytes of metadata records between two "
    "snapshots.",
    "metadata.log.max.snapshot.interval.ms": "The maximum time between two snapshots while there are new metadata "
    "records, in milliseconds; 0 means no limit.",
    "metadata.log.segment.bytes": "The maximum size of a segment of the metadata log in bytes.",
    "metadata.log.segment.ms": "How long a segment of the metadata log can be active before it is rolled, in "
    "milliseconds.",
    "metadata.max.idle.interval.ms": "How often the active controller writes a no-op record to the metadata log, in "
    "milliseconds; 0 means never.",
    "metadata.max.retention.bytes": "The maximum size of the metadata log and its snapshots in bytes; -1 means no "
    "limit. Above it, segments and snapshots that a newer snapshot covers are deleted.",
    "metadata.max.retention.ms": "How long segments of the metadata log and snapshots are kept once a newer snapshot "
    "covers them, in milliseconds; -1 means no limit.",
    "min.insync.replicas": "The minimum number of replicas that must be in the ISR for a produce request with "
    "acks=all to succeed.",
    "node.id": "The id of this node, unique in the cluster.",
    "num.partitions": "The number of partitions of topics that are created automatically, or created without a "
    "partition count.",
    "num.recovery.threads.per.data.dir": "The number of threads per log directory that recover logs at startup after "
    "an unclean shutdown.",
    "num.replica.alter.log.dirs.threads": "The number of replicas that can move between log directories at the same "
    "time. If not set, the number of log directories.",
    "offset.metadata.max.bytes": "The maximum size of the metadata string of a committed offset in bytes.",
    "offsets.commit.timeout.ms": "How long an offset commit waits for replication before it fails, in milliseconds.",
    "offsets.retention.check.interval.ms": "How often the coordinator checks for committed offsets that have expired, "
    "in milliseconds.",
    "offsets.retention.minutes": "How long committed offsets are kept, in minutes: after their group has lost its "
    "last member, or after the commit if the group no longer subscribes to the topic or never had members.",
    "offsets.topic.compression.codec": "The codec of batches in __consumer_offsets, by number: 0 none, 1 gzip, 2 "
    "snappy, 3 lz4, 4 zstd.",
    "offsets.topic.num.partitions": "The number of partitions of __consumer_offsets. Do not change it after the topic "
    "is created.",
    "offsets.topic.replication.factor": "The replication factor of __consumer_offsets.",
    "offsets.topic.segment.bytes": "The maximum size of a segment of __consumer_offsets in bytes.",
    "process.roles": "The roles of this node: broker, controller, or both, separated by commas.",
    "producer.id.expiration.check.interval.ms": "How often the broker checks for producer ids that have expired, in "
    "milliseconds.",
    "producer.id.expiration.ms": "How long a partition keeps the state of a producer id after the producer's last "
    "batch, in milliseconds.",
    "queued.max.request.bytes": "The memory for requests and responses of all connections in bytes. -1 means a "
    "sixteenth of the memory of the machine or container, at least 256 MiB and at most 2 GiB.",
    "quota.window.num": "The number of samples kept in memory to measure the rates of clients with quotas.",
    "quota.window.size.seconds": "The time span of each sample of the rates of clients with quotas, in seconds.",
    "replica.fetch.backoff.ms": "How long a follower waits after a failed fetch before it fetches that partition "
    "again, in milliseconds.",
    "replica.fetch.max.bytes": "The maximum number of bytes per partition in a Fetch response to a follower. The "
    "first batch is returned even if it is larger.",
    "replica.fetch.min.bytes": "The minimum number of bytes in a Fetch response to a follower. The leader waits up to "
    "replica.fetch.wait.max.ms for them.",
    "replica.fetch.response.max.bytes": "The maximum size of a Fetch response to a follower in bytes. The first batch "
    "is returned even if it is larger.",
    "replica.fetch.wait.max.ms": "The maximum time that a follower's fetch waits at the leader, in milliseconds. "
    "Should be less than replica.lag.time.max.ms, or followers of slow topics leave the ISR.",
    "replica.high.watermark.checkpoint.interval.ms": "How often the high watermarks are written to disk, in "
    "milliseconds.",
    "replica.lag.time.max.ms": "How long a follower can go without being caught up to the end of the leader's log "
    "before the leader removes it from the ISR, in milliseconds.",
    "replica.selector.class": "The class that selects the replica a consumer reads from. The two selectors of Kafka "
    "are supported, RackAwareReplicaSelector and LeaderSelector, by their full class names.",
    "replica.socket.timeout.ms": "How long a follower waits for the response to a fetch, in milliseconds. Must be at "
    "least replica.fetch.wait.max.ms.",
    "replication.quota.window.num": "The number of samples kept in memory to measure the rate of throttled "
    "replication.",
    "replication.quota.window.size.seconds": "The time span of each sample of the rate of throttled replication, in "
    "seconds.",
    "request.timeout.ms": "How long this broker waits for the response of another broker, in milliseconds.",
    "sasl.enabled.mechanisms": "The mechanisms that SASL listeners offer: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, "
    "OAUTHBEARER and GSSAPI are supported. With the prefix listener.name.LISTENER. the key applies to one listener.",
    "sasl.jaas.config": "The login module of a SASL mechanism, with the users of PLAIN, and the user name and "
    "password, or principal and keytab, with which this node logs in to other nodes. Brokers read it only with the "
    "prefix listener.name.LISTENER.MECHANISM.",
    "sasl.kerberos.principal.to.local.rules": "The rules that map Kerberos principals to user names, separated by "
    "commas; the first rule that applies decides. DEFAULT takes the first component of principals of the machine's "
    "own realm.",
    "sasl.kerberos.service.name": "The first component of the Kerberos principals of all nodes, for GSSAPI. It can be "
    "set in the JAAS entry (serviceName) instead.",
    "sasl.mechanism.controller.protocol": "The SASL mechanism with which this node logs in to controllers.",
    "sasl.mechanism.inter.broker.protocol": "The SASL mechanism with which this node logs in to other brokers. A "
    "change at run time applies to new connections.",
    "sasl.login.connect.timeout.ms": "How long this node waits for a connection to the token endpoint, in "
    "milliseconds. Here, the sum of this value and sasl.login.read.timeout.ms limits the whole request; each is "
    "10,000 if it is not set.",
    "sasl.login.read.timeout.ms": "How long this node waits for the response of the token endpoint, in milliseconds.",
    "sasl.login.refresh.buffer.seconds": "How many seconds before its token expires this node gets a new one at the "
    "latest. Ignored, as is sasl.login.refresh.min.period.seconds, if the sum of the two exceeds the lifetime of the "
    "token.",
    "sasl.login.refresh.min.period.seconds": "The minimum time that this node waits before it refreshes its token, in "
    "seconds. Ignored, as is sasl.login.refresh.buffer.seconds, if the sum of the two exceeds the lifetime of the "
    "token.",
    "sasl.login.refresh.window.factor": "The fraction of a token's lifetime after which this node gets the next token.",
    "sasl.login.refresh.window.jitter": "The largest random fraction of a token's lifetime that is added to "
    "sasl.login.refresh.window.factor.",
    "sasl.login.retry.backoff.max.ms": "The longest time that this node waits between two requests to the token "
    "endpoint after failures, in milliseconds.",
    "sasl.login.retry.backoff.ms": "How long this node waits after the first failed request to the token endpoint, "
    "in milliseconds; each further failure doubles the time.",
    **oauth_config_docs.HEEDED,
    "sasl.server.max.receive.size": "The maximum size of a request before the client is authenticated, in bytes.",
    "socket.listen.backlog.size": "The length of the queue of connections that wait to be accepted. If the key is not "
    "set, the length here is 1,024 instead of 50.",
    "socket.receive.buffer.bytes": "The SO_RCVBUF buffer of client sockets in bytes; -1 means the default of the "
    "operating system. Here, that is also used if the key is not set.",
    "socket.request.max.bytes": "The maximum size of a request in bytes. The broker closes a connection that sends a "
    "larger one.",
    "socket.send.buffer.bytes": "The SO_SNDBUF buffer of client sockets in bytes; -1 means the default of the "
    "operating system. Here, that is also used if the key is not set.",
    "security.inter.broker.protocol": "The security protocol of connections between brokers if "
    "inter.broker.listener.name is not set. The inter-broker listener is then the listener with the name of this "
    "protocol.",
    "ssl.allow.dn.changes": "Whether the certificate of a running listener can be replaced by one with another "
    "distinguished name.",
    "ssl.allow.san.changes": "Whether the certificate of a running listener can be replaced by one that lacks some "
    "of its alternative names.",
    "ssl.cipher.suites": "The cipher suites of TLS connections, by their IANA names. A list without suites of TLS 1.3 "
    "allows only TLS 1.2. A list with some suites of TLS 1.3 but not all is refused, because a choice among them is "
    "not possible here. Empty means OpenSSL's choice.",
    "ssl.client.auth": "Whether clients must present a certificate: required, requested or none. On SASL_SSL "
    "listeners only the key with the listener's prefix has an effect, as in Kafka.",
    "ssl.enabled.protocols": "The TLS versions that connections can use: TLSv1.2, TLSv1.3 or both.",
    "ssl.endpoint.identification.algorithm": "Whether this node checks the host names of nodes that it connects to: "
    "https, or empty to check none.",
    "ssl.key.password": "The password of the private key. If it is not set, the password of the store is used for JKS.",
    "ssl.keystore.certificate.chain": "The certificate chain of ssl.keystore.key, as PEM.",
    "ssl.keystore.key": "The private key as PEM, instead of a key store in a file.",
    "ssl.keystore.location": "The file with the private key and certificate chain of the node. Setting it at run "
    "time, even to the same name, reads the file again.",
    "ssl.keystore.password": "The password of the key store. PEM files have none.",
    "ssl.keystore.type": "The format of the key store: JKS, PKCS12 or PEM. The content decides between JKS and PKCS12.",
    "ssl.principal.mapping.rules": "The rules that map the distinguished name of a client's certificate to the name "
    "of its principal, as RULE:pattern/replacement/[LU] or DEFAULT, separated by commas.",
    "ssl.protocol": "The name of Java's TLS context: TLS, TLSv1.2 or TLSv1.3. Only checked here: "
    "ssl.enabled.protocols decides.",
    "ssl.truststore.certificates": "The trusted certificates as PEM, instead of a trust store in a file.",
    "ssl.truststore.location": "The file with the trusted certificates. Without a trust store, the authorities of "
    "the system are trusted.",
    "ssl.truststore.password": "The password of the trust store. PEM files have none.",
    "ssl.truststore.type": "The format of the trust store: JKS, PKCS12 or PEM. The content decides "
    "between JKS and PKCS12.",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "How often the coordinator checks for transactions "
    "that have timed out, in milliseconds.",
    "transaction.max.timeout.ms": "The maximum transaction timeout that a producer can request, in milliseconds.",
    "transaction.partition.verification.enable": "Whether a leader checks with the transaction coordinator, before a "
    "producer's first write in a transaction, that the partition was added to the transaction. Applies to transaction "
    "version 1; version 2 always checks.",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "How often the coordinator checks for transactional "
    "ids that have expired, in milliseconds.",
    "transaction.state.log.min.isr": "min.insync.replicas of __transaction_state, set when the topic is created.",
    "transaction.state.log.num.partitions": "The number of partitions of __transaction_state. Do not change it after "
    "the topic is created.",
    "transaction.state.log.replication.factor": "The replication factor of __transaction_state.",
    "transaction.state.log.segment.bytes": "The maximum size of a segment of __transaction_state in bytes.",
    "transactional.id.expiration.ms": "How long the coordinator keeps a transactional id without any change of its "
    "state, in milliseconds.",
    "unclean.leader.election.enable": "Whether a replica that is not in the ISR can become leader when no other "
    "replica can. Records can be lost.",
    "unclean.leader.election.interval.ms": "How often the controller checks for partitions without a leader that need "
    "an unclean election, in milliseconds.",
}

#: The keys that Kafka 4.1 does not have; they are read from the properties file only, and not shown to clients.
OWN: Final[dict[str, str]] = {
    "barnabas.cluster.events.enable": "Whether the cluster keeps a journal of its changes and their causes, in the "
    "topic __cluster_events. Must be the same on all nodes.",
    "barnabas.cluster.events.retention.ms": "The retention.ms of __cluster_events when it is created.",
    "barnabas.jaas.config.file": "A JAAS file, like that of Java's system property "
    "java.security.auth.login.config. Its section listener.KafkaServer (the listener's name in lower case), or else "
    "KafkaServer, contains the entries of a listener without sasl.jaas.config.",
    "barnabas.sasl.oauthbearer.allowed.files": "The files that sasl.oauthbearer.assertion.* keys can name, separated "
    "by commas, like Java's system property org.apache.kafka.sasl.oauthbearer.allowed.files.",
    "barnabas.sasl.oauthbearer.allowed.urls": "The URLs that sasl.oauthbearer.* keys can contain, separated by "
    "commas, like Java's system property org.apache.kafka.sasl.oauthbearer.allowed.urls.",
    "barnabas.leader.election.strategy": "Which of the replicas that can lead without a loss becomes the leader: "
    "assignment (the first replica in the order of the assignment, as in Kafka), least-leaders (the broker that leads "
    "the fewest partitions), or module:function of an installed Python module. Must be the same on all controllers.",
    "barnabas.log.unsynced.bytes.max": "How many bytes can be unsynced in one log directory before the broker syncs "
    "logs in the background, which keeps recovery after a kill short; 0 means no limit.",
    "barnabas.max.batch.records": "The maximum number of records in a batch. A larger one is refused with "
    "MESSAGE_TOO_LARGE.",
    "barnabas.max.decompressed.batch.bytes": "The maximum size of a batch after decompression in bytes. A larger one "
    "is refused with MESSAGE_TOO_LARGE.",
    "barnabas.metrics.listener": "The address of /metrics, as host:port. If empty, no metrics are served.",
    "barnabas.verify.records": "Which batches have their records checked before they are appended: true (all), "
    "uncompressed, or false (none).",
    "max.decompressed.message.bytes": "The maximum size of one record after decompression in bytes; a key of Kafka "
    "4.4.",
}

#: The keys that have an effect in ZooKeeper mode only.
ZOOKEEPER: Final[dict[str, str]] = {
    "broker.id.generation.enable": "Whether a broker without broker.id gets one from ZooKeeper.",
    "control.plane.listener.name": "The listener on which this broker takes the controller's requests. If not set, "
    "the inter-broker listener takes them.",
    "controlled.shutdown.max.retries": "How many times a stopping broker asks the controller to move its leaderships.",
    "controlled.shutdown.retry.backoff.ms": "How long a stopping broker waits before it asks again, in milliseconds.",
    "inter.broker.protocol.version": "The release whose protocol brokers use among themselves: 3.4 to 3.9.",
    "leader.imbalance.per.broker.percentage": "The share of the partitions that prefer a broker as leader, in "
    "percent, that other brokers can lead before the controller moves the leadership back.",
    "reserved.broker.max.id": "The highest broker.id that a properties file can have; generated ones are above it.",
    "zookeeper.clientCnxnSocket": "The class of Kafka's connections to ZooKeeper, with or without its package "
    "org.apache.zookeeper: ClientCnxnSocketNetty, which TLS needs, or ClientCnxnSocketNIO.",
    "zookeeper.connect": "The ZooKeeper servers, as host:port,host:port/chroot. Setting this key chooses ZooKeeper "
    "mode.",
    "zookeeper.connection.timeout.ms": "How long the first connection to ZooKeeper can take, in milliseconds. If not "
    "set, the value of zookeeper.session.timeout.ms is used.",
    "zookeeper.max.in.flight.requests": "The maximum number of unanswered requests to ZooKeeper.",
    "zookeeper.session.timeout.ms": "How long ZooKeeper waits for a heartbeat from a broker before it expires the "
    "broker's session, in milliseconds.",
    "zookeeper.set.acl": "Whether only the creator of a znode can change it and read its secrets. The broker then "
    "needs an identity in ZooKeeper: a certificate.",
    "zookeeper.ssl.cipher.suites": "The cipher suites of connections to ZooKeeper, by their IANA names, separated by "
    "commas. If not set, OpenSSL chooses.",
    "zookeeper.ssl.client.enable": "Whether connections to ZooKeeper use TLS.",
    "zookeeper.ssl.enabled.protocols": "The TLS versions for ZooKeeper: TLSv1.2, TLSv1.3 or both. If not set, the "
    "value of zookeeper.ssl.protocol is used.",
    "zookeeper.ssl.endpoint.identification.algorithm": "Whether the host name in zookeeper.connect is compared with "
    "the server's certificate: https (in upper or lower case), or empty to compare nothing.",
    "zookeeper.ssl.keystore.location": "The store with the private key and the certificate that the broker presents to "
    "ZooKeeper.",
    "zookeeper.ssl.keystore.password": "The password of the key store and of its key.",
    "zookeeper.ssl.keystore.type": "The format of the key store: JKS, PKCS12 or PEM. If not set, the suffix of the "
    "file name decides: .jks, .p12, .pfx or .pem.",
    "zookeeper.ssl.protocol": "The TLS version for ZooKeeper: TLSv1.2, TLSv1.3, or TLS for both.",
    "zookeeper.ssl.truststore.location": "The store with the certificates that verify ZooKeeper's certificate. If not "
    "set, those of the system are used.",
    "zookeeper.ssl.truststore.password": "The password of the trust store.",
    "zookeeper.ssl.truststore.type": "The format of the trust store, as in zookeeper.ssl.keystore.type.",
}

_ONE_LOOP = "has no effect: one event loop serves all connections"
_NOT_NEEDED = "has no effect: Barnabas has no such mechanism"
_NO_SECURITY = "has no effect: Barnabas does not support it"
_OWN_TICKETS = "has no effect: the system's Kerberos library gets and renews tickets from the keytab"
_OPENSSL = "has no effect: OpenSSL implements TLS, so Java's providers cannot be chosen"
_NO_TIERS = "has no effect: tiered storage is not supported"
_NO_TWO_PHASES = "has no effect: two-phase commit is not supported"
_OWN_SLICES = "has no effect: __transaction_state is loaded in slices of a fixed size"
_NO_PLUGINS = "has no effect: Java classes cannot be loaded"
_REFUSED = "has no effect: Java classes cannot be loaded, and a node that is to be protected by one does not start"

_REASONS: Final[dict[str, str]] = {
    "background.threads": _ONE_LOOP,
    "num.io.threads": _ONE_LOOP,
    "num.network.threads": _ONE_LOOP,
    "num.replica.fetchers": "has no effect: one fetch at a time per leader covers all its partitions",
    "queued.max.requests": _ONE_LOOP,
    "log.preallocate": "has no effect: segment files grow as they are written",
    "log.cleaner.io.buffer.load.factor": "has no effect: only log.cleaner.dedupe.buffer.size limits the map of keys",
    **dict.fromkeys(
        (
            *("client.quota.callback.class", "principal.builder.class", "ssl.engine.factory.class"),
            *("sasl.login.callback.handler.class", "sasl.login.class", "sasl.server.callback.handler.class"),
        ),
        _REFUSED,
    ),
    "ssl.keymanager.algorithm": _OPENSSL,
    "ssl.provider": _OPENSSL,
    "ssl.secure.random.implementation": _OPENSSL,
    "ssl.trustmanager.algorithm": _OPENSSL,
    "early.start.listeners": "has no effect: no listener waits for an authorizer",
}

#: Reasons by prefix of the key; the first match applies.
_REASONS_BY_PREFIX: Final = (
    (("remote.", "log.local."), _NO_TIERS),
    (("group.share.", "share."), "has no effect: share groups are not supported"),
    (("group.streams.",), "has no effect: streams groups are not supported"),
    (
        ("group.coordinator.",),
        "has no effect: the group coordinator runs on the broker's event loop and appends without delay",
    ),
    (("transaction.two.phase.commit.",), _NO_TWO_PHASES),
    (("transaction.state.log.load.buffer.size",), _OWN_SLICES),
    (("sasl.kerberos.",), _OWN_TICKETS),
    (("sasl.", "security.", "principal.", "connection.failed.", "connections.max.reauth."), _NO_SECURITY),
    (("password.encoder.",), _NO_SECURITY),
    (("alter.config.policy.", "create.topic.policy."), _NO_PLUGINS),
    (("metric", "kafka.metrics.", "telemetry."), "has no effect: there are no Java metrics reporters"),
    (("replica.", "num.replica.", "controller.", "leader.", "auto.leader.", "unclean.leader."), _NOT_NEEDED),
)


def note_on(name: str) -> str | None:
    """Returns why a known key has no effect; None if it has one."""
    if name in HEEDED or name in ZOOKEEPER:
        return None
    reason = _REASONS.get(name)
    if reason is not None:
        return reason
    return next(
        (reason for prefixes, reason in _REASONS_BY_PREFIX if name.startswith(prefixes)),
        "has no effect: Barnabas does not support it",
    )


#: Keys of Kafka 3.9 that 4.0 removed, except those of ZooKeeper.
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
    """The warning for a key that Kafka 4.1 does not have."""
    if name.startswith("zookeeper."):
        return f"{name} is ignored: it belongs to ZooKeeper mode, which zookeeper.connect chooses"
    if name in _REMOVED or name.startswith("password.encoder."):
        return f"{name} is ignored: Kafka 4.0 removed it"
    if name == "config.providers" or name.startswith("config.providers."):
        return f"{name} is ignored: config providers (${{provider:key}}) are not supported"
    return f"{name} is ignored: neither Kafka 4.1 nor Barnabas has this key"
