#!/bin/sh
# kafka-run-class.sh kafka.Kafka FILE: our broker with the JAAS file of KAFKA_OPTS.
[ "$1" = kafka.Kafka ] || { echo "kafka-run-class.sh runs only kafka.Kafka here, not $1" >&2; exit 1; }
jaas=$(printf '%s' "$KAFKA_OPTS" | sed -n 's/.*-Djava.security.auth.login.config=\([^ ]*\).*/\1/p')
if [ -n "$jaas" ]; then
    printf '\nbarnabas.jaas.config.file=%s\n' "$jaas" >>"$2"
fi
exec "$BARNABAS_PYTHON" -m barnabas.cli.entry broker "$2"
