"""How a broker in ZooKeeper mode secures its connections to ZooKeeper, and its znodes there.

`zookeeper.ssl.client.enable` chooses TLS; a key store (`zookeeper.ssl.keystore.location`) gives the broker an identity
of the scheme x509, which `zookeeper.set.acl` needs. Where Kafka's client would continue without a protection that the
configuration asks for, the broker does not start.
"""

from __future__ import annotations

from typing import Final

from barnabas.common.config_keys import invalid
from barnabas.common.settings import Settings

#: The name of the TLS contexts of connections to ZooKeeper (`common.host.Links.dial`). No listener has it, because the
#: names of listeners are in capital letters.
TLS_NAME: Final = "zookeeper"

_ENABLE: Final = "zookeeper.ssl.client.enable"
_SOCKET: Final = "zookeeper.clientCnxnSocket"
_KEY_STORE: Final = "zookeeper.ssl.keystore.location"
_SET_ACL: Final = "zookeeper.set.acl"
_PACKAGE: Final = "org.apache.zookeeper."
_NETTY: Final = "ClientCnxnSocketNetty"
#: Kafka's client has no TLS with this one.
_NIO: Final = "ClientCnxnSocketNIO"
#: Checks of revoked certificates, which OpenSSL makes only with files of the lists.
_REVOCATION: Final = ("zookeeper.ssl.crl.enable", "zookeeper.ssl.ocsp.enable")


def check(config: Settings) -> None:
    """Raises ConfigError for settings that exclude each other, and for those that are not supported."""
    kind = config.str_or_none(_SOCKET) or ""
    name = kind.removeprefix(_PACKAGE)
    if name not in ("", _NETTY, _NIO):
        raise invalid(_SOCKET, kind, f"{_PACKAGE}{_NETTY} and {_PACKAGE}{_NIO} are allowed")
    for key in _REVOCATION:
        if config.bool_of(key):
            raise invalid(key, "true", "revocation of ZooKeeper's certificate is not checked; only false is allowed")
    if config.bool_of(_ENABLE) and name != _NETTY:
        raise invalid(_ENABLE, "true", f"TLS needs {_SOCKET}={_PACKAGE}{_NETTY}, as in Kafka")
    if config.bool_of(_SET_ACL) and (not config.bool_of(_ENABLE) or not config.str_or_none(_KEY_STORE)):
        raise invalid(
            _SET_ACL,
            "true",
            f"the broker needs an identity in ZooKeeper, from a certificate: {_ENABLE}=true, "
            f"{_SOCKET}={_PACKAGE}{_NETTY} and {_KEY_STORE} are allowed; SASL to ZooKeeper is not supported",
        )


def warnings_of(config: Settings) -> list[str]:
    """Returns warnings about settings that have no effect."""
    if config.bool_of(_ENABLE):
        return []
    names = sorted(name for name in config.originals if name.startswith("zookeeper.ssl.") and name != _ENABLE)
    return [f"{name} has no effect: {_ENABLE} is not true, so connections to ZooKeeper have no TLS" for name in names]


def tls_name(config: Settings) -> str | None:
    """Returns the name of the TLS contexts of connections to ZooKeeper; None means plain text."""
    # A node in KRaft mode has no such key.
    return TLS_NAME if config.value_or_none(_ENABLE) is True else None


def sets_acls(config: Settings) -> bool:
    """Returns whether only the creator of a znode can change it."""
    return config.bool_of(_SET_ACL)
