"""OAUTHBEARER as a server: the client's message, and the course of a refusal."""

from __future__ import annotations

from typing import Final

import pytest
from tests.support.tokens import first_message

from barnabas.protocol.sasl.logins import Login, exchange
from barnabas.protocol.sasl.mechanism import LogInRefused, Outcome, Step
from barnabas.protocol.sasl.oauth_server import OAuthBearerServer, parse_first
from barnabas.protocol.sasl.tokens import TokenRefused, ValidToken

REFUSAL: Final = '{"status":"invalid_token"}'


def _validate(token: str) -> ValidToken:
    if token != "good":
        raise TokenRefused("the cause")
    return ValidToken("alice", 7)


def test_a_good_token_logs_in_with_one_message() -> None:
    assert OAuthBearerServer(_validate).evaluate(first_message("good")) == Step(b"", Outcome("alice", 7))


@pytest.mark.parametrize("second", [b"\x01", first_message("good"), b"", b"\x01\x01"])
def test_a_refused_token_is_answered_with_the_status_and_then_the_log_in_fails(second: bytes) -> None:
    """No other token logs in on an exchange whose token was refused."""
    server = OAuthBearerServer(_validate)
    assert server.evaluate(first_message("bad")) == Step(REFUSAL.encode())
    for _ in range(2):
        with pytest.raises(LogInRefused) as refused:
            server.evaluate(second)
        assert (refused.value.text, refused.value.cause) == (REFUSAL, "the token is refused: the cause")


def test_our_own_client_takes_the_same_course() -> None:
    server, messages = OAuthBearerServer(_validate), exchange(Login("OAUTHBEARER", "alice", "bad"), "nonce")
    answer = server.evaluate(next(messages)).reply
    assert messages.send(answer) == b"\x01"
    with pytest.raises(ValueError, match="does not accept the token"):
        messages.send(b"")
    messages = exchange(Login("OAUTHBEARER", "alice", "good"), "nonce")
    step = OAuthBearerServer(_validate).evaluate(next(messages))
    assert step.outcome is not None
    with pytest.raises(StopIteration):
        messages.send(step.reply)


@pytest.mark.parametrize(
    ("message", "token", "authorization_id"),
    [
        (b"n,,\x01auth=Bearer a.b-c_D\x01\x01", "a.b-c_D", ""),
        (b"n,a=alice,\x01auth=bearer   t\x01\x01", "t", "alice"),
        (b"n,a=x=3Dy=2Cz,\x01auth=BEARER t\x01\x01", "t", "x=3Dy=2Cz"),
        (first_message("t", traceId="1=2 3", host="x"), "t", ""),
        (b"n,,\x01host=x\x01auth=Bearer t\x01port=9092\x01\x01", "t", ""),
        (b"n,,\x01auth=Bearer s\x01auth=Bearer t\x01\x01", "t", ""),
    ],
)
def test_the_message_of_a_client(message: bytes, token: str, authorization_id: str) -> None:
    assert parse_first(message) == (token, authorization_id)


_WRONG: Final = "Invalid OAUTHBEARER client first message"


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        (b"", _WRONG),
        (b"\x01", _WRONG),
        (b"\0alice\0password", _WRONG),
        (b"n,,n=alice,r=nonce", _WRONG),
        (b"n,,auth=Bearer t\x01\x01", _WRONG),
        (b"n,,\x01auth=Bearer t\x01", _WRONG),
        (b"n,,\x01auth=Bearer t\x01\x01x", _WRONG),
        (b"y,,\x01auth=Bearer t\x01\x01", _WRONG),
        (b"p=tls-unique,,\x01auth=Bearer t\x01\x01", _WRONG),
        (b"n,a=,\x01auth=Bearer t\x01\x01", _WRONG),
        (b"n,a=a=b,\x01auth=Bearer t\x01\x01", _WRONG),
        (b"n,a=a,b,\x01auth=Bearer t\x01\x01", _WRONG),
        (b"n,,\x01auth=Bearer t\x01k1=v\x01\x01", _WRONG),
        (b"n,,\x01auth=Bearer t\x01k=\x01\x01", _WRONG),
        (b"n,,\x01auth=Bearer t\x01k=\xc3\xa4\x01\x01", _WRONG),
        (b"n,,\x01auth=Bearer \xff\x01\x01", _WRONG),
        (b"n,,\x01\x01", f"{_WRONG}: 'auth' not specified"),
        (b"n,,\x01host=x\x01\x01", f"{_WRONG}: 'auth' not specified"),
        (b"n,,\x01auth=Bearer\x01\x01", f"{_WRONG}: invalid 'auth' format"),
        (b"n,,\x01auth=Bearer a b\x01\x01", f"{_WRONG}: invalid 'auth' format"),
        (b"n,,\x01auth=Bearer a+b/c==\x01\x01", f"{_WRONG}: invalid 'auth' format"),
        (b"n,,\x01auth=Basic abc\x01\x01", "Invalid scheme in OAUTHBEARER client first message"),
    ],
)
def test_a_message_that_is_wrong_is_refused_without_a_word_about_why(message: bytes, cause: str) -> None:
    with pytest.raises(LogInRefused) as refused:
        OAuthBearerServer(_validate).evaluate(message)
    assert (refused.value.text, refused.value.cause) == (None, cause)


def test_the_client_can_only_be_the_user_of_its_token() -> None:
    assert OAuthBearerServer(_validate).evaluate(first_message("good", "alice")).outcome == Outcome("alice", 7)
    with pytest.raises(LogInRefused) as refused:
        OAuthBearerServer(_validate).evaluate(first_message("good", "admin"))
    assert refused.value.text == (
        "Authentication failed: Client requested an authorization id (admin) that is different from the token's "
        "principal name (alice)"
    )
    with pytest.raises(LogInRefused) as refused:
        OAuthBearerServer(_validate).evaluate(first_message("good", "a" * 100_000))
    assert refused.value.text is not None
    assert len(refused.value.text) < 2_000, "the text fits into a response"
