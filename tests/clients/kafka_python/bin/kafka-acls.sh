#!/bin/sh
# The tool of Apache Kafka, with the log-in of the properties file $KAFKA_COMMAND_CONFIG, if it is set.
exec java -XX:TieredStopAtLevel=1 -cp "$KAFKA_CLASSPATH" org.apache.kafka.tools.AclCommand \
    ${KAFKA_COMMAND_CONFIG:+--command-config "$KAFKA_COMMAND_CONFIG"} "$@"
