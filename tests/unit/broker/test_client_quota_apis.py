"""AlterClientQuotas and DescribeClientQuotas of a whole broker: filters, errors, recorded requests, the journal."""

from __future__ import annotations

import pytest
from tests.support.recorded_frames import Frame, recorded
from tests.support.wired import WiredBroker

from barnabas.common.errors import ErrorCode
from barnabas.common.types import EVENTS_TOPIC
from barnabas.journal.events import MetadataChange, events_of, makes_events
from barnabas.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from barnabas.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse

Component = DescribeClientQuotasRequest.ComponentData
Entity = dict[str, str | None]
ENTITIES: list[Entity] = [
    {"user": "alice"},
    {"user": None},
    {"client-id": "app", "user": "alice"},
    {"client-id": None},
    {"ip": "10.0.0.1"},
]


def set_quotas(wired: WiredBroker, entities: list[Entity], *, value: float | None = 1000.0) -> list[int]:
    request = AlterClientQuotasRequest()
    for entity in entities:
        key = "connection_creation_rate" if "ip" in entity else "producer_byte_rate"
        op = AlterClientQuotasRequest.OpData(key=key, value=value or 0.0, remove=value is None)
        parts = [AlterClientQuotasRequest.EntityData(entity_type=t, entity_name=n) for t, n in entity.items()]
        request.entries.append(AlterClientQuotasRequest.EntryData(entity=parts, ops=[op]))
    answer = wired.connect().call(request, 1, AlterClientQuotasResponse, within_ms=60_000)
    return [row.error_code for row in answer.entries]


@pytest.fixture(scope="module")
def wired() -> WiredBroker:
    made = WiredBroker()
    assert set_quotas(made, ENTITIES) == [0] * len(ENTITIES)
    return made


def describe(wired: WiredBroker, *components: Component, strict: bool = False) -> DescribeClientQuotasResponse:
    request = DescribeClientQuotasRequest(components=list(components), strict=strict)
    return wired.connect().call(request, 1, DescribeClientQuotasResponse)


def entities_of(answer: DescribeClientQuotasResponse) -> list[Entity]:
    assert answer.error_code == ErrorCode.NONE, answer.error_message
    assert answer.entries is not None
    return [{part.entity_type: part.entity_name for part in entry.entity} for entry in answer.entries]


@pytest.mark.parametrize(
    ("components", "strict", "expected"),
    [
        ([], False, [0, 1, 2, 3, 4]),
        ([], True, []),
        ([("user", 0, "alice")], False, [0, 2]),
        ([("user", 0, "alice")], True, [0]),
        ([("user", 1, None)], True, [1]),
        ([("user", 2, None)], False, [0, 1, 2]),
        ([("user", 2, None), ("client-id", 2, None)], True, [2]),
        ([("client-id", 1, None)], False, [3]),
        ([("ip", 2, None)], False, [4]),
        ([("ip", 0, "10.0.0.2")], False, []),
    ],
)
def test_filters(
    wired: WiredBroker, components: list[tuple[str, int, str | None]], strict: bool, expected: list[int]
) -> None:
    rows = [Component(entity_type=kind, match_type=how, match=name) for kind, how, name in components]
    found = entities_of(describe(wired, *rows, strict=strict))
    assert sorted(map(str, map(sorted_entity, found))) == sorted(str(sorted_entity(ENTITIES[n])) for n in expected)


def sorted_entity(entity: Entity) -> list[tuple[str, str | None]]:
    return sorted(entity.items(), key=lambda part: part[0])


@pytest.mark.parametrize(
    ("components", "code", "text"),
    [
        ([("", 2, None)], ErrorCode.INVALID_REQUEST, "Invalid empty entity type."),
        (
            [("user", 2, None), ("user", 0, "a")],
            ErrorCode.INVALID_REQUEST,
            "Entity type user cannot appear more than once in the filter.",
        ),
        ([("group", 2, None)], ErrorCode.UNSUPPORTED_VERSION, "Unsupported entity type group"),
        (
            [("user", 0, None)],
            ErrorCode.INVALID_REQUEST,
            "Request specified MATCH_TYPE_EXACT, but set match string to null.",
        ),
        (
            [("user", 1, "a")],
            ErrorCode.INVALID_REQUEST,
            "Request specified MATCH_TYPE_DEFAULT, but also specified a match string.",
        ),
        (
            [("user", 2, "a")],
            ErrorCode.INVALID_REQUEST,
            "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string.",
        ),
        ([("user", 3, None)], ErrorCode.INVALID_REQUEST, "Unknown match type 3"),
        (
            [("ip", 2, None), ("user", 2, None)],
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId "
            "filter component.",
        ),
    ],
)
def test_invalid_filters(
    wired: WiredBroker, components: list[tuple[str, int, str | None]], code: ErrorCode, text: str
) -> None:
    rows = [Component(entity_type=kind, match_type=how, match=name) for kind, how, name in components]
    answer = describe(wired, *rows)
    assert (answer.error_code, answer.error_message, answer.entries) == (code, text, None)


