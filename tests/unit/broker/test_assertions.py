"""The assertions by which a node asks a token endpoint (KIP-1139): from a file, or signed by the node's private key."""

from __future__ import annotations

import json
import uuid
from typing import Any, Final
from urllib.parse import parse_qs

import pytest
from cryptography.hazmat.primitives import serialization
from joserfc import jws
from tests.support.tokens import NOW_S, claims, key, signed
from tests.unit.broker.test_node_tokens import ENDPOINT, FILE, URL, Node, response

from barnabas.common.errors import ConfigError
from barnabas.common.host import WebRequest

_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer."
_PREFIX: Final = "sasl.oauthbearer.assertion."
_READY: Final = {_PREFIX + "file": "/ready"}
_SIGNED: Final = {_PREFIX + "private.key.file": "/key.pem"}
PASSPHRASE: Final = "passphrase-marker"
FILES: Final = ("/ready", "/key.pem", "/encrypted.pem", "/ec.pem", "/bare", "/template")


def asking(**changes: str) -> Node:
    """Returns a node that asks by assertions. The files exist, but for `/missing`."""
    node = Node(
        **{
            "sasl.oauthbearer.jwt.retriever.class": _PACKAGE + "JwtBearerJwtRetriever",
            "barnabas.sasl.oauthbearer.allowed.files": ",".join((*FILES, "/missing")),
            **changes,
        }
    )
    for path, content in {
        "/ready": b" " + signed(claims(sub="ready")).encode() + b"\n",
        "/key.pem": pem("RS256"),
        "/encrypted.pem": pem("RS256", PASSPHRASE),
        "/ec.pem": pem("ES256"),
        "/bare": b"".join(pem("RS256").splitlines()[1:-1]),
        "/template": b'{"header": {"kid": "k1", "alg": "none"}, "payload": {"sub": "by-template", "x": [1], "iat": 0}}',
    }.items():
        node.host.disk.write(path, content)
    return node


def pem(algorithm: str, passphrase: str = "") -> bytes:
    protection: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if passphrase:
        protection = serialization.BestAvailableEncryption(passphrase.encode())
    private: bytes = key(algorithm).private_key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, protection
    )
    return private


def form(request: WebRequest) -> dict[str, str]:
    assert request.content is not None
    return {name: value for name, (value,) in parse_qs(request.content.decode()).items()}


