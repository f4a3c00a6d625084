"""Passwords, keys and tokens of a cluster that works, fails and is administered: no log, file, response, metric or
text of an object has them.
"""

from __future__ import annotations

import base64
import gc
import logging
from collections.abc import Iterator

import pytest
from tests.simulation.test_log_in import _TOKENS, PASSWORD, Secured, _create, _properties
from tests.support.metrics import scraped

from barnabas.protocol.message import Message, Struct
from barnabas.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from barnabas.protocol.messages.create_delegation_token import CreateDelegationTokenResponse
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from barnabas.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from barnabas.protocol.messages.envelope import EnvelopeRequest
from barnabas.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.messages.records_metadata import ConfigRecord, UserScramCredentialRecord
from barnabas.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas.protocol.peer_security import ChannelSecurity
from barnabas.protocol.sasl.logins import Login
from barnabas.records.batch import decode_batch, iter_headers
from barnabas.simulation.worlds.replicated import RawClient

#: A part of each secret of the test: passwords, the salted password of a user.
MARKER = "marker-Secret"
JAAS = "listener.name.plaintext.plain.sasl.jaas.config"


def _set_users(cluster: Secured, entry: str) -> tuple[int, str | None]:
    config = IncrementalAlterConfigsRequest.AlterableConfig(name=JAAS, value=entry)
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=4, resource_name="1", configs=[config])
    answer = cluster.client.call(
        "broker1", IncrementalAlterConfigsRequest(resources=[resource]), IncrementalAlterConfigsResponse
    )
    return answer.responses[0].error_code, answer.responses[0].error_message


def _work(cluster: Secured) -> Iterator[Message]:
    """Sets, uses, guesses, replaces and describes secrets. Yields what a client is told."""
    upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name="carol", mechanism=1, iterations=4_096, salt=b"a salt of 16 byt", salted_password=MARKER.encode() * 3
    )
    for change in (upsertion, AlterUserScramCredentialsRequest.ScramCredentialUpsertion(name="", mechanism=1)):
        request = AlterUserScramCredentialsRequest(upsertions=[change])
        yield cluster.client.call("broker1", request, AlterUserScramCredentialsResponse)
    yield cluster.client.call(
        "broker1", DescribeUserScramCredentialsRequest(users=None), DescribeUserScramCredentialsResponse
    )
    entry = _properties()[JAAS]
    assert _set_users(cluster, entry.replace("alice-Secret", "alice-Secret2")) == (0, None)
    code, text = _set_users(cluster, f'evil.Module required password="{MARKER}";')
    assert code
    assert MARKER not in str(text)
    for name, mechanism in (("alice", "PLAIN"), ("carol", "SCRAM-SHA-256"), ("nobody", "SCRAM-SHA-512")):
        _guess(cluster, Login(mechanism, name, f"guess-{MARKER}"))
    every = [DescribeConfigsRequest.DescribeConfigsResource(resource_type=4, resource_name="1")]
    for version_has_more in (False, True):
        request_all = DescribeConfigsRequest(
            resources=every, include_synonyms=version_has_more, include_documentation=version_has_more
        )
        yield cluster.client.call("broker1", request_all, DescribeConfigsResponse)


def _guess(cluster: Secured, login: Login) -> None:
    stranger = RawClient(cluster.cluster, f"{login.username}s-host", security=ChannelSecurity(login=lambda: login))
    stranger.process.enter(lambda: stranger.send("broker1", MetadataRequest(topics=[]), lambda _: None))
    cluster.run_for(500)


