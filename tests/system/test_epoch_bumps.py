"""Duplicates of a client are told apart from those of a broker by their producer epochs."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.clients import wire
from tests.clients.servers import Server
from tests.support.epoch_bumps import is_of_the_client

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
    topic = f"copies-{case.replace(' ', '-')}"
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(60)
    wire.wait_until_led(server.port, topic)
    for producer in (first, second):
        batch = wire.batch([wire.record(0, b"k", b"v")], producer=producer)
        assert wire.produce(server.port, topic, 0, batch)[0] == 0
    finding = Finding(Kind.DUPLICATE, topic, 0, 1, ("v",), f"'v' is at {topic}-0@0 and at {topic}-0@1", ())
    assert is_of_the_client(server.bootstrap, finding) is expected
    assert not is_of_the_client(server.bootstrap, finding._replace(kind=Kind.UNSEEN))
