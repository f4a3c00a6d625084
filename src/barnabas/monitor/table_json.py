"""The table as one JSON object, in pieces: a large cluster is written as it is encoded."""

from __future__ import annotations

import json
from collections.abc import Iterator

from barnabas.monitor.severity import STATES
from barnabas.monitor.table import ClusterTable
from barnabas.monitor.texts import at


def json_pieces(table: ClusterTable) -> Iterator[str]:
    head = {
        "type": "snapshot",
        "time": at(table.time_ms),
        "cluster_id": table.cluster_id,
        "controller": table.controller,
        "severity": table.severity.name.lower(),
        "counts": {STATES[severity]: count for severity, count in table.counts().items()},
        "brokers": [
            {
                "broker": broker.broker_id,
                "host": broker.host,
                "port": broker.port,
                "rack": broker.rack,
                "problem": broker.problem,
            }
            for _, broker in sorted(table.brokers.items())
        ],
    }
    yield json.dumps(head, ensure_ascii=False).removesuffix("}") + ', "partitions": ['
    for place, state in enumerate(table.values()):
        yield (", " if place else "") + json.dumps(state.to_json(), ensure_ascii=False)
    yield "]}"
