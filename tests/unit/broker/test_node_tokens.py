"""The tokens by which a node logs in to others: got from an endpoint or a file, and replaced before their end."""

from __future__ import annotations

import json
from typing import Final
from urllib.parse import parse_qs

import pytest
from tests.support.log_in import SECURED
from tests.support.tokens import NOW_S, claims, first_message, key, key_set, public, signed
from tests.support.wired import PROPERTIES, WiredBroker

from barnabas.broker.peers.node_tokens import NodeTokens, _renewal_ms
from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ConfigError
from barnabas.common.oauth_settings import Refresh
from barnabas.protocol.peer_security import LoginUnavailable, inter_broker_security
from barnabas.protocol.sasl.logins import Login
from barnabas.simulation.host import MemoryHost

KEYS: Final = "https://issuer.test/keys"
URL: Final = "https://issuer.test/token"
FILE: Final = "file:///token"
ENDPOINT: Final = "sasl.oauthbearer.token.endpoint.url"
ENTRY: Final = "listener.name.plaintext.oauthbearer.sasl.jaas.config"
MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"


def properties(**changes: str) -> dict[str, str]:
    return {
        **PROPERTIES,
        **SECURED,
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": KEYS,
        ENDPOINT: URL,
        ENTRY: f'{MODULE} clientId="node" clientSecret="node-marker" scope="a b";',
        "barnabas.sasl.oauthbearer.allowed.urls": f"{KEYS},{URL},{FILE}",
        **changes,
    }


def response(token: str) -> bytes:
    return json.dumps({"access_token": token, "token_type": "Bearer", "expires_in": 600}).encode()


class Node:
    def __init__(self, **changes: str) -> None:
        self.host = MemoryHost(seed=1)
        self.host.web.documents[URL] = response(signed(claims(sub="node")))
        self.config = BrokerConfig.from_properties(properties(**changes))
        self.tokens = NodeTokens(self.host, self.config)

    def start(self) -> None:
        self.tokens.start()
        self.host.time.run_for(10)

    def login(self) -> Login:
        login = inter_broker_security(self.config).login
        assert login is not None
        return login()


def test_the_endpoint_is_asked_with_the_credentials_of_the_node() -> None:
    node = Node()
    node.tokens.start()
    with pytest.raises(LoginUnavailable, match="no token yet"):
        node.login()
    node.host.time.run_for(10)
    (request,) = node.host.web.requests
    assert request.content is not None
    assert parse_qs(request.content.decode()) == {"grant_type": ["client_credentials"], "scope": ["a b"]}
    assert dict(request.headers)["Authorization"] == "Basic bm9kZTpub2RlLW1hcmtlcg=="
    assert "marker" not in repr(request)
    assert node.login() == Login("OAUTHBEARER", "node", signed_token(node))
    assert "eyJ" not in repr(node.login())


def signed_token(node: Node) -> str:
    found = node.host.web.documents[URL]
    assert isinstance(found, bytes)
    token = json.loads(found)["access_token"]
    assert isinstance(token, str)
    return token


def test_a_token_is_replaced_before_its_end() -> None:
    node = Node()
    node.start()
    first = node.login().password
    node.host.web.documents[URL] = response(signed(claims(sub="node", exp=NOW_S + 1_200)))
    node.host.time.run_for(290_000)
    assert node.login().password == first
    node.host.time.run_for(15_000)
    assert node.login().password == signed_token(node) != first, "300 s before its end, by the buffer"


def test_without_the_endpoint_the_token_is_used_until_its_end() -> None:
    node = Node()
    node.start()
    node.host.web.documents[URL] = ConnectionResetError("reset")
    node.host.time.run_for(599_000)
    assert node.login().username == "node"
    node.host.time.run_for(2_000)
    with pytest.raises(LoginUnavailable, match="has expired"):
        node.login()
    assert node.host.faults.warned == [f"the token for listener PLAINTEXT of {URL} cannot be fetched: reset"]
    node.host.web.documents[URL] = response(signed(claims(sub="node", exp=NOW_S + 2_000)))
    node.host.time.run_for(15_000)
    assert node.login().password == signed_token(node)


def _jump(node: Node, jump_ms: int) -> None:
    """Lets the wall clock of the node jump; its monotonic clock does not."""
    wall_ms = node.host.time.wall_ms
    node.host.time.wall_ms = lambda: wall_ms() + jump_ms  # type: ignore[method-assign]


