"""A listener with SASL: what is answered, when, and what is not served."""

from __future__ import annotations

import functools
import logging

import pytest
from tests.support.core_speed import measured_ms
from tests.support.log_in import (
    PASSWORD,
    SECURED,
    authenticate,
    call_authenticate,
    call_handshake,
    handshake,
    handshake_frames,
    log_in,
    plain,
    secured_broker,
    sized,
)
from tests.support.metrics import scraped
from tests.support.wired import PROPERTIES, WiredBroker, WiredClient
from tests.support.wired_requests import batch_of, fetch_request, produce

from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ConfigError
from barnabas.protocol.client_session import ClientSession
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from barnabas.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.protocol.sasl.logins import Login

JAAS = "listener.name.plaintext.plain.sasl.jaas.config"


def _metadata(client: WiredClient) -> MetadataResponse:
    return client.call(MetadataRequest(topics=[]), 12, MetadataResponse)


def test_a_client_logs_in_with_plain() -> None:
    wired = secured_broker()
    client = wired.connect()
    client.call(ApiVersionsRequest(client_software_name="test", client_software_version="1"), 3, ApiVersionsResponse)
    answer = log_in(client)
    assert (answer.error_code, answer.error_message, answer.auth_bytes, answer.session_lifetime_ms) == (0, "", b"", 0)
    assert client.core.principal == "User:alice"
    assert client.core.gate is None, "an unlimited session costs later requests nothing"
    assert client.core.client_software == ("test", "1")
    assert _metadata(client).brokers


def test_our_own_client_logs_in() -> None:
    client = secured_broker().connect()
    session = ClientSession("test", "client", Login("PLAIN", "bob", "bob-marker-Secret"), "a-nonce")
    assert len(list(handshake_frames(session, client))) == 3
    assert client.core.principal == "User:bob"


def test_the_messages_of_version_0_are_bare_frames() -> None:
    client = secured_broker().connect()
    assert call_handshake(client, "PLAIN", 0).mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
    client.send_raw(sized(plain()))
    assert client.link.take() == bytes(4)
    assert _metadata(client).brokers


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (plain("alice", "wrong"), "Authentication failed: Invalid username or password"),
        (plain("nobody", PASSWORD), "Authentication failed: Invalid username or password"),
        (plain("", "x"), "Authentication failed: username not specified"),
        (plain("alice", ""), "Authentication failed: password not specified"),
        (
            b"bob" + plain(),
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
        (
            b"alice",
            "Authentication failed during authentication due to invalid credentials with SASL mechanism PLAIN",
        ),
        (
            b"\0\0\0\0",
            "Authentication failed during authentication due to invalid credentials with SASL mechanism PLAIN",
        ),
        (
            b"\xff\xfe",
            "Authentication failed during authentication due to invalid credentials with SASL mechanism PLAIN",
        ),
    ],
)
def test_a_failure_is_answered_after_a_delay_and_closes(message: bytes, text: str) -> None:
    wired = secured_broker()
    client = wired.connect()
    assert call_handshake(client, "PLAIN").error_code == 0
    client.send(SaslAuthenticateRequest(auth_bytes=message), 2)
    client.send(MetadataRequest(topics=[]), 12)
    wired.host.time.run_for(90)
    assert not client.received()
    assert not client.core.is_closed
    wired.host.time.run_for(20)
    ((_, answer),) = client.received()
    assert (answer.error_code, answer.error_message) == (58, text)  # type: ignore[attr-defined]
    assert client.core.is_closed
    assert client.link.is_closed
    assert wired.closes.causes == [f"failed authentication ({text})"]
    assert not wired.closes.errors


def test_a_mechanism_that_is_not_offered_is_refused_with_the_list() -> None:
    wired = secured_broker(sasl_enabled_mechanisms="PLAIN,SCRAM-SHA-512")
    client = wired.connect()
    answer = call_handshake(client, "SCRAM-SHA-256")
    assert (answer.error_code, answer.mechanisms) == (33, ["PLAIN", "SCRAM-SHA-512"])
    assert client.core.is_closed


