"""Changes of configurations in ZooKeeper mode that meet: no acknowledged change is taken back by another one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from tests.support.wired import WiredClient
from tests.support.zookeeper_broker import ZooKeeperBroker

from barnabas.common.errors import ErrorCode
from barnabas.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from barnabas.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.znodes import paths
from barnabas.znodes.config_znodes import decode_config, encode_config
from barnabas.zookeeper.client.store import MultiReply
from barnabas.zookeeper.wire.codes import OpCode
from barnabas.zookeeper.wire.operations import Part

BROKER = 4
PATH = paths.config(paths.BROKER_CONFIGS, "1")
USER = paths.config(paths.USER_CONFIGS, "carol")
Applied = Callable[[Sequence[Part], int], MultiReply]


def alteration(key: str, value: str) -> IncrementalAlterConfigsRequest:
    entry = IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=0, value=value)
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=BROKER, resource_name="1", configs=[entry]
    )
    return IncrementalAlterConfigsRequest(resources=[resource])


def quota(key: str, value: float) -> AlterClientQuotasRequest:
    entity = AlterClientQuotasRequest.EntityData(entity_type="user", entity_name="carol")
    entry = AlterClientQuotasRequest.EntryData(
        entity=[entity], ops=[AlterClientQuotasRequest.OpData(key=key, value=value)]
    )
    return AlterClientQuotasRequest(entries=[entry])


def codes(client: WiredClient) -> list[int]:
    """Returns the error codes of the answers that have arrived."""
    found: list[int] = []
    for _, answer in client.received():
        assert isinstance(answer, AlterClientQuotasResponse | IncrementalAlterConfigsResponse)
        rows = answer.entries if isinstance(answer, AlterClientQuotasResponse) else answer.responses
        found += [row.error_code for row in rows]
    return found


def written(broker: ZooKeeperBroker, path: str = PATH) -> dict[str, str]:
    znode = broker.tree.content(path)
    assert znode is not None
    return decode_config(path, znode.data)


def notifications(broker: ZooKeeperBroker) -> int:
    return len(broker.tree.names(paths.CONFIG_CHANGES))


def before_writes(
    broker: ZooKeeperBroker, monkeypatch: pytest.MonkeyPatch, path: str, act: Callable[[int], None]
) -> None:
    """Calls `act` with the number of the attempt before each write of the broker to this path."""
    apply, attempts = broker.tree.apply, 0

    def applied(parts: Sequence[Part], session_id: int) -> MultiReply:
        nonlocal attempts
        part = parts[-1]
        if session_id and part.type in (OpCode.SET_DATA, OpCode.CREATE) and part.record[0] == path:
            attempts += 1
            act(attempts)
        return apply(parts, session_id)

    monkeypatch.setattr(broker.tree, "apply", applied)


@pytest.fixture
def alone() -> ZooKeeperBroker:
    return ZooKeeperBroker().start()


@pytest.mark.parametrize("connections", [1, 2])
@pytest.mark.parametrize("exists", [False, True])
def test_changes_that_wait_for_zookeeper_together_keep_each_other(
    alone: ZooKeeperBroker, connections: int, *, exists: bool
) -> None:
    if exists:
        alone.tree.set(PATH, encode_config({"num.io.threads": "7"}))
    clients = [alone.connect() for _ in range(connections)]
    alone.store.disconnect()
    clients[0].send(alteration("log.roll.ms", "604800000"), 1)
    clients[-1].send(alteration("num.replica.fetchers", "2"), 1)
    alone.settle()
    alone.store.reconnect()
    alone.settle()
    assert [code for client in clients for code in codes(client)] == [0, 0]
    both = {"log.roll.ms": "604800000", "num.replica.fetchers": "2"}
    assert written(alone) == ({"num.io.threads": "7", **both} if exists else both)
    assert dict(alone.broker.metadata.image.config_of(BROKER, "1")) == written(alone)
    assert notifications(alone) == 2


def test_quotas_of_a_user_that_wait_for_zookeeper_together_keep_each_other(alone: ZooKeeperBroker) -> None:
    client = alone.connect()
    alone.store.disconnect()
    client.send(quota("consumer_byte_rate", 2_048.0), 1)
    client.send(quota("producer_byte_rate", 1_024.0), 1)
    alone.store.reconnect()
    alone.settle()
    assert codes(client) == [0, 0]
    assert written(alone, USER) == {"consumer_byte_rate": "2048", "producer_byte_rate": "1024"}


@pytest.mark.parametrize("exists", [False, True])
def test_a_change_that_another_broker_overtakes_keeps_what_that_one_wrote(
    alone: ZooKeeperBroker, monkeypatch: pytest.MonkeyPatch, *, exists: bool
) -> None:
    if exists:
        alone.tree.set(PATH, encode_config({"num.io.threads": "7"}))
        alone.tree.set(USER, encode_config({"SCRAM-SHA-256": "salt"}))
    theirs = encode_config({"log.roll.ms": "3000"})

    def overtake(attempt: int) -> None:
        if attempt == 1:
            alone.tree.set(path, theirs)

    client = alone.connect()
    for path, request in ((PATH, alteration("num.replica.fetchers", "2")), (USER, quota("consumer_byte_rate", 7.0))):
        before_writes(alone, monkeypatch, path, overtake)
        client.send(request, 1)
        alone.settle()
        monkeypatch.undo()
    assert codes(client) == [0, 0]
    assert written(alone) == {"log.roll.ms": "3000", "num.replica.fetchers": "2"}
    assert written(alone, USER) == {"log.roll.ms": "3000", "consumer_byte_rate": "7"}


def test_a_change_is_decided_again_on_what_another_broker_wrote(
    alone: ZooKeeperBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An element is appended to the list that the other one wrote."""
    path = paths.config(paths.BROKER_CONFIGS, paths.DEFAULT_ENTITY)

    def overtake(attempt: int) -> None:
        if attempt == 1:
            alone.tree.set(path, encode_config({"log.cleanup.policy": "compact"}))

    before_writes(alone, monkeypatch, path, overtake)
    client = alone.connect()
    append = IncrementalAlterConfigsRequest.AlterableConfig(
        name="log.cleanup.policy", config_operation=2, value="compact"
    )
    request = alteration("", "")
    request.resources[0].resource_name, request.resources[0].configs = "", [append]
    client.send(request, 1)
    alone.settle()
    assert codes(client) == [0]
    assert written(alone, path) == {"log.cleanup.policy": "compact"}


