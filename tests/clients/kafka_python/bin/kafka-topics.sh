#!/bin/sh
# The tool of Apache Kafka.
exec java -XX:TieredStopAtLevel=1 -cp "$KAFKA_CLASSPATH" org.apache.kafka.tools.TopicCommand "$@"
