"""TLS of the commands that connect to ZooKeeper: the file of `--zk-tls-config-file`, as Kafka's tools read it."""

from __future__ import annotations

import ssl
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from barnabas.common import zookeeper_security
from barnabas.common.config import parse_properties
from barnabas.common.errors import ConfigError
from barnabas.common.settings import Settings
from barnabas.embedded.failures import Failure

TlsConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--zk-tls-config-file",
        metavar="FILE",
        help="Connect to ZooKeeper with TLS: a properties file with zookeeper.ssl.* and zookeeper.clientCnxnSocket, "
        "such as that of a broker; its other keys are ignored",
    ),
]


def tls_settings(file: Path | None) -> Settings | None:
    """Returns the settings of connections to ZooKeeper; None without a file, for plain text. Raises Failure for a file
    that cannot be read, and for settings that are not those of TLS.
    """
    if file is None:
        return None
    try:
        properties = parse_properties(file.read_text("utf-8"))
        kept = {
            key: text
            for key, text in properties.items()
            if key.startswith("zookeeper.ssl.") or key == "zookeeper.clientCnxnSocket"
        }
        # The key that chooses the mode has no further meaning here.
        settings = Settings({**kept, "zookeeper.connect": "unused"})
        zookeeper_security.check(settings)
    except OSError as error:
        raise Failure(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise Failure(f"cannot read {file}: the file is not UTF-8") from error
    except ConfigError as error:
        raise Failure(f"{file}: {error}") from error
    if zookeeper_security.tls_name(settings) is None:
        raise Failure(f"{file} does not choose TLS", "it needs zookeeper.ssl.client.enable=true")
    return settings


def tls_context(file: Path | None) -> ssl.SSLContext | None:
    """Returns the context of connections that block; None without a file. Raises Failure."""
    settings = tls_settings(file)
    if settings is None:
        return None
    try:
        made = import_module("barnabas.tls.zookeeper_contexts").ZooKeeperContexts(settings)
    except ConfigError as error:
        raise Failure(f"{file}: {error}") from error
    context: ssl.SSLContext = made.client(zookeeper_security.TLS_NAME)
    return context
