"""The replica monitor: each partition's leader, replicas, ISR and lag, live, of any Kafka cluster."""