def test_no_secret_is_shown_or_written(caplog: pytest.LogCaptureFixture) -> None:
    """Guard S8 (CVE-2026-33558): marker secrets, at DEBUG. The metadata log and its snapshots have dynamic settings, as
    Kafka's do; everything else that a node wrote is searched, and so is the text of each object of the product."""
    caplog.set_level(logging.DEBUG)
    cluster = Secured(3, _properties(**_TOKENS))
    cluster.create_topic("orders", [[1, 2, 3]])
    hmac = bytes(_create(cluster).hmac)
    secrets = (MARKER, base64.b64encode(hmac).decode(), hmac.hex(), repr(hmac)[2:-1])
    assert MARKER in _TOKENS["delegation.token.secret.key"]
    told = [str(answer) for answer in _work(cluster)]
    cluster.node(3).kill()
    cluster.run_for(4_000)
    assert "__cluster_events" in cluster.decided.topics_by_name, "the journal has entries"
    for where, text in (
        ("responses", " ".join(told)),
        ("log lines", " ".join(caplog.messages)),
        ("reports", " ".join(note.text for note in cluster.world.trace.notes)),
        ("metrics", scraped(cluster.broker(1)) + scraped(cluster.controller)),
    ):
        assert [secret for secret in secrets if secret in text] == [], where
    searched, journal, written = 0, b"", (hmac, *map(str.encode, secrets))
    for node in cluster.cluster.nodes.values():
        for path, data in _files(node.machine.disk, "/"):
            if "__cluster_metadata" not in path and "bootstrap.checkpoint" not in path:
                searched += len(data)
                opened = data + (_records_in(data) if path.endswith(".log") else b"")
                journal += opened if "__cluster_events" in path else b""
                assert [secret for secret in written if secret in opened] == [], path
    assert searched > 1_000
    assert b"jaas.config" in journal, "it has the change of the users"
    shown = {text.split(":")[0] for text in _texts_of_objects() if any(secret in text for secret in secrets)}
    assert shown == set()
    assert PASSWORD.endswith(MARKER)


def _records_in(log: bytes) -> bytes:
    """Returns the keys and values of a log. Batches of the journal are compressed."""
    records = [record for position, _ in iter_headers(log) for record in decode_batch(log, position)]
    return b" ".join((record.key or b"") + (record.value or b"") for record in records)


def _files(disk: object, folder: str) -> Iterator[tuple[str, bytes]]:
    for name in disk.list_dir(folder):  # type: ignore[attr-defined]
        path = f"{folder.rstrip('/')}/{name}"
        if disk.is_dir(path):  # type: ignore[attr-defined]
            yield from _files(disk, path)
        else:
            yield path, disk.read(path)  # type: ignore[attr-defined]


def _texts_of_objects() -> Iterator[str]:
    """Yields the texts of all objects of the product. Those of the simulation are the test's own."""
    for each in gc.get_objects():
        module = type(each).__module__
        if isinstance(module, str) and module.startswith("barnabas.") and ".simulation" not in module:
            if isinstance(each, type):
                continue
            yield f"{type(each).__qualname__}: {each!r}"


@pytest.mark.parametrize(
    "message",
    [
        SaslAuthenticateRequest(auth_bytes=f"\0alice\0{MARKER}".encode()),
        SaslAuthenticateResponse(auth_bytes=MARKER.encode()),
        EnvelopeRequest(request_data=f"a request with {MARKER}".encode()),
        UserScramCredentialRecord(name="carol", stored_key=MARKER.encode(), server_key=MARKER.encode()),
        CreateDelegationTokenResponse(hmac=MARKER.encode()),
        RenewDelegationTokenRequest(hmac=MARKER.encode()),
        ConfigRecord(name=JAAS, value=MARKER),
        ConfigRecord(name="listener.name.x.ssl.keystore.password", value=MARKER),
        IncrementalAlterConfigsRequest.AlterableConfig(name="ssl.keystore.key", value=MARKER),
        AlterUserScramCredentialsRequest(
            upsertions=[
                AlterUserScramCredentialsRequest.ScramCredentialUpsertion(name="x", salted_password=MARKER.encode())
            ]
        ),
    ],
)
def test_the_text_of_a_message_has_no_secret(message: Struct) -> None:
    """Guard S8 (CVE-2026-33558): requests and records get into errors and logs by their text."""
    assert "[hidden]" in repr(message)
    assert MARKER not in repr(message)
    assert "retention" in repr(ConfigRecord(name="x", value="retention"))
