"""Assertions of this node: tokens that it signs itself, by which it asks a token endpoint for others (RFC 7523).

The header has `alg` and `typ`, the claims `iat`, `exp` and `nbf`, and `jti` if it is asked for. The claims of the
configuration and those of the template file are added; as in Kafka, the template counts before the configuration, and
what is computed before both.
"""

from __future__ import annotations

import json
import re
import uuid
from typing import Any, Final, NamedTuple

from barnabas.broker.peers.documents import DOCUMENT_BYTES_MAX
from barnabas.common.host import Disk
from barnabas.common.oauth_settings import TEMPLATE_FILE, AssertionFile, AssertionKey
from barnabas.protocol.sasl.own_tokens import sign
from barnabas.protocol.sasl.signed_tokens import load_jose
from barnabas.protocol.sasl.tokens import TOKEN_BYTES_MAX

#: The characters of a token.
TOKEN: Final = re.compile(r"[-_.a-zA-Z0-9]+")


class Issued(NamedTuple):
    """The values of one assertion that no other has."""

    now_s: int
    #: 16 random bytes for the claim `jti`; None for an assertion without it.
    identity: bytes | None


def make(disk: Disk, settings: AssertionKey, issued: Issued) -> str:
    """Returns a new assertion. Raises ValueError for a file that cannot be used; the error names its key."""
    header, claims = _template(disk, settings.template)
    header |= {"alg": settings.algorithm, "typ": "JWT"}
    claims = {**settings.claims, **claims}
    claims |= {
        "iat": issued.now_s,
        "exp": issued.now_s + settings.lifetime_s,
        "nbf": issued.now_s - settings.before_s,
    }
    if issued.identity is not None:
        claims["jti"] = str(uuid.UUID(bytes=issued.identity))
    try:
        return sign(load_jose(), _read(disk, settings.path), settings.passphrase, header, claims)
    except ImportError:
        raise ValueError(f"{settings.key} needs the package joserfc: pip install 'barnabas[oauth]'") from None
    except (OSError, ValueError) as error:
        raise ValueError(f"{settings.key}: {settings.path} cannot be used: {error}") from None


def from_file(disk: Disk, settings: AssertionFile) -> str:
    """Returns the assertion in a file. Raises ValueError if there is none; the error names the key of the file."""
    try:
        text = str(_read(disk, settings.path), "ascii", "replace").strip()
    except (OSError, ValueError) as error:
        raise ValueError(f"{settings.key}: {settings.path} cannot be used: {error}") from None
    if len(text) > TOKEN_BYTES_MAX or not TOKEN.fullmatch(text):
        raise ValueError(f"{settings.key}: {settings.path} cannot be used: it does not contain a token")
    return text


def _read(disk: Disk, path: str) -> bytes:
    if disk.size(path) > DOCUMENT_BYTES_MAX:
        raise ValueError(f"it has more than {DOCUMENT_BYTES_MAX} bytes")
    return disk.read(path)


def _template(disk: Disk, path: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the fields of the header and the claims that a template adds. Raises ValueError."""
    if path is None:
        return {}, {}
    try:
        found = json.loads(str(_read(disk, path), "utf-8"))
        header, claims = found.get("header", {}), found.get("payload", {})
        return dict(header.items()), dict(claims.items())
    except OSError as error:
        why = str(error)
    except (ValueError, AttributeError, RecursionError):
        why = "it is not a JSON object with the objects header and payload"
    raise ValueError(f"{TEMPLATE_FILE}: {path} cannot be used: {why}")
