"""Tokens that this node signs with its own private key (RFC 7515), by joserfc."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from barnabas.protocol.sasl.signed_tokens import Jose

#: Algorithm -> the type of its key.
_KEY_TYPES: Final = {"RS256": "RSA", "ES256": "EC"}
_BEGIN: Final = b"-----BEGIN"


def sign(
    jose: Jose, private_key: bytes, passphrase: str | None, header: Mapping[str, Any], claims: Mapping[str, Any]
) -> str:
    """Returns a token. The key is PKCS #8 in PEM, or its base64 text alone. Raises ValueError for another key than the
    algorithm of the header needs; the error has nothing of the key.
    """
    text = private_key.strip()
    if not text.startswith(_BEGIN):
        text = b"-----BEGIN PRIVATE KEY-----\n" + text + b"\n-----END PRIVATE KEY-----\n"
    algorithm = str(header["alg"])
    kind = jose.keys.RSAKey if _KEY_TYPES[algorithm] == "RSA" else jose.keys.ECKey
    try:
        key = kind.import_key(text, password=passphrase)
        return str(jose.signatures.serialize_compact(dict(header), json.dumps(claims), key, algorithms=[algorithm]))
    except (jose.error, ValueError, TypeError, AssertionError):
        how = "with this passphrase " if passphrase else ""
        raise ValueError(f"it is not a private key of {algorithm} in PKCS #8 that can be read {how}".rstrip()) from None
