#!/bin/sh
# kafka-storage.sh format OPTION... -c FILE: our command, whose argument is the file.
command=$1
shift
for argument; do
    shift
    if [ "$argument" != -c ]; then
        set -- "$@" "$argument"
    fi
done
exec "$BARNABAS_PYTHON" -m barnabas.cli.entry "$command" "$@"
