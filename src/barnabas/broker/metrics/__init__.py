"""The metrics of a broker (/metrics), computed from the counters and state of its parts when they are scraped.

Names are those of Kafka's MBeans as the widely used example `kafka-2_0_0.yml` of Prometheus's JMX exporter spells them:
    kafka.server:type=ReplicaManager,name=LeaderCount          kafka_server_replicamanager_leadercount       gauge
    kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec    kafka_server_brokertopicmetrics_bytesin_total counter
    kafka.log:type=Log,name=Size,topic=t,partition=0           kafka_log_log_size{topic="t",partition="0"}
and, for beans without a `name` (raft, group coordinator), as the exporter's default rule spells them:
kafka_server_raft_metrics_current_epoch. Metrics that Kafka lacks begin with `barnabas_`.

Each collector is a function of the broker and is imported at the first scrape. Samples are computed while they are
written, a few at a time, so that a broker with thousands of partitions serves clients in between: a scrape is not a
snapshot of one moment. Begin with `catalogue.py`.
"""
