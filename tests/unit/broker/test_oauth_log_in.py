"""A listener with OAUTHBEARER: its key set, what clients are told, and sessions that end with their tokens."""

from __future__ import annotations

from typing import Any, Final

import pytest
from tests.support.log_in import SECURED, call_authenticate, call_handshake
from tests.support.tokens import NOW_S, claims, first_message, key, key_set, public, signed, unsecured
from tests.support.wired import WiredBroker, WiredClient

from barnabas.broker.requests.dispatch import Dispatcher
from barnabas.broker.requests.oauth_log_in import LOOK_UP_INTERVAL_MS
from barnabas.common.errors import ConfigError
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas.simulation.host import MemoryHost

URL: Final = "https://issuer.test/keys"
FILE: Final = "file:///keys/keys.json"
MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
PREFIX: Final = "listener.name.plaintext.oauthbearer."
INVALID: Final = '{"status":"invalid_token"}'


def properties(**more: str) -> dict[str, str]:
    return {
        **SECURED,
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        PREFIX + "sasl.jaas.config": f"{MODULE};",
        "sasl.oauthbearer.jwks.endpoint.url": URL,
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.expected.issuer": "https://issuer.test",
        "barnabas.sasl.oauthbearer.allowed.urls": f"{URL},{FILE}",
        **more,
    }


class Listener:
    """A broker whose clients share a listener."""

    def __init__(self, document: bytes | OSError | None = None, /, **more: str) -> None:
        host = MemoryHost(seed=1)
        host.web.documents[URL] = key_set(public(key("ES256"))) if document is None else document
        self.wired = WiredBroker(host, **properties(**more))
        self.host = self.wired.host
        self.dispatcher: Dispatcher = self.wired.broker.dispatcher("PLAINTEXT")
        self.run_for(10)

    def run_for(self, duration_ms: int) -> None:
        self.host.time.run_for(duration_ms)

    @property
    def fetches(self) -> int:
        return len([each for each in self.host.web.requests if each.url == URL])

    def connect(self) -> WiredClient:
        client = WiredClient(self.wired, dispatcher=self.dispatcher)
        assert call_handshake(client, "OAUTHBEARER").error_code == 0
        return client

    def log_in(self, token: str) -> tuple[WiredClient, SaslAuthenticateResponse]:
        client = self.connect()
        return client, call_authenticate(client, first_message(token))

    def is_undecided(self, token: str) -> bool:
        """Returns whether a log-in is closed without an answer."""
        client = self.connect()
        client.send(SaslAuthenticateRequest(auth_bytes=first_message(token)), 2)
        assert not self.wired.closes.errors
        return client.core.is_closed and not client.received()

    def is_refused(self, token: str) -> bool:
        """Returns whether a log-in is answered with the status, and then fails with it."""
        client, first = self.log_in(token)
        if (first.error_code, first.auth_bytes) != (0, INVALID.encode()):
            return False
        client.send(SaslAuthenticateRequest(auth_bytes=b"\x01"), 2)
        self.run_for(200)
        ((_, last),) = client.received()
        assert isinstance(last, SaslAuthenticateResponse)
        return (last.error_code, last.error_message) == (58, INVALID) and client.core.is_closed


def test_a_client_logs_in_with_a_token_and_its_session_ends_with_it() -> None:
    listener = Listener()
    client, answer = listener.log_in(signed(claims()))
    wall_ms = listener.host.clock.wall_ms()
    assert (answer.error_code, answer.error_message, answer.auth_bytes) == (0, "", b"")
    assert answer.session_lifetime_ms == (NOW_S + 600) * 1_000 - wall_ms
    assert client.core.principal == "User:alice"
    assert client.call(MetadataRequest(topics=[]), 12, MetadataResponse).brokers
    listener.run_for(answer.session_lifetime_ms + 1)
    client.send(MetadataRequest(topics=[]), 12)
    assert client.core.is_closed
    assert "its session has ended" in listener.wired.closes.causes[-1]


