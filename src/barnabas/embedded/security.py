"""The security of an embedded cluster: its certificate authority, its users, and what nodes and clients must set.

    DIR/security/ca.pem, ca-key.pem      the certificate authority
    DIR/security/broker-1.pem            the key and certificate of a node
    DIR/security/users.json              the passwords of the first users
    DIR/security/admin.properties        client settings of the user `admin`, by librdkafka's names
    DIR/security/admin-java.properties   the same for Java's clients and Kafka's tools

All listeners have TLS and a log-in (SASL_SSL). Nodes log in to each other as `node`, with PLAIN. Clients use PLAIN or
SCRAM: `barnabas users add` creates users of SCRAM. Kafka's StandardAuthorizer decides: `node` and `admin` can do
everything, other users what the rules allow (`barnabas acls add`). All files are readable by their owner only.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from barnabas.embedded.authority import Authority, issue, make_authority, write_private
from barnabas.embedded.failures import Failure
from barnabas.embedded.ports import HOST
from barnabas.embedded.settings import properties_text

#: The user of the nodes, and that of the cluster's owner. Both are super users.
NODE: Final = "node"
ADMIN: Final = "admin"
_PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
_PASSWORD_BYTES: Final = 24
#: The file that is written last: if it exists, the directory is complete.
_USERS: Final = "users.json"


class Security(NamedTuple):
    """The security of one cluster, in its directory."""

    authority: Authority
    #: User name -> password.
    passwords: Mapping[str, str]

    @property
    def directory(self) -> Path:
        return self.authority.directory

    @property
    def admin_file(self) -> Path:
        return self.directory / "admin.properties"

    @property
    def java_file(self) -> Path:
        return self.directory / "admin-java.properties"

    def node_settings(self, node_id: int, port: int, controller_port: int) -> dict[str, str]:
        """Issues the certificate of a node, and returns its settings for listeners, TLS, log-in and rules. Raises
        Failure without the package `cryptography`.
        """
        store = self.directory / f"broker-{node_id}.pem"
        if not store.exists():
            issue(self.authority, f"broker-{node_id}", [HOST, "localhost"])
        users = " ".join(f'user_{name}="{password}"' for name, password in self.passwords.items())
        own = f'username="{NODE}" password="{self.passwords[NODE]}"'
        entry = f"{_PLAIN} required {own} {users};"
        return {
            "listeners": f"SASL_SSL://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
            "advertised.listeners": f"SASL_SSL://{HOST}:{port}",
            "listener.security.protocol.map": "CONTROLLER:SASL_SSL,SASL_SSL:SASL_SSL",
            "inter.broker.listener.name": "SASL_SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(store),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.certificate),
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,SCRAM-SHA-256",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": entry,
            "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.controller.plain.sasl.jaas.config": entry,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{NODE};User:{ADMIN}",
        }

    def write_client_files(self) -> None:
        """Writes the settings of the user admin; they contain the path of the directory."""
        write_private(self.admin_file, properties_text(self.client_settings()))
        write_private(self.java_file, properties_text(self.java_settings()))

    def client_settings(self, user: str = ADMIN) -> dict[str, str]:
        """Returns the settings of a client of this user, by librdkafka's names."""
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": self.passwords[user],
            "ssl.ca.location": str(self.authority.certificate),
        }

    def java_settings(self, user: str = ADMIN) -> dict[str, str]:
        """Returns the settings of a Java client of this user."""
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{_PLAIN} required username="{user}" password="{self.passwords[user]}";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.certificate),
        }


def make_security(directory: Path) -> Security:
    """Creates the security of the cluster in this directory. Raises Failure without the package `cryptography`, and
    OSError.
    """
    authority = make_authority(directory / "security")
    os.chmod(authority.directory, 0o700)
    made = Security(authority, {name: secrets.token_urlsafe(_PASSWORD_BYTES) for name in (NODE, ADMIN)})
    made.write_client_files()
    write_private(authority.directory / _USERS, json.dumps(made.passwords, indent=2) + "\n")
    return made


def security_of(directory: Path) -> Security | None:
    """Returns the security of the cluster in this directory; None if it has none. Raises Failure for a damaged file."""
    authority = Authority(directory / "security")
    file = authority.directory / _USERS
    if not file.exists():
        return None
    try:
        found = json.loads(file.read_text())
        return Security(authority, {name: str(found[name]) for name in (NODE, ADMIN)})
    except (ValueError, KeyError, TypeError) as error:
        raise Failure(
            f"{file} is damaged: it must be a JSON object with the passwords of {NODE} and {ADMIN}",
            "remove the directory that contains it: `barnabas up --secure` creates it again, with new passwords",
        ) from error