@pytest.mark.parametrize(
    "frames",
    [
        [b"\x00\x03\x00\x0c" + bytes(20)],
        [handshake(), b"\x00\x03\x00\x0c" + bytes(20)],
        [authenticate(plain())],
        [handshake(), handshake()],
        [handshake(), authenticate(plain(), 2)[:20]],
        [b"\x16\x03\x01\x02\x00\x01"],
        [b""],
    ],
)
def test_what_does_not_fit_closes_the_connection_and_nothing_is_served(frames: list[bytes]) -> None:
    """Guard S12."""
    wired = secured_broker()
    client = wired.connect()
    client.send_raw(sized(*frames))
    assert client.core.is_closed
    assert client.core.principal == "User:ANONYMOUS"
    assert len(wired.closes.causes) == 1
    sent = client.link.take()
    assert len(sent) in (0, 4 + 4 + 2 + 4 + 7 + 2 * 15), "nothing, or the response to the handshake"


def test_frames_before_the_log_in_are_small() -> None:
    """Guard S2: CVE-2022-34917: a peer that has not logged in could make a broker hold much memory."""
    wired = secured_broker()
    client = wired.connect()
    client.send_raw((524_289).to_bytes(4, "big") + b"\0\x11")
    assert wired.closes.causes == ["frame of 524289 bytes; at most 524288 are accepted"]
    small = secured_broker(sasl_server_max_receive_size="100")
    client = small.connect()
    assert log_in(client).error_code == 0
    assert client.call(
        MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t" * 200)]), 8, MetadataResponse
    )
    limited = small.connect()
    limited.send_raw(sized(bytes(101)))
    assert limited.core.is_closed


def _many(count: int) -> bytes:
    """Returns this number as a compact number, and as many empty tagged fields."""
    return _compact(count) + b"".join(_compact(tag + 5) + b"\0" for tag in range(count))


def _compact(number: int) -> bytes:
    return bytes([number & 0x7F | 0x80]) + _compact(number >> 7) if number > 0x7F else bytes([number])


@pytest.mark.parametrize("count", [65, 100_000])
def test_frames_before_the_log_in_have_few_fields(count: int) -> None:
    """Guard S2: 384 kB can be 100,000 tagged fields, and an array can announce two thousand million elements."""
    wired = secured_broker()
    versions = bytes.fromhex("0012000300000001ffff")
    authenticate = bytes.fromhex("0024000200000001ffff")
    named = b"\2a\x021"
    message = _compact(len(plain()) + 1) + plain()
    for frames in (
        [versions + _many(count) + named + b"\0"],
        [versions + b"\0" + named + _many(count)],
        [handshake(), authenticate + _many(count) + message + b"\0"],
        [handshake(), authenticate + b"\0" + message + _many(count)],
        [handshake(), authenticate + b"\0" + b"\xff\xff\xff\xff\x0f"],
        [bytes.fromhex("0011000100000001ffff7fff") + b"x" * 100],
    ):
        client = wired.connect()
        taken_ms = measured_ms(functools.partial(client.send_raw, sized(*frames)))
        assert client.core.is_closed
        assert client.core.principal == "User:ANONYMOUS"
        assert taken_ms < 50
    assert len(wired.closes.causes) == 6
    assert wired.closes.errors == []


def test_a_listener_without_a_log_in_answers_illegal_sasl_state() -> None:
    client = WiredBroker().connect()
    assert client.core.gate is None
    assert call_handshake(client, "PLAIN").error_code == 34
    answer = call_authenticate(client, plain())
    assert answer.error_code == 34
    assert answer.error_message == "SaslAuthenticate request received after successful authentication"
    assert _metadata(client).brokers


def test_an_open_listener_answers_a_second_handshake_with_illegal_sasl_state() -> None:
    client = secured_broker().connect()
    log_in(client)
    assert call_handshake(client, "PLAIN").error_code == 34
    assert _metadata(client).brokers


