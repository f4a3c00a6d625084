"""Tokens with a signature: which are accepted, and each way to be refused (CVE-2026-33557)."""

from __future__ import annotations

import hmac
import json
from typing import Any, Final

import pytest
from joserfc import jwk
from tests.support.tokens import (
    AUDIENCE,
    ISSUER,
    NOW_S,
    assembled,
    claims,
    encoded,
    key,
    key_set,
    public,
    signed,
)

from barnabas.common.oauth_settings import Expectations
from barnabas.protocol.sasl.signed_tokens import ALGORITHMS, KeySet, UnknownKey, load_jose
from barnabas.protocol.sasl.tokens import TOKEN_BYTES_MAX, TokenRefused, ValidToken

pytestmark = pytest.mark.filterwarnings("ignore::joserfc.errors.SecurityWarning")

EXPECTED: Final = Expectations((AUDIENCE, "other"), ISSUER, 30, "scope", "sub")
ANY: Final = Expectations((), None, 30, "scope", "sub")
NOW_MS: Final = NOW_S * 1_000


def keys(*rows: Any) -> KeySet:
    found = rows or [public(key("ES256"))]
    return KeySet.parse(load_jose(), key_set(*found))


def validate(token: str, expected: Expectations = EXPECTED, found: KeySet | None = None) -> ValidToken:
    return (found or keys()).validate(token, expected, NOW_MS)


@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
def test_each_asymmetric_algorithm_is_accepted(algorithm: str) -> None:
    token = signed(claims(), algorithm)
    assert validate(token, found=keys(public(key(algorithm)))) == ValidToken("alice", (NOW_S + 600) * 1_000)


def _without_signature() -> str:
    return signed(claims()).rpartition(".")[0] + "."


def _with_public_key_as_secret(algorithm: str) -> str:
    """Returns a token signed by HMAC with the public key, which everybody has."""
    header = {"alg": algorithm, "kid": key("ES256").kid}
    secret = key("ES256").as_pem(private=False)
    text = f"{encoded(json.dumps(header).encode())}.{encoded(json.dumps(claims()).encode())}"
    return f"{text}.{encoded(hmac.digest(secret, text.encode(), 'sha256'))}"


def _changed_payload() -> str:
    header, _, signature = signed(claims()).split(".")
    return f"{header}.{encoded(json.dumps(claims(sub='admin')).encode())}.{signature}"


