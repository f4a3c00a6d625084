"""Requests of many rows do not hold the loop for long, in memory: each of the table is sent once, and answered.

Every test checks that no turn takes more than 50 ms of CPU (`support/turn_watch.py`).
`tests/system/test_bystanders_of_requests.py` runs them with real processes, next to a producer.
"""

from __future__ import annotations

import pytest
from tests.support.hostile_requests import ATTACKS, TOPICS
from tests.support.wired import WiredBroker

from barnabas.protocol.message import Message

ROWS = 60_000


@pytest.fixture(scope="module")
def wired() -> WiredBroker:
    broker = WiredBroker()
    for name, partitions in TOPICS.items():
        broker.create_topic(name, partitions)
    broker.host.time.run_for(1_000)
    return broker


@pytest.mark.parametrize("name", ATTACKS)
def test_no_request_of_many_rows_holds_the_loop(wired: WiredBroker, name: str) -> None:
    requested = ATTACKS[name](ROWS)
    client = wired.connect()
    for message, version in requested[:20]:
        assert client.call(message, version, Message, within_ms=60_000)
