"""Tokens, key sets and messages of strangers: whatever they are, they are refused and nothing else happens."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.tokens import NOW_S, assembled, claims, encoded, key, key_set, public, signed

from barnabas.common.jaas import JaasError, parse, parse_file
from barnabas.common.oauth_settings import Expectations, UnsecuredRules
from barnabas.protocol.sasl.mechanism import LogInRefused
from barnabas.protocol.sasl.oauth_server import OAuthBearerServer
from barnabas.protocol.sasl.signed_tokens import KeySet, UnknownKey, load_jose
from barnabas.protocol.sasl.tokens import TokenRefused, ValidToken
from barnabas.protocol.sasl.unsecured_tokens import validate_unsecured

pytestmark = pytest.mark.filterwarnings("ignore::joserfc.errors.SecurityWarning")

NOW_MS: Final = NOW_S * 1_000
JOSE: Final = load_jose()
KEYS: Final = KeySet.parse(JOSE, key_set(public(key("ES256")), public(key("RS256")), public(key("EdDSA"))))
EXPECTED: Final = Expectations(("kafka",), "https://issuer.test", 30, "scope", "sub")
RULES: Final = UnsecuredRules("sub", "scope", ("a",), 0)
GOOD: Final = signed(claims())

JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
NAMES: Final = st.sampled_from(["sub", "exp", "iat", "nbf", "aud", "iss", "scope"])
CLAIMS: Final = st.dictionaries(NAMES, JSON).map(lambda changes: {**claims(), **changes})
HEADERS: Final = st.fixed_dictionaries(
    {"alg": st.sampled_from(["ES256", "RS256", "PS512", "EdDSA", "none", "HS256", ""]) | JSON},
    optional={"kid": st.sampled_from([key("ES256").kid, key("RS256").kid]) | JSON, "crit": JSON, "typ": JSON},
)


def _judge(token: str) -> None:
    judges: list[Callable[[], ValidToken]] = [
        lambda: KEYS.validate(token, EXPECTED, NOW_MS),
        lambda: validate_unsecured(token, RULES, NOW_MS),
    ]
    for judge in judges:
        try:
            name, expires_ms = judge()
        except (TokenRefused, UnknownKey):
            continue
        assert name
        assert expires_ms > NOW_MS - 30_001
        name.encode()


@given(st.text(alphabet="abcAB01.-_=", max_size=200) | st.text(max_size=60))
def test_texts(token: str) -> None:
    _judge(token)


@given(HEADERS, CLAIMS, st.binary(max_size=300))
def test_assembled_tokens(header: dict[str, Any], payload: dict[str, Any], signature: bytes) -> None:
    _judge(assembled(header, payload, signature))
    _judge(assembled(json.dumps(header).encode()[:-1], payload, signature))


@given(CLAIMS)
@example({**claims(), "exp": float("inf")})
@example({**claims(), "exp": 10**400})
@example({**claims(), "sub": "\udfff"})
def test_signed_tokens_with_any_claims(payload: dict[str, Any]) -> None:
    _judge(signed(json.dumps(payload).encode()))
    _judge(assembled({"alg": "none"}, payload))


@given(st.integers(min_value=0, max_value=len(GOOD) - 1), st.sampled_from("Aa0-_.=é"))
def test_a_changed_character(position: int, sign: str) -> None:
    """The only change of one character that is accepted has no meaning: unused bits at the end of the signature."""
    changed = GOOD[:position] + sign + GOOD[position + 1 :]
    try:
        found = KEYS.validate(changed, EXPECTED, NOW_MS)
    except (TokenRefused, UnknownKey):
        return
    assert changed == GOOD or position == len(GOOD) - 1
    assert found.name == "alice"


@given(st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
@example(json.dumps({"keys": [{**public(key("RS256")), "e": "A" * 5_000}]}).encode())
@example(json.dumps({"keys": [{**public(key("RS256")), "n": "A" * 5_000}]}).encode())
@example(json.dumps({"keys": [{**public(key("RS256")), "n": "gA" + "B" * 60_000}]}).encode())
def test_key_sets(document: bytes) -> None:
    try:
        keys = KeySet.parse(JOSE, document)
    except ValueError:
        return
    assert len(keys) > 0


@given(
    st.dictionaries(
        st.sampled_from(["kty", "crv", "kid", "alg", "use", "key_ops", "n", "e", "x", "y", "d", "k"]), JSON
    ),
    st.sampled_from(["ES256", "RS256", "EdDSA"]),
)
def test_key_sets_with_one_good_key(changes: dict[str, Any], algorithm: str) -> None:
    rows = [{**public(key(algorithm)), **changes}, public(key("ES256"))]
    found = KeySet.parse(JOSE, json.dumps({"keys": rows}).encode())
    assert found.validate(GOOD, EXPECTED, NOW_MS).name == "alice"


@given(st.binary(max_size=100) | st.binary(max_size=60).map(lambda rest: b"n,,\x01auth=Bearer " + rest + b"\x01\x01"))
def test_messages(message: bytes) -> None:
    server = OAuthBearerServer(lambda token: KEYS.validate(token, EXPECTED, NOW_MS))
    try:
        step = server.evaluate(message)
    except (LogInRefused, UnknownKey):
        return
    assert step == (b'{"status":"invalid_token"}', None)


@given(st.text(alphabet='aK{};="\\/*\n ', max_size=60))
def test_jaas_texts(text: str) -> None:
    for read in (parse, lambda each: parse_file(each, "K")):
        with suppress(JaasError):
            read(text)


def test_the_fuzzed_token_is_good() -> None:
    assert KEYS.validate(GOOD, EXPECTED, NOW_MS).name == "alice"
    assert encoded(b"\xff") == "_w"
