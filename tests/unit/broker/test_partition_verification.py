"""The verification of a transaction's partitions while its coordinator is unknown."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.controller_world import make_config

from barnabas.broker.peers.partition_verification import Codes, TransactionVerifier, Verification
from barnabas.common.errors import ErrorCode
from barnabas.common.types import TopicPartition
from barnabas.coordinators.transactions.transitions import ProducerIdentity
from barnabas.simulation.host import MemoryHost

PARTITIONS = (TopicPartition("orders", 0), TopicPartition("orders", 1))


@pytest.mark.parametrize("coordinator", [None, -1])
def test_without_a_coordinator_the_answer_comes_after_the_call(coordinator: int | None) -> None:
    host = MemoryHost()
    brokers: Any = SimpleNamespace(leader_of=lambda partition: coordinator)
    verifier = TransactionVerifier(host, make_config(), brokers, lambda transactional_id: 7)
    found: list[Codes] = []
    verifier.verify(Verification("t", ProducerIdentity(1, 0), PARTITIONS, adds=True), found.append)
    assert found == []
    host.time.run_for(1)
    assert found == [dict.fromkeys(PARTITIONS, ErrorCode.COORDINATOR_NOT_AVAILABLE)]