def assertion(node: Node, algorithm: str = "RS256") -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns header and claims of the last assertion, which the public key verifies."""
    text = form(node.host.web.requests[-1])["assertion"]
    found = jws.deserialize_compact(text, key(algorithm), algorithms=[algorithm])
    return dict(found.headers()), json.loads(found.payload)


def test_an_assertion_has_the_claims_of_the_configuration() -> None:
    node = asking(
        **_SIGNED,
        **{
            _PREFIX + "claim.aud": "https://issuer.test",
            _PREFIX + "claim.iss": "cluster",
            _PREFIX + "claim.sub": "node",
            "sasl.oauthbearer.scope": "a b",
        },
    )
    node.start()
    (request,) = node.host.web.requests
    assert request.url == URL
    assert dict(request.headers) == {"Content-Type": "application/x-www-form-urlencoded"}
    sent = form(request)
    assert set(sent) == {"grant_type", "assertion", "scope"}
    assert (sent["grant_type"], sent["scope"]) == ("urn:ietf:params:oauth:grant-type:jwt-bearer", "a b")
    assert assertion(node) == (
        {"alg": "RS256", "typ": "JWT"},
        {
            "aud": "https://issuer.test",
            "iss": "cluster",
            "sub": "node",
            "iat": NOW_S,
            "exp": NOW_S + 300,
            "nbf": NOW_S - 60,
        },
    )
    assert node.login().username == "node"


def test_a_template_adds_and_what_is_computed_counts_first() -> None:
    node = asking(
        **_SIGNED,
        **{
            _PREFIX + "template.file": "/template",
            _PREFIX + "claim.sub": "by-configuration",
            _PREFIX + "claim.iss": "cluster",
            _PREFIX + "claim.exp.seconds": "7",
            _PREFIX + "claim.nbf.seconds": "0",
        },
    )
    node.start()
    header, found = assertion(node)
    assert header == {"kid": "k1", "alg": "RS256", "typ": "JWT"}
    assert found == {
        "sub": "by-template",
        "iss": "cluster",
        "x": [1],
        "iat": NOW_S,
        "exp": NOW_S + 7,
        "nbf": NOW_S,
    }


def test_each_request_has_a_new_assertion_with_an_id_of_its_own() -> None:
    node = asking(**_SIGNED, **{_PREFIX + "claim.jti.include": "true"})
    node.start()
    _, first = assertion(node)
    node.host.time.run_for(400_000)
    _, second = assertion(node)
    assert len(node.host.web.requests) > 1
    assert uuid.UUID(first["jti"]).version == 4
    assert first["jti"] != second["jti"]
    assert first["iat"] < second["iat"]


@pytest.mark.parametrize(
    ("changes", "algorithm"),
    [
        ({_PREFIX + "private.key.file": "/encrypted.pem", _PREFIX + "private.key.passphrase": PASSPHRASE}, "RS256"),
        ({_PREFIX + "private.key.file": "/ec.pem", _PREFIX + "algorithm": "es256"}, "ES256"),
        ({_PREFIX + "private.key.file": "/bare"}, "RS256"),
    ],
)
def test_private_keys(changes: dict[str, str], algorithm: str) -> None:
    node = asking(**changes)
    node.start()
    assert assertion(node, algorithm)[0]["alg"] == algorithm
    assert "marker" not in repr(node.tokens._source("PLAINTEXT").settings)


def test_an_assertion_of_a_file_is_read_again_for_each_request() -> None:
    node = asking(**_READY, **_SIGNED)
    node.start()
    assert form(node.host.web.requests[-1])["assertion"] == signed_again(node)
    node.host.disk.write("/ready", signed(claims(sub="second")).encode())
    node.host.time.run_for(400_000)
    assert form(node.host.web.requests[-1])["assertion"] == signed_again(node)
    assert form(node.host.web.requests[-1]) != form(node.host.web.requests[0])


def signed_again(node: Node) -> str:
    return node.host.disk.read("/ready").decode().strip()


_KEY_FILE: Final = _PREFIX + "private.key.file"
_WRONG_KEY: Final = "it is not a private key of RS256 in PKCS #8 that can be read"


@pytest.mark.parametrize(
    ("changes", "files", "text"),
    [
        ({_KEY_FILE: "/missing"}, {}, f"{_KEY_FILE}: /missing cannot be used"),
        (_SIGNED, {"/key.pem": b""}, f"{_KEY_FILE}: /key.pem cannot be used: {_WRONG_KEY}"),
        (_SIGNED, {"/key.pem": b"\xff\x00"}, _WRONG_KEY),
        ({_KEY_FILE: "/ec.pem"}, {}, _WRONG_KEY),
        ({_KEY_FILE: "/encrypted.pem"}, {}, _WRONG_KEY),
        (
            {_KEY_FILE: "/encrypted.pem", _PREFIX + "private.key.passphrase": "wrong-marker"},
            {},
            f"{_WRONG_KEY} with this passphrase",
        ),
        (_SIGNED, {"/key.pem": b"A" * 300_000}, "it has more than 262144 bytes"),
        (_READY, {"/ready": b"a b"}, f"{_PREFIX}file: /ready cannot be used: it does not contain a token"),
        (_READY, {"/ready": b""}, "it does not contain a token"),
        (_READY | {_PREFIX + "file": "/missing"}, {}, f"{_PREFIX}file: /missing cannot be used"),
        *(
            (_SIGNED | {_PREFIX + "template.file": "/template"}, {"/template": text}, f"template.file: /template {why}")
            for text, why in (
                (b"{", "cannot be used: it is not a JSON object"),
                (b"[]", "cannot be used: it is not a JSON object"),
                (b'{"header": 1}', "cannot be used: it is not a JSON object"),
                (b'{"payload": []}', "cannot be used: it is not a JSON object"),
                (b"[" * 100_000, "cannot be used: it is not a JSON object"),
            )
        ),
        (_SIGNED | {_PREFIX + "template.file": "/missing"}, {}, "template.file: /missing cannot be used"),
    ],
)
def test_a_node_does_not_start_with_a_file_that_cannot_be_used(
    changes: dict[str, str], files: dict[str, bytes], text: str
) -> None:
    node = asking(**changes)
    for path, content in files.items():
        node.host.disk.write(path, content)
    with pytest.raises(ConfigError) as refused:
        node.tokens.start()
    assert text in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "marker" not in str(refused.value)
    assert not node.host.web.requests


def test_a_file_that_is_damaged_later_is_reported_and_the_token_used_meanwhile() -> None:
    node = asking(**_SIGNED)
    node.start()
    node.host.disk.write("/key.pem", b"not a key")
    node.host.time.run_for(500_000)
    assert node.login().username == "node"
    (warning,) = node.host.faults.warned
    assert _WRONG_KEY in warning
    node.host.disk.write("/key.pem", pem("RS256"))
    node.host.web.documents[URL] = response(signed(claims(sub="later", exp=NOW_S + 5_000)))
    node.host.time.run_for(20_000)
    assert node.login().username == "later"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, f"needs {_PREFIX}file or {_KEY_FILE}"),
        ({_KEY_FILE: "/etc/passwd"}, f"{_KEY_FILE}: /etc/passwd is not allowed. Add it to barnabas.sasl.oauthbearer."),
        ({_PREFIX + "file": "/etc/passwd"}, "/etc/passwd is not allowed"),
        (_SIGNED | {_PREFIX + "template.file": "/etc/passwd"}, "/etc/passwd is not allowed"),
        (_SIGNED | {ENDPOINT: FILE}, "needs an http or https URL"),
        (_SIGNED | {ENDPOINT: ""}, "needs an http or https URL"),
        (_SIGNED | {_PREFIX + "algorithm": "HS256"}, _PREFIX + "algorithm"),
        (_SIGNED | {_PREFIX + "claim.exp.seconds": "86401"}, _PREFIX + "claim.exp.seconds"),
    ],
)
def test_a_configuration_is_refused(changes: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        asking(**changes)
    assert text in str(refused.value)
    assert "\n" not in str(refused.value)


def test_files_cannot_be_chosen_over_the_network() -> None:
    node = asking(**_SIGNED)
    prefix = "listener.name.plaintext.oauthbearer."
    for name in (_KEY_FILE, "barnabas.sasl.oauthbearer.allowed.files"):
        with pytest.raises(ConfigError, match="Cannot update these configs dynamically"):
            node.config.with_dynamic({name: "/etc/passwd"}, {})
    with pytest.raises(ConfigError, match="/etc/passwd is not allowed"):
        node.config.with_dynamic({prefix + _KEY_FILE: "/etc/passwd"}, {})
