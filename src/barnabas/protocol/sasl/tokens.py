"""JSON Web Tokens (RFC 7519) in compact form: their parts, and the claims that a broker checks. Signatures are checked
in `signed_tokens.py`; unsecured tokens, for tests, in `unsecured_tokens.py`.

No text of a refusal contains anything from the token: it is for the log, and whoever sent the token is not
authenticated.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from barnabas.common.oauth_settings import Expectations

#: The maximum size of a token in bytes; a larger one is refused before it is decoded.
TOKEN_BYTES_MAX: Final = 65_536
#: A longer name is refused: names of users are in error messages and audit lines.
NAME_LENGTH_MAX: Final = 1_000
INVALID: Final = '{"status":"invalid_token"}'

Claims = Mapping[str, Any]


class TokenRefused(Exception):
    """The error for a token that is not accepted. The text is for the log; `response` is for the client, which must not
    learn the cause.
    """

    def __init__(self, cause: str, response: str = INVALID) -> None:
        super().__init__(cause)
        self.response = response


class ValidToken(NamedTuple):
    """An accepted token."""

    name: str
    #: The expiry time of the token, in milliseconds since the epoch.
    expires_ms: int


class TokenParts(NamedTuple):
    """A token, decoded; `claims` is the undecoded JSON."""

    header: Claims
    claims: bytes
    has_signature: bool


def parse(token: str) -> TokenParts:
    """Divides a token. Raises TokenRefused."""
    if len(token) > TOKEN_BYTES_MAX:
        raise TokenRefused(f"it has more than {TOKEN_BYTES_MAX} bytes")
    parts = token.split(".")
    if len(parts) != 3:
        raise TokenRefused("it does not have three parts (header, payload and signature)")
    header, claims, signature = parts
    return TokenParts(json_object(decoded(header), "header"), decoded(claims), bool(signature))


def decoded(text: str) -> bytes:
    """Decodes base64url without padding. Raises TokenRefused."""
    if not text.isascii() or not text.replace("-", "").replace("_", "").isalnum():
        raise TokenRefused("a part is not base64url")
    try:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (ValueError, binascii.Error):
        raise TokenRefused("a part is not base64url") from None


def json_object(data: bytes, what: str) -> Claims:
    """Decodes an object without duplicate names. Raises TokenRefused."""
    try:
        found = json.loads(str(data, "utf-8"), object_pairs_hook=_distinct, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise TokenRefused(f"its {what} is not valid JSON, or contains a name twice") from None
    if not isinstance(found, dict):
        raise TokenRefused(f"its {what} is not a JSON object")
    return found


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice")
    return found


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is not a JSON number")


def check_claims(claims: Claims, expected: Expectations, now_ms: int) -> ValidToken:
    """Checks the claims of a token whose signature is right. Raises TokenRefused."""
    _check_issuer(claims, expected)
    _check_audience(claims, expected)
    expires_s = _check_times(claims, expected.skew_s * 1_000, now_ms)
    _check_scope(claims.get(expected.scope_claim), expected.scope_claim)
    return ValidToken(name_of(claims, expected.subject_claim), int(expires_s * 1_000))


def _check_issuer(claims: Claims, expected: Expectations) -> None:
    if expected.issuer is not None and claims.get("iss") != expected.issuer:
        raise TokenRefused("its issuer (iss) is not the expected one")


def _check_audience(claims: Claims, expected: Expectations) -> None:
    """Raises TokenRefused if the token is for others. A token that names an audience is refused if none is expected, as
    by Kafka.
    """
    audience = claims.get("aud")
    named = [audience] if isinstance(audience, str) else [] if audience is None else audience
    if not isinstance(named, list) or not all(isinstance(each, str) for each in named):
        raise TokenRefused("its audience (aud) is not a string or a list of strings")
    if named and not expected.audiences:
        raise TokenRefused("it has an audience (aud), and sasl.oauthbearer.expected.audience is not set")
    if expected.audiences and not set(named) & set(expected.audiences):
        raise TokenRefused("its audience (aud) has none of the expected ones")


def _check_times(claims: Claims, skew_ms: int, now_ms: int) -> float:
    """Returns the expiration time in seconds."""
    expires_s, issued_s = time_claim(claims, "exp"), time_claim(claims, "iat")
    begins_s = time_claim(claims, "nbf")
    if expires_s is None:
        raise TokenRefused("it has no expiration time (exp)")
    if issued_s is None:
        raise TokenRefused("it has no time of issue (iat)")
    if now_ms - skew_ms >= expires_s * 1_000:
        raise TokenRefused("it has expired (exp)")
    if now_ms + skew_ms < issued_s * 1_000:
        raise TokenRefused("its time of issue (iat) is in the future")
    if expires_s < issued_s:
        raise TokenRefused("it expired before it was issued (exp, iat)")
    if begins_s is not None and now_ms + skew_ms < begins_s * 1_000:
        raise TokenRefused("it is not valid yet (nbf)")
    return expires_s


def time_claim(claims: Claims, name: str) -> float | None:
    """Returns a time in seconds since the epoch; None if the claim is missing. Raises TokenRefused."""
    value = claims.get(name)
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or (isinstance(value, float) and not math.isfinite(value)) or value < 0:
        raise TokenRefused(f"its claim {name} is not a time")
    return int(value) if isinstance(value, int) else float(value)


def _check_scope(scope: Any, claim: str) -> None:
    """Raises TokenRefused for scopes that Kafka refuses: blank ones, and one that is listed twice."""
    named = [scope] if isinstance(scope, str) else scope if isinstance(scope, list) else []
    if not all(isinstance(each, str) and each.strip() for each in named):
        raise TokenRefused(f"its claim {claim} has a blank scope")
    if len({each.strip() for each in named}) != len(named):
        raise TokenRefused(f"its claim {claim} has a scope twice")


def name_of(claims: Claims, claim: str) -> str:
    """Returns the name of the user. Raises TokenRefused."""
    value = claims.get(claim)
    if not isinstance(value, str) or not value.strip():
        raise TokenRefused(f"its claim {claim} does not name a user")
    name = value.strip()
    if len(name) > NAME_LENGTH_MAX or any(ord(sign) < 0x20 or ord(sign) == 0x7F for sign in name):
        raise TokenRefused(f"its claim {claim} names a user with control characters, or a name that is too long")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise TokenRefused(f"its claim {claim} is not valid Unicode") from None
    return name
