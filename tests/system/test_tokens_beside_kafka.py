"""The same requests about delegation tokens to Apache Kafka and to Barnabas: the same answers."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from tests.clients.servers import BarnabasServer
from tests.support.secured import STANDARD
from tests.system.test_log_in import NODE_PASSWORD, PASSWORD, client_properties, jaas, secured

import kafka_jars
from barnabas.cli.contexts import choice
from barnabas.cli.raw_requests import Wire
from barnabas.metadata.acls import AclOperation, AclPattern, AclPermission, AclResource
from barnabas.protocol.message import Struct
from barnabas.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from barnabas.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from barnabas.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from barnabas.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from barnabas.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse

pytestmark = pytest.mark.full
_SCRAM: Final = "SCRAM-SHA-256"
#: Times are compared in minutes.
_MINUTE_MS: Final = 60_000
#: The time in which Kafka's nodes, which look tokens up in a cache, have followed the metadata.
_PUBLISHED_S: Final = 0.7
_PASSWORDS: Final = {"alice": PASSWORD, "node": NODE_PASSWORD, "bob": "bob-marker-Secret"}


class Side:
    """The connections to one of the clusters, and the tokens that it has made."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._wires: dict[str, Wire] = {}
        self.tokens: list[CreateDelegationTokenResponse] = []
        self.answers: list[Any] = []

    def wire(self, user: str) -> Wire:
        if user not in self._wires:
            settings = client_properties(self._bootstrap, "PLAIN", user, _PASSWORDS.get(user, ""))
            if user.startswith("token"):
                token = self.tokens[int(user.removeprefix("token"))]
                entry = jaas(_SCRAM, token.token_id, base64.b64encode(token.hmac).decode())
                settings = {
                    "security.protocol": "SASL_PLAINTEXT",
                    "sasl.mechanism": _SCRAM,
                    "sasl.jaas.config": entry.replace(";", ' tokenauth="true";'),
                }
            choice.set_client_settings({key: value for key, value in settings.items() if key != "bootstrap.servers"})
            host, _, port = self._bootstrap.rpartition(":")
            self._wires[user] = Wire(host, int(port))
            choice.set_client_settings({})
        return self._wires[user]

    def close(self) -> None:
        for wire in self._wires.values():
            wire.__exit__(None, None, None)

    def create(
        self, user: str, version: int, *, owner: str = "", renewers: Sequence[str] = (), lifetime_ms: int = -1
    ) -> None:
        request = CreateDelegationTokenRequest(max_lifetime_ms=lifetime_ms)
        request.renewers = [
            CreateDelegationTokenRequest.CreatableRenewers(
                principal_type=each.partition(":")[0], principal_name=each.partition(":")[2]
            )
            for each in renewers
        ]
        if owner:
            request.owner_principal_type, _, request.owner_principal_name = owner.partition(":")
        answer = self.wire(user).call(request, version, CreateDelegationTokenResponse)
        if not answer.error_code:
            self.tokens.append(answer)
        self._note(answer)
        time.sleep(_PUBLISHED_S)

    def renew(self, user: str, token: int | None, period_ms: int, version: int = 2) -> None:
        request = RenewDelegationTokenRequest(hmac=self._hmac(token), renew_period_ms=period_ms)
        self._note(self.wire(user).call(request, version, RenewDelegationTokenResponse))

    def expire(self, user: str, token: int | None, period_ms: int, version: int = 2) -> None:
        request = ExpireDelegationTokenRequest(hmac=self._hmac(token), expiry_time_period_ms=period_ms)
        self._note(self.wire(user).call(request, version, ExpireDelegationTokenResponse))
        time.sleep(_PUBLISHED_S if period_ms < 0 else 0)

    def describe(self, user: str, owners: Sequence[str] | None, version: int = 3) -> None:
        request = DescribeDelegationTokenRequest(owners=None)
        if owners is not None:
            request.owners = [
                DescribeDelegationTokenRequest.DescribeDelegationTokenOwner(
                    principal_type=owner.partition(":")[0], principal_name=owner.partition(":")[2]
                )
                for owner in owners
            ]
        answer = self.wire(user).call(request, version, DescribeDelegationTokenResponse)
        answer.tokens.sort(key=lambda token: self._place(token.token_id))
        self._note(answer)

    def allow(self, operation: AclOperation, resource: AclResource, name: str) -> None:
        creation = CreateAclsRequest.AclCreation(
            resource_type=resource,
            resource_name=name,
            resource_pattern_type=AclPattern.LITERAL,
            principal="User:alice",
            host="*",
            operation=operation,
            permission_type=AclPermission.ALLOW,
        )
        self._note(self.wire("node").call(CreateAclsRequest(creations=[creation]), 3, CreateAclsResponse))
        time.sleep(_PUBLISHED_S)

    def _hmac(self, token: int | None) -> bytes:
        return b"unknown" if token is None else bytes(self.tokens[token].hmac)

    def _place(self, token_id: str) -> int:
        return [token.token_id for token in self.tokens].index(token_id)

    def _note(self, answer: Struct) -> None:
        self.answers.append(self._shown(answer, round(time.time() * 1000)))

    def _shown(self, struct: Struct, now_ms: int) -> dict[str, Any]:
        found: dict[str, Any] = {"type": type(struct).__name__}
        for field in struct.FIELDS:
            value = getattr(struct, field.attribute)
            if field.attribute == "token_id" and value:
                value = f"token {self._place(value)}"
            elif field.attribute == "hmac" and value:
                (place,) = [i for i, token in enumerate(self.tokens) if token.hmac == value]
                value = f"hmac {place} of {len(value)} bytes"
            elif "timestamp" in field.attribute and value > 0:
                value = f"now + {round((value - now_ms) / _MINUTE_MS)} minutes"
            elif field.is_array:
                value = [self._shown(each, now_ms) for each in value]
            found[field.attribute] = value
        return found