def test_sessions_end_and_are_renewed() -> None:
    wired = secured_broker(connections_max_reauth_ms="4000")
    client, other = wired.connect(), wired.connect()
    assert log_in(client).session_lifetime_ms == 4_000
    log_in(other)
    wired.host.time.run_for(3_000)
    assert log_in(client).session_lifetime_ms == 4_000
    wired.host.time.run_for(2_000)
    assert _metadata(client).brokers
    other.send(MetadataRequest(topics=[]), 12)
    assert other.core.is_closed
    counts = dict(wired.broker.services.log_in_counts)["PLAINTEXT"]
    assert (counts.successes.total, counts.renewals.total, counts.expired, counts.failures.total) == (2, 1, 1, 0)


def test_metrics_count_authentications() -> None:
    wired = secured_broker()
    log_in(wired.connect())
    log_in(wired.connect(), password="guess")
    prefix = "kafka_server_socket_server_metrics_"
    found = {line for line in scraped(wired.broker).splitlines() if line.startswith(prefix)}
    label = '{listener="PLAINTEXT"}'
    assert {
        f"{prefix}successful_authentication_total{label} 1",
        f"{prefix}failed_authentication_total{label} 1",
        f"{prefix}expired_connections_killed_count{label} 0",
    } <= found


def test_metrics_have_kafkas_rates_and_latencies() -> None:
    wired = secured_broker(connections_max_reauth_ms="20000")
    prefix = "kafka_server_socket_server_metrics_"

    def value(name: str) -> str:
        (found,) = [line for line in scraped(wired.broker).splitlines() if line.startswith(f"{prefix}{name}{{")]
        return found.rpartition(" ")[2]

    client, old = wired.connect(), wired.connect()
    assert value("reauthentication_latency_avg") == "NaN", "as in Kafka"
    log_in(client)
    call_handshake(old, "PLAIN")
    call_authenticate(old, plain(), 0)
    assert value("successful_authentication_no_reauth_total") == "1"
    assert float(value("successful_authentication_rate")) == pytest.approx(2 / 30, rel=0.01)
    wired.host.time.run_for(5_000)
    call_handshake(client, "PLAIN")
    wired.host.time.run_for(30)
    call_authenticate(client, plain())
    assert (value("reauthentication_latency_avg"), value("reauthentication_latency_max")) == ("30.0", "30")
    assert float(value("successful_reauthentication_rate")) == pytest.approx(1 / 30, rel=0.01)
    wired.host.time.run_for(60_000)
    assert float(value("successful_authentication_rate")) == 0
    assert value("successful_reauthentication_total") == "1"
    assert value("reauthentication_latency_max") == "NaN"


def test_sessions_of_a_listener_and_mechanism() -> None:
    wired = secured_broker(**{"listener.name.plaintext.plain.connections.max.reauth.ms": "7000"})
    assert log_in(wired.connect()).session_lifetime_ms == 7_000


def test_another_user_cannot_take_over_a_session() -> None:
    """Guard S13."""
    wired = secured_broker(connections_max_reauth_ms="4000")
    client = wired.connect()
    log_in(client)
    answer = log_in(client, "bob", "bob-marker-Secret")
    assert answer.error_message == "Cannot change principals during re-authentication from User.alice: User.bob"
    assert client.core.is_closed
    assert dict(wired.broker.services.log_in_counts)["PLAINTEXT"].renewal_failures.total == 1


def test_users_change_while_the_broker_runs() -> None:
    wired = secured_broker()
    config = wired.broker.config
    config.update_dynamic({JAAS: SECURED[JAAS].replace(PASSWORD, "new-Secret")}, {})
    assert log_in(wired.connect(), password="new-Secret").error_code == 0
    assert log_in(wired.connect()).error_code == 58
    with pytest.raises(ConfigError, match="does not end with"):
        config.with_dynamic({JAAS: "rubbish"}, {})