def test_a_broker_that_is_always_overtaken_gives_up(alone: ZooKeeperBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[int] = []

    def overtake(attempt: int) -> None:
        attempts.append(attempt)
        alone.tree.set(path, encode_config({"log.roll.ms": f"{3_000 + attempt}"}))

    client = alone.connect()
    for path, request in ((PATH, alteration("num.replica.fetchers", "2")), (USER, quota("consumer_byte_rate", 7.0))):
        before_writes(alone, monkeypatch, path, overtake)
        client.send(request, 1)
        alone.settle(3_000)
        monkeypatch.undo()
        assert codes(client) == [ErrorCode.UNKNOWN_SERVER_ERROR]
        assert written(alone, path) == {"log.roll.ms": "3011"}
    assert len(attempts) == 22
    client.send(alteration("num.replica.fetchers", "2"), 1)
    alone.settle()
    assert codes(client) == [0]


@pytest.mark.parametrize("happened", [0, 1])
def test_a_write_whose_answer_is_lost_is_made_again(alone: ZooKeeperBroker, happened: int) -> None:
    alone.tree.set(PATH, encode_config({"num.io.threads": "7"}))
    client = alone.connect()
    client.send(alteration("log.roll.ms", "3000"), 1)
    alone.store.answer(1)  # the read
    alone.store.disconnect(happened)
    alone.store.reconnect()
    alone.settle()
    assert codes(client) == [0]
    assert written(alone) == {"num.io.threads": "7", "log.roll.ms": "3000"}
    assert notifications(alone) == 1


def test_a_change_without_a_controller_is_written(alone: ZooKeeperBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    alone.tree.set(PATH, encode_config({"num.io.threads": "7"}))
    before_writes(
        alone, monkeypatch, PATH, lambda attempt: alone.tree.delete(paths.CONTROLLER) if attempt == 1 else None
    )
    client = alone.connect()
    client.send(alteration("log.roll.ms", "3000"), 1)
    alone.settle()
    assert codes(client) == [0]
    assert written(alone) == {"num.io.threads": "7", "log.roll.ms": "3000"}
