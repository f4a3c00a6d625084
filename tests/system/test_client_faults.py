"""Faults of a client are distinguished from those of a broker by what is in the log, and in the history."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.clients import wire
from tests.clients.servers import Server
from tests.support.client_faults import is_of_the_client

from barnabas.histories.anomalies import Finding, Kind

#: (producer id, epoch, sequence) of two batches, and whether a client that raised its epoch wrote the second one.
COPIES = {
    "of a raised epoch": ((7, 0, 0), (7, 1, 0), True),
    "of one epoch": ((7, 0, 0), (7, 0, 1), False),
    "of two producers": ((7, 0, 0), (8, 1, 0), False),
    "without a producer": ((-1, -1, -1), (-1, -1, -1), False),
}


@pytest.mark.parametrize("case", COPIES)
def test_the_epochs_decide(server: Server, case: str) -> None:
    first, second, expected = COPIES[case]
    topic = f"copies-{uuid4()}"
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(60)
    wire.wait_until_led(server.port, topic)
    for producer in (first, second):
        batch = wire.batch([wire.record(0, b"k", b"v")], producer=producer)
        assert wire.produce(server.port, topic, 0, batch)[0] == 0
    finding = Finding(Kind.DUPLICATE, topic, 0, 1, ("v",), f"'v' is at {topic}-0@0 and at {topic}-0@1", ())
    assert is_of_the_client(server.bootstrap, finding) is expected
    assert not is_of_the_client(server.bootstrap, finding._replace(kind=Kind.UNSEEN))


@pytest.mark.parametrize("sequence", [0, 495])
@pytest.mark.parametrize("offset", [None, 3])
def test_records_that_were_acknowledged_with_later_ones(
    server: Server, tmp_path: Path, sequence: int, offset: int | None
) -> None:
    topic = f"implicit-{uuid4()}"
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(60)
    wire.wait_until_led(server.port, topic)
    batch = wire.batch([wire.record(0, b"k", b"v")], producer=(7, 0, sequence))
    assert wire.produce(server.port, topic, 0, batch)[0] == 0
    history = tmp_path / "history.jsonl"
    events = [
        {"process": "p1", "type": "invoke", "f": "send", "topic": topic, "value": "a", "partition": 0},
        {"process": "p1", "type": "ok", "f": "send", "topic": topic, "value": "a", "partition": 0, "offset": offset},
    ]
    history.write_text("".join(json.dumps(event) + "\n" for event in events), "utf-8")
    finding = Finding(Kind.UNSEEN, topic, 0, None, ("a",), "'a' of p1 was acked but missing", (2,))
    assert is_of_the_client(server.bootstrap, finding, history) is (offset is None and sequence > 0)