def test_the_session_is_the_shorter_of_the_tokens_and_the_listeners() -> None:
    listener = Listener(connections_max_reauth_ms="60000")
    assert listener.log_in(signed(claims()))[1].session_lifetime_ms == 60_000
    _, answer = listener.log_in(signed(claims(exp=NOW_S + 20)))
    assert answer.session_lifetime_ms == (NOW_S + 20) * 1_000 - listener.host.clock.wall_ms()
    _, answer = listener.log_in(signed(claims(exp=10**40)))
    assert answer.session_lifetime_ms == 60_000
    assert Listener().log_in(signed(claims(exp=10**40)))[1].session_lifetime_ms == (1 << 63) - 1


def test_a_session_is_renewed_with_the_next_token_of_the_same_user() -> None:
    listener = Listener()
    client, _ = listener.log_in(signed(claims(exp=NOW_S + 20)))
    listener.run_for(15_000)
    assert call_handshake(client, "OAUTHBEARER").error_code == 0
    assert call_authenticate(client, first_message(signed(claims(exp=NOW_S + 100)))).error_code == 0
    listener.run_for(10_000)
    assert client.call(MetadataRequest(topics=[]), 12, MetadataResponse).brokers
    assert call_handshake(client, "OAUTHBEARER").error_code == 0
    client.send(SaslAuthenticateRequest(auth_bytes=first_message(signed(claims(sub="bob")))), 2)
    listener.run_for(200)
    ((_, last),) = client.received()
    assert isinstance(last, SaslAuthenticateResponse)
    assert last.error_message == "Cannot change principals during re-authentication from User.alice: User.bob"
    assert client.core.is_closed


def test_a_refusal_sends_the_client_a_status_and_logs_the_cause() -> None:
    listener = Listener()
    token = signed(claims(iss="other"))
    assert listener.is_refused(token)
    (cause,) = listener.wired.closes.causes
    assert cause == "failed authentication (the token is refused: its issuer (iss) is not the expected one)"
    assert token not in cause


def test_before_the_key_set_is_known_a_client_is_sent_away_without_a_verdict() -> None:
    """A client takes a refusal for final, and a closed connection for a failure of the network."""
    listener = Listener(ConnectionRefusedError("nobody listens there"))
    assert listener.is_undecided(signed(claims()))
    assert listener.host.faults.warned == [
        f"the key set of listener PLAINTEXT of {URL} cannot be fetched: nobody listens there"
    ]
    listener.host.web.documents[URL] = key_set(public(key("ES256")))
    listener.run_for(500)
    assert listener.log_in(signed(claims()))[1].error_code == 0
    assert listener.host.faults.informed[-1] == f"the key set of listener PLAINTEXT of {URL} is available again"


@pytest.mark.parametrize(
    "document",
    [b"", b"<html>", b'{"keys":[]}', b'{"keys":[{"kty":"oct","k":"c2VjcmV0"}]}', b"\xff" * 1_000, b"[" * 200_000],
)
def test_a_key_set_that_is_wrong_leaves_the_last_good_one_in_use(document: bytes) -> None:
    listener = Listener(**{"sasl.oauthbearer.jwks.endpoint.refresh.ms": "60000"})
    listener.host.web.documents[URL] = document
    listener.run_for(60_000)
    assert listener.log_in(signed(claims()))[1].error_code == 0
    assert len(listener.host.faults.warned) == 1


def test_a_server_that_is_gone_is_asked_ever_more_rarely_and_reported_once_an_hour() -> None:
    listener = Listener(**{"sasl.oauthbearer.jwks.endpoint.refresh.ms": "60000"})
    assert listener.fetches == 1
    listener.host.web.documents[URL] = ConnectionResetError("reset")
    listener.run_for(60_000)
    assert listener.fetches == 2
    listener.run_for(60_000)
    assert 10 <= listener.fetches <= 20, "100 ms, doubled up to 10 s"
    listener.run_for(3_540_000)
    assert len(listener.host.faults.warned) == 1
    listener.run_for(120_000)
    assert len(listener.host.faults.warned) == 2
    assert listener.log_in(signed(claims(exp=NOW_S + 10_000)))[1].error_code == 0, "others are served"


