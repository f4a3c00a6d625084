"""TLS with ZooKeeper and ACLs of znodes: which settings a broker takes, and what it says of the others."""

from __future__ import annotations

import pytest

from barnabas.common import zookeeper_security
from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ConfigError

MINIMAL = {"broker.id": "1", "listeners": "PLAINTEXT://127.0.0.1:9092", "zookeeper.connect": "127.0.0.1:2281/kafka"}
NETTY = "org.apache.zookeeper.ClientCnxnSocketNetty"
TLS = {"ssl.client.enable": "true", "clientCnxnSocket": NETTY}
KEY_STORE = {"ssl.keystore.location": "/keys.p12"}


def build(changes: dict[str, str]) -> BrokerConfig:
    return BrokerConfig.from_properties({**MINIMAL, **{f"zookeeper.{key}": text for key, text in changes.items()}})


def test_plain_text_without_acls_is_the_default() -> None:
    config = build({})
    assert zookeeper_security.tls_name(config) is None
    assert not zookeeper_security.sets_acls(config)


def test_a_certificate_is_an_identity_for_acls() -> None:
    config = build({**TLS, **KEY_STORE, "set.acl": "true"})
    assert zookeeper_security.tls_name(config) == "zookeeper"
    assert zookeeper_security.sets_acls(config)
    assert config.warnings == []


@pytest.mark.parametrize(
    "name", ["ClientCnxnSocketNetty", NETTY, "ClientCnxnSocketNIO", "org.apache.zookeeper.ClientCnxnSocketNIO"]
)
def test_connections_without_tls_have_either_class(name: str) -> None:
    assert zookeeper_security.tls_name(build({"clientCnxnSocket": name})) is None


@pytest.mark.parametrize(
    "changes, text",
    [
        ({"clientCnxnSocket": "Own"}, "Own for configuration zookeeper.clientCnxnSocket: org.apache.zookeeper.Client"),
        ({"ssl.client.enable": "true"}, f"TLS needs zookeeper.clientCnxnSocket={NETTY}"),
        ({**TLS, "clientCnxnSocket": "ClientCnxnSocketNIO"}, f"TLS needs zookeeper.clientCnxnSocket={NETTY}"),
        ({**TLS, "ssl.crl.enable": "true"}, "zookeeper.ssl.crl.enable: revocation of ZooKeeper's certificate"),
        ({**TLS, "ssl.ocsp.enable": "true"}, "zookeeper.ssl.ocsp.enable: revocation of ZooKeeper's certificate"),
        ({"set.acl": "true"}, "zookeeper.set.acl: the broker needs an identity in ZooKeeper, from a certificate"),
        ({**TLS, "set.acl": "true"}, "zookeeper.ssl.keystore.location are allowed; SASL to ZooKeeper is not supported"),
        ({**KEY_STORE, "set.acl": "true"}, "zookeeper.ssl.client.enable=true, zookeeper.clientCnxnSocket="),
        ({**TLS, "ssl.keystore.location": "", "set.acl": "true"}, "the broker needs an identity in ZooKeeper"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(changes: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        build(changes)
    assert text in str(refused.value)
    assert "\n" not in str(refused.value)


def test_stores_without_tls_are_warned_about() -> None:
    (warning,) = build(KEY_STORE).warnings
    assert warning.startswith("zookeeper.ssl.keystore.location has no effect: zookeeper.ssl.client.enable is not true")