_ALGORITHM: Final = "its algorithm (alg) is not one of"
_HEADER: Final = {"alg": "ES256", "kid": "one-ES256"}
REFUSED: Final = {
    "none": (assembled({"alg": "none"}, claims()), _ALGORITHM),
    "None": (assembled({"alg": "None", "kid": "one-ES256"}, claims(), b"x"), _ALGORITHM),
    "no algorithm": (assembled({"kid": "one-ES256"}, claims(), b"x"), _ALGORITHM),
    "algorithm as a list": (assembled({"alg": ["ES256"]}, claims(), b"x"), _ALGORITHM),
    "HS256 with the public key": (_with_public_key_as_secret("HS256"), _ALGORITHM),
    "signed, and none": (assembled({"alg": "none"}, claims(), b"x"), _ALGORITHM),
    "signature cut off": (_without_signature(), "it has no signature"),
    "another payload": (_changed_payload(), "its signature is wrong"),
    "another key": (signed(claims(), private=key("ES256", "two"), kid="one-ES256"), "its signature is wrong"),
    "short signature": (assembled(_HEADER, claims(), b"x"), "its signature is wrong"),
    "zero signature": (assembled(_HEADER, claims(), bytes(64)), "its signature is wrong"),
    "critical extension": (assembled({**_HEADER, "crit": ["exp"], "exp": 1}, claims(), b"x"), "extension (crit)"),
    "detached": (assembled({**_HEADER, "b64": False}, claims(), b"x"), "extension (crit)"),
    "key id as a number": (assembled({**_HEADER, "kid": 7}, claims(), b"x"), "key id (kid)"),
    "long key id": (assembled({**_HEADER, "kid": "k" * 1_001}, claims(), b"x"), "key id (kid)"),
    "algorithm twice": (assembled(b'{"alg":"ES256","alg":"none"}', claims(), b"x"), "its header is not valid JSON"),
    "no object": (assembled(b"[]", claims(), b"x"), "its header is not a JSON object"),
    "no JSON": (assembled(b"\xff", claims(), b"x"), "its header is not valid JSON"),
    "deep JSON": (assembled(b"[" * 20_000, claims(), b"x"), "its header is not valid JSON"),
    "not base64": ("a.b.c", "a part is not base64url"),
    "two parts": ("eyJh.eyJh", "three parts"),
    "five parts": ("a.b.c.d.e", "three parts"),
    "empty": ("", "three parts"),
    "large": ("a" * (TOKEN_BYTES_MAX + 1), f"more than {TOKEN_BYTES_MAX} bytes"),
    "payload is no object": (signed(b"[1]"), "its payload is not a JSON object"),
    "subject twice": (
        signed(b'{"sub":"alice","sub":"admin"}'),
        "its payload is not valid JSON, or contains a name twice",
    ),
    "not a number": (signed(b'{"exp":NaN}'), "its payload is not valid JSON"),
    "huge number": (signed(b'{"exp":' + b"9" * 5_000 + b"}"), "its payload is not valid JSON"),
    "other issuer": (signed(claims(iss=ISSUER + "/")), "issuer (iss)"),
    "no issuer": (signed(claims(iss=None)), "issuer (iss)"),
    "issuer as a list": (signed(claims(iss=[ISSUER])), "issuer (iss)"),
    "other audience": (signed(claims(aud="other2")), "has none of the expected ones"),
    "other audiences": (signed(claims(aud=["a", "b"])), "has none of the expected ones"),
    "no audience": (signed(claims(aud=None)), "has none of the expected ones"),
    "audience as an object": (signed(claims(aud={"a": 1})), "is not a string or a list of strings"),
    "audience with a number": (signed(claims(aud=[AUDIENCE, 1])), "is not a string or a list of strings"),
    "expired": (signed(claims(exp=NOW_S - 30)), "it has expired"),
    "no expiration": (signed(claims(exp=None)), "it has no expiration time"),
    "expiration as a text": (signed(claims(exp=str(NOW_S + 600))), "its claim exp is not a time"),
    "expiration as a boolean": (signed(claims(exp=True)), "its claim exp is not a time"),
    "negative expiration": (signed(claims(exp=-1)), "its claim exp is not a time"),
    "infinite expiration": (signed(b'{"iss":"https://issuer.test","aud":"kafka","exp":1e999}'), "exp is not a time"),
    "no time of issue": (signed(claims(iat=None)), "it has no time of issue"),
    "issued in the future": (signed(claims(iat=NOW_S + 31)), "time of issue (iat) is in the future"),
    "expired before it was issued": (signed(claims(iat=NOW_S + 20, exp=NOW_S + 10)), "before it was issued"),
    "not valid yet": (signed(claims(nbf=NOW_S + 31)), "it is not valid yet"),
    "no subject": (signed(claims(sub=None)), "its claim sub does not name a user"),
    "blank subject": (signed(claims(sub="  ")), "its claim sub does not name a user"),
    "subject as a number": (signed(claims(sub=7)), "its claim sub does not name a user"),
    "subject with NUL": (signed(claims(sub="a\0b")), "names a user with control characters"),
    "subject with a new line": (signed(claims(sub="a\nb")), "names a user with control characters"),
    "long subject": (signed(claims(sub="a" * 1_001)), "a name that is too long"),
    "half a character": (signed(b'{"sub":"\\ud800",' + json.dumps(claims(sub=None)).encode()[1:]), "valid Unicode"),
    "scope twice": (signed(claims(scope=["a", " a "])), "has a scope twice"),
    "blank scope": (signed(claims(scope=["a", " "])), "has a blank scope"),
    "scope with a number": (signed(claims(scope=["a", 1])), "has a blank scope"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_token_is_refused(name: str) -> None:
    """Guard S5 (CVE-2026-33557)."""
    token, cause = REFUSED[name]
    with pytest.raises(TokenRefused) as refused:
        validate(token)
    assert cause in str(refused.value)
    assert refused.value.response == '{"status":"invalid_token"}', "the client is not told the cause"


@pytest.mark.parametrize(
    ("token", "name", "expires_s"),
    [
        (signed(claims(aud=["x", "other"])), "alice", NOW_S + 600),
        (signed(claims(iat=NOW_S - 60, exp=NOW_S - 29)), "alice", NOW_S - 29),
        (signed(claims(iat=NOW_S + 30, nbf=NOW_S + 30)), "alice", NOW_S + 600),
        (signed(claims(exp=NOW_S + 0.5)), "alice", NOW_S + 0.5),
        (signed(claims(exp=10**30)), "alice", 10**30),
        (signed(claims(sub=" alice ")), "alice", NOW_S + 600),
        (signed(claims(sub="CN=ä,O=b")), "CN=ä,O=b", NOW_S + 600),
        (signed(claims(scope=None)), "alice", NOW_S + 600),
        (signed(claims(scope=["a", "b"])), "alice", NOW_S + 600),
        (signed(claims(), kid=None), "alice", NOW_S + 600),
        (signed(claims(), typ="at+jwt"), "alice", NOW_S + 600),
    ],
)
def test_a_token_is_accepted(token: str, name: str, expires_s: float) -> None:
    assert validate(token) == ValidToken(name, int(expires_s * 1_000))


def test_the_claims_have_the_configured_names() -> None:
    expected = EXPECTED._replace(subject_claim="email", scope_claim="scp")
    assert validate(signed(claims(email="a@b", scp="x")), expected).name == "a@b"
    with pytest.raises(TokenRefused, match="its claim email does not name a user"):
        validate(signed(claims()), expected)
    with pytest.raises(TokenRefused, match="its claim scp has a blank scope"):
        validate(signed(claims(email="a@b", scp="")), expected)


def test_a_token_for_somebody_is_refused_where_no_audience_is_expected() -> None:
    assert validate(signed(claims(aud=None, iss="anybody")), ANY).name == "alice"
    with pytest.raises(TokenRefused, match=r"sasl\.oauthbearer\.expected\.audience is not set"):
        validate(signed(claims()), ANY)


def test_a_key_is_chosen_by_its_id_and_signs_by_its_own_algorithms_only() -> None:
    """Guard S5."""
    one, two, rsa = key("ES256"), key("ES256", "two"), key("RS256")
    assert validate(signed(claims(), private=two), found=keys(public(one), public(two))).name == "alice"
    for found in (keys(), keys(public(two, alg="ES384"), public(one)), keys(public(two, kid="x"), public(one))):
        with pytest.raises(UnknownKey):
            validate(signed(claims(), private=two), found=found)
    only_pss = keys(public(rsa, alg="PS256"))
    assert validate(signed(claims(), "PS256", rsa), found=only_pss).name == "alice"
    with pytest.raises(UnknownKey):
        validate(signed(claims(), "RS256", rsa), found=only_pss)


def test_a_token_without_a_key_id_is_checked_by_all_keys_that_fit() -> None:
    found = keys(public(key("RS256")), public(key("ES256", "two")), public(key("ES256"), kid=None))
    assert validate(signed(claims(), kid=None), found=found).name == "alice"
    with pytest.raises(TokenRefused, match="its signature is wrong"):
        validate(signed(claims(), private=key("ES256", "three"), kid=None), found=found)


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ({"kty": "oct", "k": "c2VjcmV0", "alg": "HS256"}, "a secret"),
        (public(key("ES256"), use="enc"), "a key for encryption"),
        (public(key("ES256"), key_ops=["sign"]), "a key for other operations"),
        (public(key("ES256"), key_ops="verify"), "malformed operations"),
        (public(key("ES256"), kid=7), "a malformed key id"),
        (public(key("ES256"), x="AAAA"), "a point that is not on the curve"),
        (public(key("ES256"), y=None), "a missing member"),
        (public(key("ES256"), crv="P-999"), "an unknown curve"),
        (public(key("ES256"), crv=["P-256"]), "a malformed curve"),
        (public(key("RS256"), n="AQAB"), "a short modulus"),
        (public(key("RS256"), alg="HS256"), "a public key as a secret"),
        (public(key("EdDSA"), x="AA"), "a short key"),
        ({"kty": ["RSA"]}, "a malformed type"),
        ({"kty": "AKP"}, "an unknown type"),
        ("text", "no object"),
    ],
)
def test_a_key_that_cannot_verify_signatures_is_left_out(row: Any, what: str) -> None:
    with pytest.raises(ValueError, match="it has no key that can verify signatures"):
        keys(row)
    found = keys(row, public(key("ES256")))
    assert (len(found), found.ignored) == (1, 1), what
    assert validate(signed(claims()), found=found).name == "alice"


def test_a_weak_key_is_left_out() -> None:
    weak = jwk.RSAKey.generate_key(1_024, {"kid": "weak"}, private=True)
    with pytest.raises(ValueError, match="it has no key"):
        keys(public(weak))


@pytest.mark.parametrize(
    ("document", "cause"),
    [
        (b"<html>", "not valid JSON"),
        (b"[]", "not a JSON object"),
        (b"{}", 'it has no list "keys"'),
        (b'{"keys":{}}', 'it has no list "keys"'),
        (b'{"keys":[]}', "it has no key"),
        (json.dumps({"keys": [{}] * 101}).encode(), "it has 101 keys"),
        (b"\xff\xfe", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
    ],
)
def test_a_document_that_is_no_key_set_is_refused(document: bytes, cause: str) -> None:
    with pytest.raises(ValueError, match=cause):
        KeySet.parse(load_jose(), document)
