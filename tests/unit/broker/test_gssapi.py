"""GSSAPI as a server and as a client, with a Kerberos in memory: the exchange, its refusals, and the settings."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import pytest
from tests.support.log_in import SECURED, call_authenticate, call_handshake
from tests.support.memory_kerberos import REALM, MemoryContext, MemoryKerberos
from tests.support.wired import PROPERTIES, WiredBroker, WiredClient

from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ConfigError
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.protocol.sasl.gssapi import GssapiServer, gssapi_exchange
from barnabas.protocol.sasl.logins import Login, Ticket, exchange
from barnabas.protocol.sasl.mechanism import LogInRefused
from barnabas.simulation.host import MemoryHost

JAAS = "listener.name.plaintext.gssapi.sasl.jaas.config"
SERVICE = f"kafka/localhost@{REALM}"
ENTRY = (
    "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
    f'keyTab="/keys" principal="{SERVICE}";'
)
SETTINGS = {
    **SECURED,
    "sasl.enabled.mechanisms": "PLAIN,GSSAPI",
    "sasl.kerberos.service.name": "kafka",
    JAAS: ENTRY,
}
REFUSED = "Authentication failed during authentication due to invalid credentials with SASL mechanism GSSAPI"
OFFER = b"\x01\x01\x00\x00"


def kerberos_broker(changes: dict[str, str] | None = None, kerberos: MemoryKerberos | None = None) -> WiredBroker:
    host = MemoryHost(seed=1)
    host.kerberos = kerberos or MemoryKerberos()
    return WiredBroker(host, **SETTINGS | (changes or {}))


def proven(data: bytes) -> bytes:
    return hashlib.sha256(data).digest() + data


def first_token(principal: str = f"alice@{REALM}", service: str = SERVICE) -> bytes:
    return MemoryContext(principal, service).step(b"")


def log_in(client: WiredClient, principal: str = f"alice@{REALM}", *, is_mutual: bool = True) -> int:
    """Logs in as our own client does. Returns the error code."""
    context = MemoryContext(principal, SERVICE, is_mutual=is_mutual)
    login = Login("GSSAPI", principal, "", ticket=Ticket(context, context.step(b"")))
    assert call_handshake(client, "GSSAPI").error_code == 0
    messages = exchange(login, "")
    answer = call_authenticate(client, next(messages))
    while not answer.error_code:
        try:
            answer = call_authenticate(client, messages.send(bytes(answer.auth_bytes)))
        except StopIteration:
            return 0
    assert answer.error_message == REFUSED
    return answer.error_code


@pytest.mark.parametrize("is_mutual", [True, False])
def test_a_client_logs_in(is_mutual: bool) -> None:
    wired = kerberos_broker(kerberos=MemoryKerberos(is_mutual=is_mutual))
    client = wired.connect()
    assert call_handshake(wired.connect(), "GSSAPI").mechanisms == ["PLAIN", "GSSAPI"]
    assert log_in(client, is_mutual=is_mutual) == 0
    assert client.core.principal == "User:alice"
    assert client.call(MetadataRequest(topics=[]), 9, MetadataResponse).brokers


@pytest.mark.parametrize(
    ("rules", "principal", "user"),
    [
        ("DEFAULT", f"alice/admin@{REALM}", "User:alice"),
        ("DEFAULT", "alice@ELSEWHERE", None),
        ("RULE:[1:$1-of-$0]/L,DEFAULT", "Alice@ELSEWHERE", "User:alice-of-elsewhere"),
        ("RULE:[1:$1@$0]", f"alice@{REALM}", None),
        ("DEFAULT", "a@b@c", None),
    ],
)
def test_the_user_follows_from_the_principal_by_the_rules(rules: str, principal: str, user: str | None) -> None:
    wired = kerberos_broker({"sasl.kerberos.principal.to.local.rules": rules})
    client = wired.connect()
    assert (log_in(client, principal) == 0) == (user is not None)
    if user is not None:
        assert client.core.principal == user


@pytest.mark.parametrize(
    "messages",
    [
        [b""],
        [b"\x00" * 100],
        [first_token(service=f"other/localhost@{REALM}")],
        [first_token(), b"not empty"],
        [first_token(), b"", b"x" * 40],
        [first_token(), b"", proven(b"\x01\x00\x00")],
        [first_token(), b"", proven(b"\x02\x00\x00\x00")],
        [first_token(), b"", proven(b"\x04\x00\x00\x00")],
        [first_token(), b"", proven(b"\x03\x00\x00\x00")],
        [first_token(), b"", proven(b"")],
    ],
)
def test_an_exchange_that_is_wrong_is_refused(messages: list[bytes]) -> None:
    wired = kerberos_broker()
    client = wired.connect()
    call_handshake(client, "GSSAPI")
    for message in messages[:-1]:
        assert call_authenticate(client, message).error_code == 0
    refused = call_authenticate(client, messages[-1])
    assert (refused.error_code, refused.error_message) == (58, REFUSED)


def test_the_offer_has_no_layer_and_the_identity_is_that_of_the_context() -> None:
    told: list[str] = []
    server = GssapiServer(MemoryContext(target=SERVICE), lambda principal: principal, told.append)
    assert server.evaluate(first_token()).reply == b"second:"
    assert server.evaluate(b"").reply == proven(OFFER)
    step = server.evaluate(proven(b"\x01\x00\x00\x00root"))
    assert step.outcome is not None
    assert (step.reply, step.outcome.name) == (b"", f"alice@{REALM}")
    with pytest.raises(LogInRefused):
        server.evaluate(b"")
    assert told == []


def test_the_cause_of_a_failure_is_in_the_log_only() -> None:
    told: list[str] = []
    server = GssapiServer(MemoryContext(target=SERVICE), lambda principal: principal, told.append)
    with pytest.raises(LogInRefused) as refused:
        server.evaluate(b"nonsense")
    assert refused.value.text is None
    assert told == [f"Invalid token was supplied for {SERVICE}"]
    with pytest.raises(LogInRefused):
        server.evaluate(first_token())


@pytest.mark.parametrize("offer", [b"\x02\x00\x00\x00", b"\x01\x00\x00", b"\x01\x00\x00\x00\x00", b""])
def test_a_client_takes_no_offer_with_a_layer(offer: bytes) -> None:
    context = MemoryContext("alice", SERVICE)
    messages = gssapi_exchange(context, context.step(b""), "alice")
    assert next(messages) == b"first:alice>" + SERVICE.encode()
    assert messages.send(b"second:") == b""
    with pytest.raises(ValueError, match="security layer"):
        messages.send(proven(offer))


@pytest.mark.parametrize("change", [lambda: b"third:", lambda: b""])
def test_a_client_wants_the_proof_of_the_service(change: Callable[[], bytes]) -> None:
    context = MemoryContext("alice", SERVICE)
    messages = gssapi_exchange(context, context.step(b""), "alice")
    next(messages)
    with pytest.raises(ValueError, match="does not prove"):
        messages.send(change())


def _with(option: str) -> str:
    return ENTRY.replace(";", f" {option};")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({JAAS: None}, f"{JAAS} must be set"),
        ({JAAS: ENTRY.replace("principal", "x")}, "needs principal="),
        ({JAAS: ENTRY.replace("useKeyTab=true", "useKeyTab=false")}, "no effect without useKeyTab=true"),
        ({JAAS: ENTRY.replace("useKeyTab=true", "").replace("keyTab", "x")}, "needs useKeyTab=true"),
        ({"sasl.kerberos.service.name": None}, "one of them is needed"),
        ({JAAS: _with('serviceName="other"')}, "they must agree"),
        ({JAAS: "org.apache.kafka.common.security.plain.PlainLoginModule required;"}, "it must name Krb5LoginModule"),
        ({"sasl.kerberos.principal.to.local.rules": "NONSENSE"}, "Invalid rule"),
        ({"sasl.mechanism.inter.broker.protocol": "GSSAPI", JAAS: None}, f"{JAAS} must be set"),
    ],
)
def test_a_node_does_not_start_with_keys_that_cannot_work(changes: dict[str, str | None], text: str) -> None:
    chosen = {**PROPERTIES, **SETTINGS, **changes}
    with pytest.raises(ConfigError, match=text) as refused:
        BrokerConfig.from_properties({key: value for key, value in chosen.items() if value is not None})
    assert "\n" not in str(refused.value)


def test_the_service_name_can_be_in_the_entry() -> None:
    chosen = {**PROPERTIES, **SETTINGS, JAAS: _with('serviceName="kafka"')}
    BrokerConfig.from_properties(chosen)
    del chosen["sasl.kerberos.service.name"]
    BrokerConfig.from_properties(chosen)


def test_without_library_or_keys_the_listener_does_not_open() -> None:
    with pytest.raises(ConfigError, match="listener PLAINTEXT offers GSSAPI: this machine has no Kerberos"):
        WiredBroker(MemoryHost(seed=1), **SETTINGS).connect()
    with pytest.raises(ConfigError, match=rf"{JAAS}: Key table file '/missing' not found"):
        kerberos_broker({JAAS: ENTRY.replace("/keys", "/missing")}).connect()