def _script(side: Side) -> None:
    """Sends the requests. Token 4 is of bob."""
    for version in range(1, 4):
        side.create("alice", version)
    for lifetime_ms in (0, 600_000, 1 << 50):
        side.create("alice", 3, lifetime_ms=lifetime_ms)
    side.create("bob", 3, renewers=["User:alice", "User:carol"])
    side.create("alice", 3, renewers=["Group:staff"])
    side.create("alice", 3, owner="User:alice")
    side.create("alice", 3, owner="User:bob")
    side.create("alice", 3, owner="User:bob", renewers=["Group:staff"])
    side.create("node", 3, owner="Group:staff")
    for version in range(1, 4):
        side.describe("alice", None, version)
    for owners in ([], ["User:alice"], ["User:carol"], ["User:bob", "User:nobody"], ["Group:staff"]):
        side.describe("alice", owners)
    side.allow(AclOperation.CREATE_TOKENS, AclResource.USER, "User:bob")
    side.create("alice", 3, owner="User:bob")
    side.describe("alice", None)
    side.allow(AclOperation.DESCRIBE_TOKENS, AclResource.USER, "Group:staff")
    side.describe("alice", None)
    for user in ("alice", "bob", "node"):
        for token in (None, 0, 5, 7, 9):
            for period_ms in (-1, 0, 120_000, 1 << 50):
                side.renew(user, token, period_ms)
                if period_ms >= 0:
                    side.expire(user, token, period_ms + 300_000)
    # Kafka derives the credentials of each of these changes, which takes seconds.
    time.sleep(6)
    for version in (1, 2):
        side.renew("alice", 1, 180_000, version)
        side.expire("alice", version, -1, version)
        side.expire("alice", version, -1, version)
        side.renew("alice", version, -1, version)
    side.describe("node", None)
    for user in ("token7", "token8"):
        side.create(user, 3)
        side.create(user, 2)
        side.renew(user, 3, -1)
        side.expire(user, 3, -1)
        side.describe(user, None)


@pytest.fixture
def sides(tmp_path: Path) -> Iterator[list[Side]]:
    servers: list[Any] = []
    found: list[Side] = []
    try:
        for make in (kafka_jars.KafkaServer, BarnabasServer):
            folder = tmp_path / make.__name__
            folder.mkdir()
            port, controller_port = kafka_jars.free_ports(2)
            properties = secured(port, controller_port) | {
                "delegation.token.secret.key": "key-marker-Secret",
                "authorizer.class.name": STANDARD,
                "super.users": "User:node",
            }
            entry = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
            properties[entry] = properties[entry].rstrip(";") + f' user_bob="{_PASSWORDS["bob"]}";'
            servers.append(make(folder, port=port, properties=properties))
            servers[-1].start()
            found.append(Side(servers[-1].bootstrap))
        yield found
    finally:
        for side in found:
            side.close()
        for server in servers:
            server.stop()


def test_the_answers_are_those_of_kafka(sides: list[Side]) -> None:
    for side in sides:
        _script(side)
    kafkas, ours = (side.answers for side in sides)
    assert len(kafkas) == len(ours) > 140
    differing = [
        difference
        for place, (theirs, own) in enumerate(zip(kafkas, ours, strict=True))
        for difference in _differences(f"answer {place}", theirs, own)
    ]
    assert not differing, "\n".join(differing)
    codes = {answer.get("error_code") for answer in kafkas}
    assert codes >= {0, 62, 63, 64, 65, 67}


def _differences(where: str, theirs: Any, own: Any) -> Iterator[str]:
    if isinstance(theirs, dict) and isinstance(own, dict):
        for name in theirs:
            yield from _differences(f"{where}.{name}", theirs[name], own[name])
    elif isinstance(theirs, list) and isinstance(own, list) and len(theirs) == len(own):
        for place, pair in enumerate(zip(theirs, own, strict=True)):
            yield from _differences(f"{where}[{place}]", *pair)
    elif theirs != own:
        yield f"{where}: {theirs!r} of Kafka, {own!r} of Barnabas"