def test_a_slow_server_holds_up_nobody() -> None:
    listener = Listener(**{"sasl.oauthbearer.jwks.endpoint.refresh.ms": "60000"})
    listener.host.web.delays_ms[URL] = 1_000_000
    listener.run_for(60_000)
    assert listener.fetches == 2
    assert listener.log_in(signed(claims()))[1].error_code == 0
    listener.run_for(11_000)
    assert "no answer in time" in listener.host.faults.warned[0]


def test_an_unknown_key_is_looked_up_soon_but_not_at_the_will_of_strangers() -> None:
    listener = Listener()
    listener.run_for(LOOK_UP_INTERVAL_MS)
    two = key("ES256", "two")
    listener.host.web.documents[URL] = key_set(public(key("ES256")), public(two))
    token = signed(claims(), private=two)
    assert listener.is_undecided(token), "the set that is there does not have it"
    assert listener.is_undecided(token), "it is being fetched"
    listener.run_for(10)
    assert listener.log_in(token)[1].error_code == 0
    assert listener.fetches == 2
    began_ms = listener.host.clock.now_ms()
    for number in range(200):
        client = listener.connect()
        stranger = signed(claims(), kid=f"unknown-{number}")
        client.send(SaslAuthenticateRequest(auth_bytes=first_message(stranger)), 2)
        listener.run_for(100)
        assert client.core.principal == "User:ANONYMOUS"
    assert listener.fetches - 2 <= (listener.host.clock.now_ms() - began_ms) / LOOK_UP_INTERVAL_MS
    assert listener.log_in(token)[1].error_code == 0


def test_a_fetch_that_is_under_way_is_waited_for() -> None:
    listener = Listener(**{"sasl.oauthbearer.jwks.endpoint.refresh.ms": "1000"})
    two = key("ES256", "two")
    listener.host.web.documents[URL] = key_set(public(two))
    listener.host.web.delays_ms[URL] = 500
    listener.run_for(1_200)
    token = signed(claims(), private=two)
    assert listener.is_undecided(token), "the set that is there is new, but a newer one is on its way"
    listener.run_for(500)
    assert listener.log_in(token)[1].error_code == 0


def test_a_listener_that_offers_tokens_no_more_fetches_no_more() -> None:
    listener = Listener()
    listener.host.web.delays_ms[URL] = 500
    listener.run_for(LOOK_UP_INTERVAL_MS)
    assert listener.is_undecided(signed(claims(), private=key("ES256", "two")))
    before = len(listener.host.web.requests)
    listener.host.web.documents[URL] = ConnectionResetError("reset")
    config = listener.wired.broker.config
    assert not config.update_dynamic({"listener.name.plaintext.sasl.enabled.mechanisms": "PLAIN"}, {})
    listener.run_for(2 * 3_600_000)
    # The dispatcher of each client has a key set of its own in these tests, and none is left.
    assert len(listener.host.web.requests) == before
    assert not listener.host.faults.warned, "the last fetch concerns nobody"
    client = WiredClient(listener.wired, dispatcher=listener.dispatcher)
    assert call_handshake(client, "OAUTHBEARER").error_code == 33


def test_a_listener_that_was_removed_fetches_no_more() -> None:
    """The log-in lived on, with its key set, and one more each time that the listener was added again."""
    listener = Listener(
        **{
            "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093,EXTRA://localhost:9094",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:SASL_PLAINTEXT,EXTRA:SASL_PLAINTEXT",
            "listener.name.plaintext.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.extra.sasl.enabled.mechanisms": "OAUTHBEARER",
        }
    )
    broker = listener.wired.broker
    broker.dispatcher("EXTRA")
    listener.run_for(1_000)
    before = listener.fetches
    assert before == 1
    broker.remove_listener("EXTRA")
    assert not broker.config.update_dynamic({"listener.name.extra.sasl.enabled.mechanisms": "SCRAM-SHA-256"}, {})
    assert not broker.config.update_dynamic({}, {})
    listener.run_for(3 * 3_600_000)
    assert listener.fetches == before


