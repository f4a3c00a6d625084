"""The TLS context of connections to ZooKeeper: stores, versions, and what is refused."""

from __future__ import annotations

import os
import shutil
import ssl
from pathlib import Path

import pytest
from tests.support.tls_stores import PASSWORD, Stores, run

from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ConfigError
from barnabas.tls.listener_contexts import ListenerContexts, handshake
from barnabas.tls.listener_settings import ListenerSettings, Place, StoreSettings
from barnabas.tls.zookeeper_contexts import ZooKeeperContexts
from barnabas.tls.zookeeper_settings import zookeeper_settings

KINDS = ("PEM", "PKCS12", "JKS")


def config(settings: dict[str, str]) -> BrokerConfig:
    return BrokerConfig.from_properties(
        {
            "broker.id": "1",
            "listeners": "PLAINTEXT://127.0.0.1:9092",
            "zookeeper.connect": "127.0.0.1:2281",
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
            **settings,
        }
    )


def stores_of(stores: Stores, kind: str) -> dict[str, str]:
    """Returns the settings for stores of one kind, with their types."""
    found = stores.settings(kind, "broker", "zookeeper.")
    found.pop("zookeeper.ssl.key.password", None)
    return found


def server_of(stores: Stores) -> ssl.SSLContext:
    """Returns the context of a server that asks for a certificate."""
    own = StoreSettings("PEM", str(stores.authority.directory / "broker.pem"))
    others = StoreSettings("PEM", str(stores.trusted))
    settings = ListenerSettings(
        Place("server"), own, others, "required", ("TLSv1.2", "TLSv1.3"), (), True, "DEFAULT", False, False
    )
    server = ListenerContexts(settings).server
    assert server is not None
    return server


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_typed", [False, True])
def test_the_type_of_a_store_is_given_or_the_end_of_its_name(stores: Stores, kind: str, is_typed: bool) -> None:
    settings = stores_of(stores, kind)
    if not is_typed:
        if kind == "PKCS12":
            shutil.copy(settings["zookeeper.ssl.truststore.location"], stores.folder / "trusted.pfx")
            settings["zookeeper.ssl.truststore.location"] = str(stores.folder / "trusted.pfx")
        del settings["zookeeper.ssl.keystore.type"], settings["zookeeper.ssl.truststore.type"]
    handshake(server_of(stores), ZooKeeperContexts(config(settings)).client("zookeeper"))


def test_a_server_that_asks_for_a_certificate_refuses_a_client_without_a_key_store(stores: Stores) -> None:
    settings = stores_of(stores, "PEM")
    del settings["zookeeper.ssl.keystore.location"]
    with pytest.raises(ssl.SSLError):
        handshake(server_of(stores), ZooKeeperContexts(config(settings)).client("zookeeper"))


def test_the_password_of_a_pem_store_is_that_of_its_key(stores: Stores, tmp_path: Path) -> None:
    plain = stores.authority.directory / "broker.pem"
    key, file = tmp_path / "key.pem", tmp_path / "encrypted.pem"
    run("openssl", "pkcs8", "-topk8", "-in", plain, "-out", key, "-passout", f"pass:{PASSWORD}")
    _, begin, chain = plain.read_text().partition("-----BEGIN CERTIFICATE-----")
    file.write_text(key.read_text() + begin + chain)
    settings = stores_of(stores, "PEM") | {"zookeeper.ssl.keystore.location": str(file)}
    with pytest.raises(ConfigError, match=r"encrypted: zookeeper\.ssl\.keystore\.password is needed"):
        ZooKeeperContexts(config(settings))
    with pytest.raises(ConfigError, match=r"or zookeeper\.ssl\.keystore\.password is wrong"):
        ZooKeeperContexts(config(settings | {"zookeeper.ssl.keystore.password": "sesame"}))
    settings["zookeeper.ssl.keystore.password"] = PASSWORD
    handshake(server_of(stores), ZooKeeperContexts(config(settings)).client("zookeeper"))


@pytest.mark.parametrize(
    "settings, versions",
    [
        ({}, ("TLSv1.2",)),
        ({"protocol": "TLSv1.3"}, ("TLSv1.3",)),
        ({"protocol": "TLS"}, ("TLSv1.2", "TLSv1.3")),
        ({"enabled.protocols": "TLSv1.3,TLSv1.2"}, ("TLSv1.3", "TLSv1.2")),
    ],
)
def test_the_protocol_is_the_version_unless_versions_are_enabled(
    settings: dict[str, str], versions: tuple[str, ...]
) -> None:
    found = zookeeper_settings(config({f"zookeeper.ssl.{key}": text for key, text in settings.items()}))
    assert found.versions == versions


@pytest.mark.parametrize("algorithm, checks", [(None, True), ("HTTPS", True), ("https", True), ("", False)])
def test_the_name_of_the_server_is_checked_unless_the_algorithm_is_empty(algorithm: str | None, checks: bool) -> None:
    key = "zookeeper.ssl.endpoint.identification.algorithm"
    settings = {} if algorithm is None else {key: algorithm}
    assert ZooKeeperContexts(config(settings)).client("zookeeper").check_hostname is checks


@pytest.mark.parametrize(
    "settings, text",
    [
        (
            {"keystore.location": "/no/file.pem"},
            "zookeeper.ssl.keystore.location=/no/file.pem: cannot be read: No such",
        ),
        ({"truststore.location": "/no/file.jks"}, "zookeeper.ssl.truststore.location=/no/file.jks: cannot be read"),
        ({"keystore.location": "/keys"}, "zookeeper.ssl.keystore.type is needed (JKS, PKCS12, PEM)"),
        ({"keystore.location": "/k", "keystore.type": "BCFKS"}, "zookeeper.ssl.keystore.type: JKS, PKCS12, PEM are"),
        ({"protocol": "SSLv3"}, "SSLv3 for configuration zookeeper.ssl.protocol: TLS, TLSv1.2, TLSv1.3 are allowed"),
        ({"enabled.protocols": "TLSv1"}, "zookeeper.ssl.enabled.protocols: TLSv1.2, TLSv1.3 are allowed"),
        ({"endpoint.identification.algorithm": "LDAPS"}, "https and an empty value are allowed"),
        (
            {"cipher.suites": "TLS_AES_256_GCM_SHA384,TLS_AES_128_GCM_SHA256,TLS_CHACHA20_POLY1305_SHA256"},
            "has no suite for zookeeper.ssl.enabled.protocols=TLSv1.2",
        ),
    ],
)
def test_what_is_wrong_names_its_key(settings: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        ZooKeeperContexts(config({f"zookeeper.ssl.{key}": value for key, value in settings.items()}))
    assert text in str(refused.value)


def test_a_store_that_was_replaced_counts_for_the_next_connection(
    stores: Stores, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "own.pem"
    shutil.copy(stores.authority.directory / "broker.pem", file)
    contexts = ZooKeeperContexts(config(stores_of(stores, "PEM") | {"zookeeper.ssl.keystore.location": str(file)}))
    first = contexts.client("zookeeper")
    assert contexts.client("zookeeper") is first
    file.write_text("no key")
    os.utime(file, ns=(1, 1))
    assert contexts.client("zookeeper") is first
    assert "the former certificates stay: connections to ZooKeeper: zookeeper.ssl.keystore.location=" in caplog.text
    shutil.copy(stores.pem("renewed"), file)
    os.utime(file, ns=(2, 2))
    renewed = contexts.client("zookeeper")
    assert renewed is not first
    handshake(server_of(stores), renewed)
