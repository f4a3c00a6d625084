"""An issuer of tokens for tests: its keys, its key set, and signed tokens with any header and claims."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from joserfc import jwk, jws

from barnabas.protocol.sasl.signed_tokens import load_jose
from barnabas.simulation.host import EPOCH_WALL_MS

# The library's warnings concern the node's settings and not those of the tests.
load_jose()

#: The time at which the tests validate tokens, in seconds.
NOW_S: Final = EPOCH_WALL_MS // 1_000
ISSUER: Final = "https://issuer.test"
AUDIENCE: Final = "kafka"
_ALGORITHMS: Final = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
    "Ed25519",
)
_CURVES: Final = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}


@cache
def key(algorithm: str, name: str = "one") -> Any:
    """Returns a private key for an algorithm."""
    extra: Any = {"kid": f"{name}-{algorithm[:2] if algorithm[0] in 'RP' else algorithm}", "use": "sig"}
    if algorithm in _CURVES:
        return jwk.ECKey.generate_key(_CURVES[algorithm], extra)
    if algorithm in ("EdDSA", "Ed25519"):
        return jwk.OKPKey.generate_key("Ed25519", extra)
    return jwk.RSAKey.generate_key(2_048, extra)


def public(private: Any, **changes: Any) -> dict[str, Any]:
    """Returns the public key as a row of a key set. A change to None removes a member."""
    row = {**private.as_dict(private=False), **changes}
    return {name: value for name, value in row.items() if value is not None}


def key_set(*rows: Any) -> bytes:
    return json.dumps({"keys": list(rows)}).encode()


def claims(**changes: Any) -> dict[str, Any]:
    """Returns good claims. A change to None removes a claim."""
    found = {
        "sub": "alice",
        "iss": ISSUER,
        "aud": AUDIENCE,
        "iat": NOW_S - 10,
        "exp": NOW_S + 600,
        "scope": "topics",
        **changes,
    }
    return {name: value for name, value in found.items() if value is not None}


def signed(payload: Mapping[str, Any] | bytes, algorithm: str = "ES256", private: Any = None, **header: Any) -> str:
    """Returns a token. A header of None is left out."""
    private = key(algorithm) if private is None else private
    fields = {"alg": algorithm, "kid": private.kid, **header}
    content = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    kept = {name: value for name, value in fields.items() if value is not None}
    return jws.serialize_compact(kept, content, private, algorithms=list(_ALGORITHMS))


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def assembled(header: Mapping[str, Any] | bytes, payload: Mapping[str, Any] | bytes, signature: bytes = b"") -> str:
    """Returns a token whose parts are taken as they are."""
    parts = (each if isinstance(each, bytes) else json.dumps(each).encode() for each in (header, payload))
    return ".".join([*map(encoded, parts), encoded(signature)])


def unsecured(**changes: Any) -> str:
    return assembled({"alg": "none"}, claims(**{"iss": None, "aud": None, **changes}))


def first_message(token: str, authorization_id: str = "", **extensions: str) -> bytes:
    """Returns the message of a client."""
    name = f"a={authorization_id}" if authorization_id else ""
    rest = "".join(f"{name}={value}\x01" for name, value in extensions.items())
    return f"n,{name},\x01auth=Bearer {token}\x01{rest}\x01".encode()