def test_an_unknown_key_does_not_hasten_the_fetches_of_a_set_that_is_gone() -> None:
    listener = Listener()
    listener.run_for(LOOK_UP_INTERVAL_MS)
    listener.host.web.documents[URL] = ConnectionRefusedError("nobody listens there")
    token = signed(claims(), private=key("ES256", "two"))
    for _ in range(100):
        assert listener.is_undecided(token)
        listener.run_for(10)
    assert listener.fetches <= 7


def test_the_key_set_can_be_a_file() -> None:
    host = MemoryHost(seed=1)
    host.disk.make_dirs("/keys")
    host.disk.write("/keys/keys.json", key_set(public(key("ES256"))))
    url = {"sasl.oauthbearer.jwks.endpoint.url": FILE, "sasl.oauthbearer.jwks.endpoint.refresh.ms": "60000"}
    wired = WiredBroker(host, **properties(**url))
    dispatcher = wired.broker.dispatcher("PLAINTEXT")

    def log_in(token: str) -> int:
        client = WiredClient(wired, dispatcher=dispatcher)
        call_handshake(client, "OAUTHBEARER")
        return call_authenticate(client, first_message(token)).session_lifetime_ms

    assert log_in(signed(claims())) > 0
    two = key("ES256", "two")
    host.disk.write("/keys/keys.json", key_set(public(two)))
    host.time.run_for(60_010)
    assert log_in(signed(claims(), private=two)) > 0
    assert not host.web.requests


@pytest.mark.parametrize(
    ("content", "cause"),
    [(None, "No such file"), (b"{}", 'it has no list "keys"'), (bytes(300_000), "more than 262144 bytes")],
)
def test_a_listener_does_not_start_with_a_file_that_is_no_key_set(content: bytes | None, cause: str) -> None:
    host = MemoryHost(seed=1)
    host.disk.make_dirs("/keys")
    if content is not None:
        host.disk.write("/keys/keys.json", content)
    wired = WiredBroker(host, **properties(**{"sasl.oauthbearer.jwks.endpoint.url": FILE}))
    with pytest.raises(ConfigError) as refused:
        wired.broker.dispatcher("PLAINTEXT")
    assert str(refused.value).startswith(f"sasl.oauthbearer.jwks.endpoint.url: {FILE} cannot be used: ")
    assert cause in str(refused.value)


def test_a_listener_does_not_start_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Any:
        raise ImportError("joserfc")

    monkeypatch.setattr("barnabas.broker.requests.oauth_log_in.load_jose", fail)
    wired = WiredBroker(MemoryHost(seed=1), **properties())
    with pytest.raises(ConfigError, match=r"needs the package joserfc: pip install 'barnabas\[oauth\]'"):
        wired.broker.dispatcher("PLAINTEXT")


def test_unsecured_tokens_are_accepted_only_where_the_entry_asks_for_them_with_a_warning_at_each_start() -> None:
    """Guard S5."""
    entry = {PREFIX + "sasl.jaas.config": f'{MODULE} unsecuredValidatorRequiredScope="LOGIN";'}
    listener = Listener(**entry, **{"sasl.oauthbearer.jwks.endpoint.url": ""})
    assert listener.host.faults.warned == [
        "listener PLAINTEXT accepts unsecured OAUTHBEARER tokens, because its JAAS entry allows them: anyone who can "
        "connect can act as any user"
    ]
    client, answer = listener.log_in(unsecured(sub="eve", scope=["LOGIN"]))
    assert (answer.error_code, client.core.principal) == (0, "User:eve")
    _, answer = listener.log_in(unsecured())
    assert answer.auth_bytes == b'{"status":"insufficient_scope", "scope":"[LOGIN]"}'
    assert listener.is_refused(signed(claims()))
    secured = Listener()
    assert not secured.host.faults.warned
    assert secured.is_refused(unsecured())