def test_a_wall_clock_that_jumps_beyond_the_end_of_the_token_costs_one_login() -> None:
    node = Node()
    node.start()
    _jump(node, 3_600_000)
    node.host.web.documents[URL] = response(signed(claims(sub="node", exp=NOW_S + 7_200)))
    with pytest.raises(LoginUnavailable, match="has expired"):
        node.login()
    node.host.time.run_for(10)
    assert node.login().password == signed_token(node)
    assert len(node.host.web.requests) == 2


def test_a_wall_clock_ahead_of_the_issuer_asks_it_no_more_often_than_after_a_failure() -> None:
    node = Node()
    node.start()
    _jump(node, 3_600_000)
    for _ in range(1_000):
        with pytest.raises(LoginUnavailable, match="has expired"):
            node.login()
        node.host.time.run_for(100)
    assert 3 < len(node.host.web.requests) < 30, "the pauses grow to ten seconds"
    assert "the token has expired" in node.host.faults.warned[0]
    assert len(node.host.faults.warned) == 1


@pytest.mark.parametrize(
    ("document", "cause"),
    [
        (b"", "the response is not JSON"),
        (b"[]", "the response has no access_token"),
        (b'{"access_token":7}', "the response has no access_token"),
        (response(""), "the content is not a token"),
        (response("a b"), "the content is not a token"),
        (response("a.b\r\nX: y"), "the content is not a token"),
        (response("opaque"), "the token is malformed"),
        (response(signed(claims(exp=None))), "the token has no expiration time"),
        (response(signed(claims(exp=NOW_S))), "the token has expired"),
    ],
)
def test_a_response_without_a_usable_token_is_reported(document: bytes, cause: str) -> None:
    node = Node()
    node.host.web.documents[URL] = document
    node.start()
    assert cause in node.host.faults.warned[0]
    with pytest.raises(LoginUnavailable):
        node.login()


def test_the_token_of_a_file_is_read_at_start_and_again_before_its_end() -> None:
    node = Node(**{ENDPOINT: FILE})
    with pytest.raises(ConfigError, match="file:///token cannot be used"):
        node.tokens.start()
    node.host.disk.write("/token", signed(claims(sub="node")).encode() + b"\n")
    node.tokens.start()
    assert node.login().username == "node"
    node.host.disk.write("/token", signed(claims(sub="node", exp=NOW_S + 5_000)).encode())
    node.host.time.run_for(601_000)
    assert node.login().username == "node"
    assert not node.host.web.requests


def test_times_of_renewal_are_kafkas() -> None:
    refresh = Refresh(0.8, 0.05, 60_000, 300_000)
    assert _renewal_ms(refresh, 3_600_000, 0.0) == 2_880_000
    assert _renewal_ms(refresh, 3_600_000, 1.0) == 3_060_000
    assert _renewal_ms(refresh, 600_000, 0.0) == 300_000, "the buffer"
    assert _renewal_ms(Refresh(0.5, 0.0, 60_000, 0), 70_000, 0.0) == 60_000, "the shortest time"
    assert _renewal_ms(refresh, 100_000, 0.0) == 80_000, "a token that is too short for both"


def test_a_changed_entry_counts_for_the_next_token() -> None:
    node = Node()
    node.start()
    first = node.login()
    problems = node.config.update_dynamic({ENTRY: f'{MODULE} clientId="other" clientSecret="x";'}, {})
    assert not problems
    assert node.login() == first, "until the next token is there"
    node.host.web.documents[URL] = response(signed(claims(sub="other")))
    node.host.time.run_for(10)
    assert node.login().username == "other"
    assert len(node.host.web.requests) == 2
    node.config.update_dynamic({ENTRY: f'{MODULE} clientId="other" clientSecret="x";', "log.retention.ms": "7"}, {})
    node.host.time.run_for(10)
    assert len(node.host.web.requests) == 2, "the login is the same"


def test_the_node_of_a_broker_serves_the_token_that_it_logs_in_with() -> None:
    host = MemoryHost(seed=1)
    host.web.documents |= {
        URL: response(signed(claims(sub="node", aud=None))),
        KEYS: key_set(public(key("ES256"))),
    }
    wired = WiredBroker(host, **properties())
    login = inter_broker_security(wired.broker.config).login
    assert login is not None
    assert first_message(login().password).startswith(b"n,,\x01auth=Bearer ey")
