"""ZooKeeper servers with TLS: Apache's with a secure port, and ours behind a process-local end of TLS; the settings of
brokers for them.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

from tests.support.tls_stores import PASSWORD, Stores

from kafka_jars import free_ports
from zookeeper_jars import ApacheZooKeeper

NETTY = "org.apache.zookeeper.ClientCnxnSocketNetty"


def client_settings(stores: Stores, kind: str, name: str | None) -> dict[str, str]:
    """Returns the settings of a broker with the certificate `name`, or without one, in stores of one kind."""
    found = stores.settings(kind, name or "broker", "zookeeper.")
    found.pop("zookeeper.ssl.key.password", None)
    if name is None:
        found = {key: text for key, text in found.items() if "keystore" not in key}
    return {"zookeeper.ssl.client.enable": "true", "zookeeper.clientCnxnSocket": NETTY, **found}


class SecureZooKeeper(ApacheZooKeeper):
    """An Apache server with a plain port, for four-letter words, and a port with TLS that requires certificates."""

    def __init__(self, directory: Path, stores: Stores, name: str) -> None:
        (self.secure_port,) = free_ports(1)
        super().__init__(
            directory,
            properties={
                "secureClientPort": str(self.secure_port),
                "secureClientPortAddress": "127.0.0.1",
                "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
                "authProvider.x509": "org.apache.zookeeper.server.auth.X509AuthenticationProvider",
                "ssl.keyStore.location": str(stores.pkcs12(name)),
                "ssl.keyStore.password": PASSWORD,
                "ssl.trustStore.location": str(stores.trust("JKS")),
                "ssl.trustStore.password": PASSWORD,
                "ssl.clientAuth": "need",
                # Certificates of clients are for addresses of this machine, which have no names that are certain.
                "ssl.hostnameVerification": "false",
            },
        )


@contextlib.contextmanager
def tls_before(port: int, stores: Stores, name: str) -> Iterator[int]:
    """Yields a port with TLS, whose connections continue to `port` in plain text."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(stores.authority.directory / f"{name}.pem")
    context.load_verify_locations(stores.trusted)
    context.verify_mode = ssl.CERT_REQUIRED
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_accept, args=(listener, context, port), daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def _accept(listener: socket.socket, context: ssl.SSLContext, port: int) -> None:
    with contextlib.suppress(OSError):
        while True:
            accepted, _ = listener.accept()
            threading.Thread(target=_join, args=(accepted, context, port), daemon=True).start()


def _join(accepted: socket.socket, context: ssl.SSLContext, port: int) -> None:
    with (
        contextlib.suppress(OSError),
        context.wrap_socket(accepted, server_side=True) as near,
        socket.create_connection(("127.0.0.1", port)) as far,
    ):
        back = threading.Thread(target=_copy, args=(far, near), daemon=True)
        back.start()
        _copy(near, far)
        back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)
