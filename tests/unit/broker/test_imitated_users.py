"""Imitated users of SCRAM among many credentials, which change."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from immutables import Map

from barnabas.broker.imitated_users import ImitatedUsers
from barnabas.common.host import Timer
from barnabas.metadata.security import Credentials
from barnabas.protocol.messages.records_metadata import UserScramCredentialRecord

MANY = 12_000
SHA_256 = 1


class Turns:
    """Timers whose turns the test takes."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.waiting.append(callback)

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        raise AssertionError("nothing waits for a time")


def _credential(name: str, iterations: int) -> UserScramCredentialRecord:
    return UserScramCredentialRecord(
        name=name, mechanism=SHA_256, salt=bytes(26), stored_key=b"s", server_key=name.encode(), iterations=iterations
    )


def _credentials(count: int, iterations: int) -> Credentials:
    names = (f"user-{number}" for number in range(count))
    return Map({(SHA_256, name): _credential(name, iterations) for name in names})


@pytest.mark.parametrize("secret_key", [b"", b"key"])
def test_many_credentials_that_change_are_counted_in_portions(secret_key: bytes) -> None:
    turns = Turns()
    users = ImitatedUsers(secret_key, "cluster", turns)

    def imitated(credentials: Credentials) -> tuple[bytes, int]:
        found = users.imitate(credentials, SHA_256, "sha256", "nobody")
        return found.salt, found.iterations

    before, after = _credentials(MANY, 4_096), _credentials(MANY, 8_192)
    first = imitated(before)
    assert first[1] == 4_096
    assert turns.waiting == [], "the first count is made at once"
    for _ in range(MANY // 5_000):
        assert imitated(after) == first, "that of the credentials before, until all are counted"
        assert len(turns.waiting) == 1
        turns.waiting.pop()()
    assert imitated(after)[1] == 8_192
    assert turns.waiting == []


def test_few_credentials_that_change_are_counted_at_once() -> None:
    turns = Turns()
    users = ImitatedUsers(b"key", "cluster", turns)
    found = [users.imitate(_credentials(9, each), SHA_256, "sha256", "nobody").iterations for each in (4_096, 8_192)]
    assert found == [4_096, 8_192]
    assert turns.waiting == [], "nothing is left"
