"""Unsecured tokens, for tests: Kafka's rules for them."""

from __future__ import annotations

from typing import Final

import pytest
from tests.support.tokens import NOW_S, assembled, claims, signed, unsecured

from barnabas.common.oauth_settings import UnsecuredLogin, UnsecuredRules
from barnabas.protocol.sasl.tokens import TokenRefused, ValidToken
from barnabas.protocol.sasl.unsecured_tokens import make_unsecured, validate_unsecured

RULES: Final = UnsecuredRules("sub", "scope", (), 0)
NOW_MS: Final = NOW_S * 1_000


@pytest.mark.parametrize(
    ("token", "cause"),
    [
        (signed(claims()), "its algorithm (alg) is not none"),
        (assembled({}, claims()), "its algorithm (alg) is not none"),
        (assembled({"alg": "none"}, claims(), b"x"), "it has a signature"),
        (unsecured() + ".", "three parts"),
        (unsecured(sub=None), "does not name a user"),
        (unsecured(sub=1), "does not name a user"),
        (unsecured(exp=None), "it has no expiration time"),
        (unsecured(exp="1"), "its claim exp is not a time"),
        (unsecured(exp=NOW_S), "it has expired"),
        (unsecured(iat=NOW_S + 1), "is in the future"),
        (unsecured(iat="1"), "its claim iat is not a time"),
        (assembled({"alg": "none"}, b'{"sub":"a","sub":"b","exp":99999999999}'), "contains a name twice"),
    ],
)
def test_a_token_is_refused(token: str, cause: str) -> None:
    with pytest.raises(TokenRefused) as refused:
        validate_unsecured(token, RULES, NOW_MS)
    assert cause in str(refused.value)
    assert refused.value.response == '{"status":"invalid_token"}'


def test_a_missing_scope_is_reported() -> None:
    rules = RULES._replace(required_scope=("LOGIN", "READ"), scope_claim="scp")
    assert validate_unsecured(unsecured(scp=["READ", "LOGIN", "x"]), rules, NOW_MS).name == "alice"
    for token in (unsecured(scp=["LOGIN"]), unsecured(scp="LOGIN READ"), unsecured(scope=["LOGIN", "READ"])):
        with pytest.raises(TokenRefused) as refused:
            validate_unsecured(token, rules, NOW_MS)
        assert refused.value.response == '{"status":"insufficient_scope", "scope":"[LOGIN, READ]"}'


def test_the_clocks_can_differ() -> None:
    rules = RULES._replace(skew_ms=5_000)
    assert validate_unsecured(unsecured(exp=NOW_S - 4), rules, NOW_MS) == ValidToken("alice", (NOW_S - 4) * 1_000)
    assert validate_unsecured(unsecured(iat=NOW_S + 5), rules, NOW_MS).name == "alice"
    with pytest.raises(TokenRefused, match="it has expired"):
        validate_unsecured(unsecured(exp=NOW_S - 5), rules, NOW_MS)
    with pytest.raises(TokenRefused, match="it expired before it was issued"):
        validate_unsecured(unsecured(iat=NOW_S + 3, exp=NOW_S + 3), rules, NOW_MS)


def test_a_node_makes_tokens_that_a_listener_accepts() -> None:
    settings = UnsecuredLogin({"user": "node", "scope": ["a", "b"], "n": 1.5}, "user", 60)
    token = make_unsecured(settings, NOW_MS)
    rules = RULES._replace(principal_claim="user", required_scope=("a", "b"))
    assert validate_unsecured(token, rules, NOW_MS) == ValidToken("node", NOW_MS + 60_000)
    with pytest.raises(TokenRefused, match="it has expired"):
        validate_unsecured(token, rules, NOW_MS + 60_000)