def _alter_users(client: WiredClient, entry: str) -> tuple[int, str | None]:
    config = IncrementalAlterConfigsRequest.AlterableConfig(name=JAAS, value=entry)
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=4, resource_name="1", configs=[config])
    request = IncrementalAlterConfigsRequest(resources=[resource])
    (row,) = client.call(request, 1, IncrementalAlterConfigsResponse).responses
    return row.error_code, row.error_message


def test_users_are_changed_by_a_request_that_nothing_repeats() -> None:
    """S8: an entry is refused without its content, and is not shown once it is set."""
    wired = secured_broker()
    admin = wired.connect()
    log_in(admin)
    code, text = _alter_users(admin, 'org.Evil required password="marker-Secret";')
    assert code == 42
    assert text is not None
    assert "its login module is not one of" in text
    assert "marker" not in text
    assert _alter_users(admin, SECURED[JAAS].replace(PASSWORD, "new-marker-Secret")) == (0, None)
    assert log_in(wired.connect(), password="new-marker-Secret").error_code == 0
    assert log_in(wired.connect()).error_code == 58
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsRequest.DescribeConfigsResource(resource_type=4, resource_name="1")],
        include_synonyms=True,
    )
    described = admin.call(request, 4, DescribeConfigsResponse)
    entries = [each for each in described.results[0].configs if each.name == JAAS]
    assert [(each.is_sensitive, each.value) for each in entries] == [(True, None)]
    assert "marker" not in str(described)


def test_no_password_is_shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    wired = secured_broker()
    client = wired.connect()
    log_in(client, password="wrong-marker-Secret")
    log_in(wired.connect())
    shown = " ".join([*wired.closes.causes, *wired.closes.failures, *caplog.messages])
    shown += repr(wired.broker.config) + repr(client.core) + repr(wired.broker.dispatcher("PLAINTEXT"))
    assert "marker-Secret" not in shown


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"sasl.enabled.mechanisms": "CRAM-MD5"},
            "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, GSSAPI are supported",
        ),
        ({"sasl.enabled.mechanisms": ""}, "at least one of PLAIN"),
        ({"sasl.enabled.mechanisms": "SCRAM-SHA-256"}, r"\(PLAIN\) must be included in sasl.enabled.mechanisms"),
        ({"sasl.mechanism.inter.broker.protocol": "GSSAPI"}, "sasl.mechanism.inter.broker.protocol"),
        ({"sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256"}, "scram-sha-256.sasl.jaas.config must be set"),
        ({"sasl.server.max.receive.size": "-1"}, "Invalid value -1 for configuration sasl.server.max.receive.size"),
        ({JAAS: "secret-marker;"}, "must begin with a login module"),
        (
            {JAAS: 'com.sun.security.auth.module.JndiLoginModule required x="marker";'},
            "its login module is not one of",
        ),
        (
            {JAAS: SECURED[JAAS] * 2},
            "2 login modules instead of one",
        ),
        (
            {JAAS: "org.apache.kafka.common.security.scram.ScramLoginModule required;"},
            "it must name PlainLoginModule",
        ),
        (
            {"listener.name.plaintext.plain.sasl.server.callback.handler.class": "x.Y"},
            "Java classes cannot be loaded",
        ),
    ],
)
def test_a_node_does_not_start_with_a_log_in_that_cannot_work(changes: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text) as refused:
        BrokerConfig.from_properties({**PROPERTIES, **SECURED, **changes})
    assert "marker" not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_listener_with_plain_needs_users() -> None:
    properties = {**PROPERTIES, **SECURED}
    del properties[JAAS]
    with pytest.raises(ConfigError, match=r"listener\.name\.plaintext\.plain\.sasl\.jaas\.config must be set"):
        BrokerConfig.from_properties(properties)


