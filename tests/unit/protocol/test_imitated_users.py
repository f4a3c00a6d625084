"""SCRAM users that do not exist: nothing about their salts and iterations differs from those of others."""

from __future__ import annotations

import re
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import pytest

from barnabas.protocol.sasl.imitated_users import Shape, form_of, imitation, secret_of
from barnabas.protocol.sasl.imitated_users import shapes_of as shapes_of_forms

SECRET: Final = b"a-secret"
NAMES: Final = [f"user-{number}" for number in range(2_000)]


def shapes_of(credentials: Iterable[tuple[bytes, int]]) -> Mapping[Shape, int]:
    return shapes_of_forms(Counter(form_of(salt, iterations) for salt, iterations in credentials))


def _kafkas_salt() -> bytes:
    """Returns a salt as `ScramFormatter.secureRandomBytes` makes it: new BigInteger(130, random).toString(36)."""
    number, text = secrets.randbits(130), ""
    while number:
        number, digit = divmod(number, 36)
        text = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + text
    return text.encode()


def test_salts_among_those_of_kafkas_tools_are_text() -> None:
    """Guard S18: Kafka's tools write salts as text of the base 36, so random bytes are a sign of an imitation."""
    real = [_kafkas_salt() for _ in NAMES]
    shapes = shapes_of((salt, 8_192) for salt in real)
    imitated = [imitation("sha512", SECRET, name, shapes) for name in NAMES]
    assert {each.iterations for each in imitated} == {8_192}
    assert all(re.fullmatch(rb"[1-9a-z][0-9a-z]+", each.salt) for each in imitated)
    assert len({each.salt for each in imitated}) == len(NAMES)
    lengths, expected = Counter(len(each.salt) for each in imitated), Counter(map(len, real))
    assert all(abs(lengths[size] - expected[size]) < 200 for size in (24, 25, 26))


def test_salts_among_random_bytes_are_random_bytes() -> None:
    shapes = shapes_of([(secrets.token_bytes(64), 4_096)])
    salts = [imitation("sha256", SECRET, name, shapes).salt for name in NAMES]
    assert {len(salt) for salt in salts} == {64}
    assert len({byte for salt in salts for byte in salt}) == 256


@pytest.mark.parametrize("shape", [(b"", 4_096), (bytes(500), 16_384), (b"weak" * 5, 1_000)])
def test_unusual_credentials_are_imitated_if_they_can_be(shape: tuple[bytes, int]) -> None:
    salt, iterations = shape
    found = imitation("sha256", SECRET, "nobody", shapes_of([shape]))
    assert found.iterations == max(iterations, 4_096)
    assert found.salt
    assert len(found.salt) <= max(len(salt), 26)


def test_a_name_has_another_salt_in_each_mechanism() -> None:
    """Guard S18: users that exist do, so the same one is a sign of an imitation."""
    first, second = (imitation(each, SECRET, "nobody").salt for each in ("sha256", "sha512"))
    assert first != second


def test_shapes_are_as_frequent_as_those_of_users_and_change_with_few_of_them() -> None:
    """Guard S18."""
    users = [(bytes(64), 4_096)] * 60 + [(bytes(26), 4_096)] * 30 + [(_kafkas_salt(), 8_192)] * 10
    before = {name: imitation("sha256", SECRET, name, shapes_of(users)) for name in NAMES}
    frequent = Counter((len(each.salt) if each.iterations == 4_096 else 0) for each in before.values())
    assert [round(frequent[size] / len(NAMES), 1) for size in (64, 26, 0)] == [0.6, 0.3, 0.1]
    users.append((bytes(26), 4_096))
    after = {name: imitation("sha256", SECRET, name, shapes_of(users)) for name in NAMES}
    changed = [name for name in NAMES if after[name] != before[name]]
    assert len(changed) < len(NAMES) / 50
    assert all(len(after[name].salt) == 26 for name in changed)


def test_no_more_shapes_than_needed_are_imitated() -> None:
    shapes = shapes_of([(bytes(size), 4_096) for size in range(1, 65)] + [(bytes(7), 4_096)])
    assert len(shapes) == 16
    assert max(shapes.items(), key=lambda item: item[1]) == (Shape(4_096, 7), 2)


def test_the_secret_is_of_the_cluster_and_not_of_a_credential() -> None:
    """Guard S18."""
    assert secret_of("cluster", b"key", b"server key") == secret_of("cluster", b"key", b"another server key")
    assert len({secret_of(*each) for each in (("a", b"k", b""), ("b", b"k", b""), ("a", b"l", b""))}) == 3
    assert secret_of("a", b"", b"k") != secret_of("a", b"", b"l")