@pytest.mark.parametrize("frame", recorded(48, 49), ids=lambda frame: f"{frame[0]}-{frame[1]}")
def test_recorded_requests(frame: Frame) -> None:
    """The recorded cluster had two quotas."""
    key, version, request, recorded_answer = frame
    wired = WiredBroker()
    create = AlterClientQuotasRequest(
        entries=[
            AlterClientQuotasRequest.EntryData(
                entity=[AlterClientQuotasRequest.EntityData(entity_type=kind, entity_name=name)],
                ops=[AlterClientQuotasRequest.OpData(key=quota, value=value)],
            )
            for kind, name, quota, value in [
                ("user", "alice", "consumer_byte_rate", 20_000_000.0),
                ("client-id", None, "request_percentage", 900.0),
            ]
        ]
    )
    wired.connect().call(create, 1, AlterClientQuotasResponse)
    answer = wired.connect().call(request, version, type(recorded_answer))
    if key == 48 and recorded_answer.entries:
        assert shown(answer) == shown(recorded_answer)
    else:
        assert answer.entries == recorded_answer.entries == []
    assert answer.throttle_time_ms == recorded_answer.throttle_time_ms == 0


def shown(answer: DescribeClientQuotasResponse) -> list[str]:
    assert answer.entries is not None
    return sorted(
        str([(p.entity_type, p.entity_name) for p in entry.entity] + [(v.key, v.value) for v in entry.values])
        for entry in answer.entries
    )


def test_quotas_survive_a_restart_and_a_request_of_thousands_is_served_in_pieces() -> None:
    wired = WiredBroker()
    many: list[Entity] = [{"user": f"user-{n}"} for n in range(3_000)]
    assert set_quotas(wired, many) == [0] * 3_000
    wired.restart()
    assert len(entities_of(describe(wired))) == 3_000
    assert set_quotas(wired, many, value=None) == [0] * 3_000
    assert entities_of(describe(wired)) == []


def test_the_journal_reports_a_changed_quota() -> None:
    wired = WiredBroker()
    changes: list[MetadataChange] = []
    wired.broker.metadata.subscribe(
        lambda delta, image: changes.append(MetadataChange(delta, image, None)) if makes_events(delta) else None
    )
    set_quotas(wired, [{"client-id": "app", "user": None}])
    view = wired.broker.quorum.controller.proposals.view()
    ((subject, event),) = [found for change in changes for found in events_of(change, view, 1)]
    assert subject == "quota:user <default>, client-id app"
    assert event["kind"] == "quota-changed"
    assert event["entity"] == {"client-id": "app", "user": None}
    assert (event["before"], event["after"]) == ({"producer_byte_rate": None}, {"producer_byte_rate": 1000.0})


def test_the_first_quota_creates_the_journal() -> None:
    """A journal that something else created later did not know who had set the quotas before."""
    wired = WiredBroker()
    set_quotas(wired, [{"user": "alice"}])
    wired.host.time.run_for(5_000)
    assert EVENTS_TOPIC in wired.broker.metadata.image.topics_by_name


def test_only_validated_quotas_are_not_kept() -> None:
    wired = WiredBroker()
    request = AlterClientQuotasRequest(
        entries=[
            AlterClientQuotasRequest.EntryData(
                entity=[AlterClientQuotasRequest.EntityData(entity_type="user", entity_name="a")],
                ops=[AlterClientQuotasRequest.OpData(key="producer_byte_rate", value=1.0)],
            )
        ],
        validate_only=True,
    )
    answer = wired.connect().call(request, 1, AlterClientQuotasResponse)
    assert [row.error_code for row in answer.entries] == [0]
    assert not wired.broker.metadata.image.security.quotas
