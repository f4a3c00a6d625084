"""What a broker's /metrics shows, made from the plain numbers of its parts when somebody asks.

Names are those of Kafka's MBeans as the widely used example `kafka-2_0_0.yml` of Prometheus's JMX exporter spells them:

    kafka.server:type=ReplicaManager,name=LeaderCount          kafka_server_replicamanager_leadercount       gauge
    kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec    kafka_server_brokertopicmetrics_bytesin_total counter
    kafka.log:type=Log,name=Size,topic=t,partition=0           kafka_log_log_size{topic="t",partition="0"}

and, for beans without a `name` (raft, group coordinator), as the exporter spells what no rule is about:
kafka_server_raft_metrics_current_epoch. What Kafka has no metric of begins with `barnabas_`.

Each collector is a function of the broker. None is imported before the first scrape. Samples are made while they are
written, a few at a time, so a broker with thousands of partitions serves others in between; a scrape is not one moment.
"""
