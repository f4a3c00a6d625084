"""Tokens with a signature (RFC 7515), and the key set of their issuer (RFC 7517). Signatures are checked by joserfc.

Only the algorithms of `_KEY_TYPES` are accepted, which are asymmetric: a token of `none`, or one signed with a public
key as if it were a secret, is refused by its header. A key signs only by the algorithms of its type and curve, and by
its own `alg`, if it has one.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, Final, NamedTuple

from barnabas.common import late_imports
from barnabas.common.oauth_settings import Expectations
from barnabas.protocol.sasl.tokens import Claims, TokenRefused, ValidToken, check_claims, json_object, parse

#: Key type and curve -> its algorithms.
_KEY_TYPES: Final[Mapping[tuple[str, str | None], Sequence[str]]] = {
    ("RSA", None): ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA", "Ed25519"),
}
ALGORITHMS: Final = frozenset(name for names in _KEY_TYPES.values() for name in names)
_RSA_BITS_MIN: Final = 2_048
_RSA_BITS_MAX: Final = 16_384
#: The maximum number of keys in a set; a larger one is refused.
_KEYS_MAX: Final = 100
_KEY_ID_LENGTH_MAX: Final = 1_000
#: The number of keys that are tried for a token without a key id.
_TRIALS_MAX: Final = 8


class UnknownKey(Exception):
    """The error for a token whose key is not in the set."""


class _Key(NamedTuple):
    key_id: str | None
    algorithms: frozenset[str]
    key: Any


class Jose(NamedTuple):
    """The modules of joserfc."""

    keys: ModuleType
    signatures: ModuleType
    error: type[Exception]


def load_jose() -> Jose:
    """Imports joserfc, which takes a tenth of a second. Raises ImportError if it is not installed."""
    keys, signatures, errors = (late_imports.load(f"joserfc.{name}") for name in ("jwk", "jws", "errors"))
    # The library warns of EdDSA, the old name of Ed25519, and of the weak keys that are left out here.
    warnings.simplefilter("ignore", errors.SecurityWarning)
    return Jose(keys, signatures, errors.JoseError)


class KeySet:
    """The public keys of an issuer."""

    def __init__(self, jose: Jose, keys: Sequence[_Key], ignored: int) -> None:
        self._jose = jose
        self._keys = keys
        #: The number of keys that cannot verify signatures here.
        self.ignored = ignored

    @classmethod
    def parse(cls, jose: Jose, document: bytes) -> KeySet:
        """Parses a document with a member `keys`. Raises ValueError if it has no key that verifies signatures."""
        try:
            found = json_object(document, "key set")
        except TokenRefused as error:
            raise ValueError(str(error)) from None
        rows = found.get("keys")
        if not isinstance(rows, list):
            raise ValueError('it has no list "keys"')
        if len(rows) > _KEYS_MAX:
            raise ValueError(f"it has {len(rows)} keys, more than {_KEYS_MAX}")
        keys = [key for key in (_parse_key(jose, row) for row in rows) if key is not None]
        if not keys:
            raise ValueError("it has no key that can verify signatures")
        return cls(jose, keys, len(rows) - len(keys))

    def __len__(self) -> int:
        return len(self._keys)

    def validate(self, token: str, expected: Expectations, now_ms: int) -> ValidToken:
        """Validates a token. Raises TokenRefused and UnknownKey."""
        parts = parse(token)
        algorithm, key_id = _checked_header(parts.header)
        if not parts.has_signature:
            raise TokenRefused("it has no signature")
        candidates = [each for each in self._keys if algorithm in each.algorithms and key_id in (None, each.key_id)]
        if not candidates:
            raise UnknownKey
        if not any(self._verifies(token, each, algorithm) for each in candidates[:_TRIALS_MAX]):
            raise TokenRefused("its signature is wrong")
        return check_claims(json_object(parts.claims, "payload"), expected, now_ms)

    def _verifies(self, token: str, key: _Key, algorithm: str) -> bool:
        try:
            self._jose.signatures.deserialize_compact(token, key.key, algorithms=[algorithm])
        except (self._jose.error, ValueError, TypeError):
            return False
        return True


def _checked_header(header: Claims) -> tuple[str, str | None]:
    """Returns the algorithm and the id of the key. Raises TokenRefused."""
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise TokenRefused(f"its algorithm (alg) is not one of {', '.join(sorted(ALGORITHMS))}")
    if "crit" in header or "b64" in header:
        raise TokenRefused("its header requires an extension (crit)")
    if key_id is not None and (not isinstance(key_id, str) or len(key_id) > _KEY_ID_LENGTH_MAX):
        raise TokenRefused("its key id (kid) is not a short string")
    return algorithm, key_id


def _parse_key(jose: Jose, row: Any) -> _Key | None:
    """Returns a key; None if it is not for signatures, or too weak."""
    if not isinstance(row, dict) or row.get("use", "sig") != "sig":
        return None
    kind, curve, key_id, own = (row.get(name) for name in ("kty", "crv", "kid", "alg"))
    operations = row.get("key_ops", ["verify"])
    if not isinstance(operations, list) or "verify" not in operations or not isinstance(key_id, str | None):
        return None
    curve = None if kind == "RSA" else curve
    if not isinstance(kind, str) or not isinstance(curve, str | None):
        return None
    algorithms = _KEY_TYPES.get((kind, curve))
    if algorithms is None or (own is not None and own not in algorithms):
        return None
    try:
        key = jose.keys.import_key({name: value for name, value in row.items() if isinstance(value, str)})
        public = key.get_op_key("verify")
    except (jose.error, ValueError, TypeError, KeyError, OverflowError):
        return None
    if kind == "RSA" and not _RSA_BITS_MIN <= public.key_size <= _RSA_BITS_MAX:
        return None
    return _Key(key_id, frozenset(algorithms if own is None else (own,)), key)
