"""Batches with wrong contents, over the wire: the answer to each, and that every reader of the topic reaches its end.

With BARNABAS_TARGET=kafka the same table is compared with Apache Kafka, which then tests Kafka's column.
"""

from __future__ import annotations

import os
import time

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.clients import wire
from tests.clients.servers import Server
from tests.support.batches import simple_batch
from tests.support.poisoned import forms

from barnabas.common.errors import ErrorCode

FORMS = forms()
IS_KAFKA = os.environ.get("BARNABAS_TARGET") == "kafka"


@pytest.fixture(scope="module")
def port(server: Server) -> int:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([NewTopic("poisoned", 1, 1)])["poisoned"].result(120)
    port = int(server.bootstrap.rpartition(":")[2])
    while wire.produce(port, "poisoned", 0, bytes(simple_batch()))[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER:
        time.sleep(0.1)
    return port


@pytest.mark.parametrize("name", FORMS)
def test_form(port: int, name: str) -> None:
    form = FORMS[name]
    code, _ = wire.produce(port, "poisoned", 0, form.batch)
    assert ErrorCode(code) is (form.kafka if IS_KAFKA else form.ours)
