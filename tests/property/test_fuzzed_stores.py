"""Key stores and trust stores that are damaged in any way: the node names the listener and the key, and nothing else
happens. No error text has a password or a part of a key.
"""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.tls_stores import PASSWORD, Stores

from barnabas.common.errors import ConfigError
from barnabas.tls import pem
from barnabas.tls.listener_contexts import ListenerContexts
from barnabas.tls.listener_settings import ListenerSettings, Place, StoreSettings

KINDS: Final = ("PEM", "PKCS12", "JKS")


@functools.cache
def _stores() -> Stores:
    made = Stores(Path(tempfile.mkdtemp(prefix="fuzzed-stores-")))
    made.pem("broker")
    return made


@functools.cache
def _content(kind: str, what: str) -> bytes:
    """Returns a valid store: of a key (`keys`), or of an authority (`trusted`)."""
    stores = _stores()
    if what == "trusted":
        return (stores.trusted if kind == "PEM" else stores.trust(kind)).read_bytes()
    if kind == "PEM":
        return (stores.authority.directory / "broker.pem").read_bytes()
    return (stores.pkcs12("broker") if kind == "PKCS12" else stores.jks("broker")).read_bytes()


def _settings(folder: Path, kind: str, keys: bytes, trusted: bytes) -> ListenerSettings:
    found = []
    for name, content in (("keys", keys), ("trusted", trusted)):
        path = folder / name
        path.write_bytes(content)
        password = None if kind == "PEM" else PASSWORD
        found.append(StoreSettings(kind, str(path), password, password))
    own, others = found
    place = Place("listener SSL")
    return ListenerSettings(place, own, others, "required", ("TLSv1.2", "TLSv1.3"), (), True, "DEFAULT", False, False)


def _refusal(kind: str, keys: bytes, trusted: bytes) -> str | None:
    """Makes the contexts of a listener with these stores. Returns why they are refused; None if they are taken."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            ListenerContexts(_settings(Path(folder), kind, keys, trusted))
        except ConfigError as error:
            return str(error)
    return None


def _load(kind: str, keys: bytes, trusted: bytes) -> None:
    refusal = _refusal(kind, keys, trusted)
    if refusal is not None:
        assert refusal.startswith("listener SSL: ")
        assert PASSWORD not in refusal
        assert "\n" not in refusal, "one line"


#: Changes of a store: (place, new bytes, number of bytes that they replace), places as shares of its length.
CHANGES: Final = st.lists(st.tuples(st.floats(0, 1), st.binary(max_size=4), st.integers(0, 40)), min_size=1, max_size=4)
Changes = list[tuple[float, bytes, int]]


def _changed(content: bytes, changes: Changes) -> bytes:
    data = bytearray(content)
    for share, new, removed in changes:
        place = int(share * len(data))
        data[place : place + removed] = new
    return bytes(data)


@pytest.mark.parametrize("kind", KINDS)
def test_unchanged_stores_are_taken(kind: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        made = ListenerContexts(_settings(Path(folder), kind, _content(kind, "keys"), _content(kind, "trusted")))
    assert made.server is not None
    assert [each.subject for _, each in made.certificates] == ["CN=broker"]


@given(st.sampled_from(KINDS), CHANGES)
def test_damaged_key_stores(kind: str, changes: Changes) -> None:
    _load(kind, _changed(_content(kind, "keys"), changes), _content(kind, "trusted"))


@given(st.sampled_from(KINDS), CHANGES)
def test_damaged_trust_stores(kind: str, changes: Changes) -> None:
    _load(kind, _content(kind, "keys"), _changed(_content(kind, "trusted"), changes))


@example("trusted", [(1.0, b"\0\0", 0)], "CERTIFICATE")
@given(st.sampled_from(("keys", "trusted")), CHANGES, st.sampled_from(("CERTIFICATE", "PRIVATE KEY")))
def test_damaged_der_in_sound_pem(what: str, changes: Changes, label: str) -> None:
    """The base64 is right, so that what it contains is read."""
    blocks = pem.blocks(_content("PEM", what).decode())
    text = "".join(
        pem.block_of(each.label, _changed(each.der, changes)) if each.label == label else each.text for each in blocks
    ).encode()
    keys, trusted = _content("PEM", "keys"), _content("PEM", "trusted")
    _load("PEM", *((text, trusted) if what == "keys" else (keys, text)))


@given(st.sampled_from(KINDS), st.binary(max_size=200))
@example("JKS", b"\xfe\xed\xfe\xed\x00\x00\x00\x02\xff\xff\xff\xff")
@example("PKCS12", b"0\x84\xff\xff\xff\xff")
def test_stores_of_any_bytes(kind: str, content: bytes) -> None:
    _load(kind, content, _content(kind, "trusted"))
    _load(kind, _content(kind, "keys"), content)
