"""AlterClientQuotas on the controller: each refusal with the text that Kafka 4.1.0's controller has for it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tests.support.controller_world import ControllerWorld

from barnabas.common.errors import ErrorCode
from barnabas.controller.requests.client_quotas import alter_client_quotas
from barnabas.protocol.messages.alter_client_quotas import AlterClientQuotasRequest

Entity = Mapping[str, str | None]
Row = AlterClientQuotasRequest.EntryData
USER_X: Entity = {"user": "x"}
ADDRESS: Entity = {"ip": "1.2.3.4"}
RATE = "producer_byte_rate"
CONNECTIONS = "connection_creation_rate"


def row(entity: Entity, *ops: tuple[str, float | None]) -> Row:
    return Row(
        entity=[
            AlterClientQuotasRequest.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()
        ],
        ops=[AlterClientQuotasRequest.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in ops],
    )


def alter(world: ControllerWorld, *rows: Row) -> list[tuple[int, str | None]]:
    answer = world.apply(alter_client_quotas(world.view(), AlterClientQuotasRequest(entries=list(rows)), "User:admin"))
    return [(each.error_code, each.error_message) for each in answer.entries]


def kept(world: ControllerWorld) -> dict[object, dict[str, float]]:
    return {entity: dict(values) for entity, values in world.image.security.quotas.items()}


REFUSED = [
    (USER_X, "nonsense", 1.0, "Invalid configuration key nonsense"),
    (USER_X, RATE, 0.0, "Quota producer_byte_rate must be greater than 0"),
    (USER_X, RATE, -1.0, "Quota producer_byte_rate must be greater than 0"),
    (USER_X, RATE, 1.5, "producer_byte_rate cannot be a fractional value."),
    (USER_X, RATE, 1e30, "Proposed value for producer_byte_rate is too large for a LONG."),
    (USER_X, RATE, float("inf"), "Proposed value for producer_byte_rate is too large for a LONG."),
    (USER_X, CONNECTIONS, 5.0, "Invalid configuration key connection_creation_rate"),
    (ADDRESS, CONNECTIONS, 5.5, "connection_creation_rate cannot be a fractional value."),
    (ADDRESS, CONNECTIONS, 3e9, "Proposed value for connection_creation_rate is too large for an INT."),
    (ADDRESS, RATE, 5.0, "Invalid configuration key producer_byte_rate"),
    ({"ip": "not an ip"}, CONNECTIONS, 5.0, "not an ip is not a valid IP or resolvable host."),
    (
        {"ip": "1.2.3.4", "user": "x"},
        CONNECTIONS,
        5.0,
        "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
    ),
    ({}, CONNECTIONS, 5.0, "Invalid empty client quota entity"),
    ({"user": ""}, RATE, 5.0, "Empty user not supported"),
    ({"ip": ""}, CONNECTIONS, 5.0, "Empty ip not supported"),
    ({"group": "g"}, RATE, 5.0, "Unhandled client quota entity type: group"),
    # Kafka accepts a quota that is not a number, which no rate ever exceeds.
    (USER_X, RATE, float("nan"), "Quota producer_byte_rate must be greater than 0"),
]


@pytest.mark.parametrize(("entity", "key", "value", "text"), REFUSED, ids=lambda each: str(each)[:30])
def test_a_refusal_has_the_text_of_kafka_and_changes_nothing(entity: Entity, key: str, value: float, text: str) -> None:
    world = ControllerWorld()
    assert alter(world, row(entity, (key, value))) == [(ErrorCode.INVALID_REQUEST, text)]
    assert kept(world) == {}


@pytest.mark.parametrize(
    ("entity", "key", "value"),
    [
        (USER_X, RATE, 1.0000001),
        (USER_X, "request_percentage", 0.5),
        (USER_X, "controller_mutation_rate", 0.5),
        ({"user": None, "client-id": None}, RATE, 9.0),
        ({"client-id": "c"}, "consumer_byte_rate", 9.0),
        ({"ip": "::1"}, CONNECTIONS, 5.0),
        ({"ip": None}, CONNECTIONS, 5.0),
    ],
    ids=str,
)
def test_a_quota_is_set_and_removed(entity: Entity, key: str, value: float) -> None:
    world = ControllerWorld()
    expected = tuple(sorted(entity.items()))
    assert alter(world, row(entity, (key, value))) == [(ErrorCode.NONE, None)]
    assert kept(world) == {expected: {key: value}}
    unchanged = alter_client_quotas(world.view(), AlterClientQuotasRequest(entries=[row(entity, (key, value))]), "a")
    assert unchanged.records == []
    assert alter(world, row(entity, (key, None), ("unheard", None))) == [(ErrorCode.NONE, None)]
    assert kept(world) == {}


def test_one_invalid_key_refuses_its_entity_alone() -> None:
    world = ControllerWorld()
    codes = alter(world, row({"user": "z"}, (RATE, 5.0), ("nonsense", 6.0)), row(USER_X, (RATE, 7.0)))
    assert codes == [(ErrorCode.INVALID_REQUEST, "Invalid configuration key nonsense"), (ErrorCode.NONE, None)]
    assert kept(world) == {(("user", "x"),): {RATE: 7.0}}


def test_of_an_entity_named_twice_the_first_row_counts_and_the_answer_is_a_refusal() -> None:
    world = ControllerWorld()
    codes = alter(world, row(USER_X, (RATE, 5.0)), row(USER_X, (RATE, 6.0)))
    text = "Ignoring duplicate entity ClientQuotaEntity(entries={user=x})"
    assert codes == [(ErrorCode.INVALID_REQUEST, text)]
    assert kept(world) == {(("user", "x"),): {RATE: 5.0}}


def test_a_key_named_twice_refuses_its_entity() -> None:
    world = ControllerWorld()
    text = "Ignoring duplicate entity ClientQuotaEntity(entries={user=x})"
    assert alter(world, row(USER_X, (RATE, 5.0), (RATE, 6.0))) == [(ErrorCode.INVALID_REQUEST, text)]
    assert kept(world) == {}