@pytest.mark.parametrize("key", ["sasl.jaas.config", "listener.name.plaintext.sasl.jaas.config"])
def test_an_entry_that_nothing_reads_is_warned_of(key: str) -> None:
    """A file with such an entry started without a word, and nobody had its users."""
    config = BrokerConfig.from_properties({**PROPERTIES, **SECURED, key: 'PlainLoginModule required user_a="sesame";'})
    (warning,) = config.warnings
    assert warning.startswith(f"{key} has no effect: it needs the prefix listener.name.LISTENER.MECHANISM.")
    assert BrokerConfig.from_properties({**PROPERTIES, **SECURED}).warnings == []


def test_a_node_whose_own_password_is_another_one_is_warned_of() -> None:
    entry = PROPERTIES | SECURED
    changed = entry[JAAS].replace('user_node="', 'user_node="other-')
    assert changed != entry[JAAS]
    (warning,) = BrokerConfig.from_properties({**entry, JAAS: changed}).warnings
    assert warning.startswith(f"{JAAS}: user_node is not the password with which this node logs in as node")


def _waiting_fetch(wired: WiredBroker, client: WiredClient) -> None:
    """Sends a fetch that waits at the end of a log for a minute."""
    client.send(fetch_request(wired, 0, 12, max_wait_ms=60_000), 12)
    wired.host.time.run_for(20)
    assert not client.received()


def _with_topic(wired: WiredBroker) -> WiredClient:
    client = wired.connect()
    log_in(client)
    topic = CreateTopicsRequest.CreatableTopic(name="orders", num_partitions=1, replication_factor=1)
    answer = client.call(CreateTopicsRequest(topics=[topic], timeout_ms=1_000), 7, CreateTopicsResponse)
    assert answer.topics[0].error_code == 0
    return client


def test_a_session_ends_on_time_though_a_request_waits() -> None:
    """Guard S13: the response of the waiting fetch does not prolong the session, and the next request ends it."""
    wired = secured_broker(connections_max_reauth_ms="4000")
    _with_topic(wired)
    client = wired.connect()
    log_in(client)
    _waiting_fetch(wired, client)
    wired.host.time.run_for(4_100)
    client.send(MetadataRequest(topics=[]), 12)
    assert client.core.is_closed
    assert dict(wired.broker.services.log_in_counts)["PLAINTEXT"].expired == 1


def test_a_session_is_renewed_while_a_request_waits() -> None:
    """Guard S13: the renewal behind a long poll holds from the moment at which it was sent, not of its response."""
    wired = secured_broker(connections_max_reauth_ms="4000")
    writer = _with_topic(wired)
    client = wired.connect()
    log_in(client)
    _waiting_fetch(wired, client)
    wired.host.time.run_for(2_000)
    client.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    client.send(SaslAuthenticateRequest(auth_bytes=plain()), 2)
    wired.host.time.run_for(1_000)
    assert log_in(writer).error_code == 0
    assert produce(wired, writer, batch_of(b"x"))[0] == 0
    wired.host.time.run_for(100)
    answers = [response for _, response in client.received()]
    assert [type(each).__name__ for each in answers] == [
        "FetchResponse",
        "SaslHandshakeResponse",
        "SaslAuthenticateResponse",
    ]
    assert [each.error_code for each in answers] == [0, 0, 0]  # type: ignore[attr-defined]
    wired.host.time.run_for(2_000)
    assert _metadata(client).brokers
    counts = dict(wired.broker.services.log_in_counts)["PLAINTEXT"]
    assert (counts.renewals.total, counts.renewal_failures.total, counts.expired) == (2, 0, 0)


@pytest.mark.parametrize("lifetime_ms", [(1 << 63) - 1, 1 << 62])
def test_an_absurdly_long_session_does_not_end(lifetime_ms: int) -> None:
    """Guard S13: the end of the session cannot overflow into the past."""
    wired = secured_broker(connections_max_reauth_ms=str(lifetime_ms))
    client = wired.connect()
    assert log_in(client).session_lifetime_ms == lifetime_ms
    wired.host.time.run_for(100_000)
    assert _metadata(client).brokers
