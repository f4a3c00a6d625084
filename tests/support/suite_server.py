"""A broker with every kind of listener, for the tests of other projects: TLS with certificates of clients, log-ins
in the clear and over TLS, and plain text. An authorizer judges all requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from tests.clients.servers import BarnabasServer
from tests.support.identity_provider import IdentityProvider
from tests.support.tls_stores import Stores
from tests.support.tokens import AUDIENCE, ISSUER

import kafka_jars
from barnabas.testing import Cluster

ADMIN: Final = "admin"
#: The user of suites that expect to be no super user.
USER: Final = "suite"
PASSWORD: Final = "admin-Secret"
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
#: The scope of the unsecured tokens of librdkafka's tests.
SCOPE: Final = "requiredScope"
_MODULES: Final = "org.apache.kafka.common.security"


class SuiteServer:
    """A broker whose super users are the nodes, the certificate CN=client and the user `admin`. Everybody else may do
    what no rule is about, as many suites expect.
    """

    def __init__(self, folder: Path, properties: Mapping[str, str] | None = None) -> None:
        self.stores = Stores(folder)
        self.stores.pem("broker")
        self.client_file = self.stores.pem("client")
        self.plain_port, self.tls_port, self.sasl_port, self.sasl_tls_port, controller_port = kafka_jars.free_ports(5)
        listeners = {
            "PLAINTEXT": self.plain_port,
            "SSL": self.tls_port,
            "SASL_PLAINTEXT": self.sasl_port,
            "SASL_SSL": self.sasl_tls_port,
            "CONTROLLER": controller_port,
        }
        chosen = {
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in listeners.items()),
            "listener.security.protocol.map": ",".join(
                f"{name}:{'SSL' if name == 'CONTROLLER' else name}" for name in listeners
            ),
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
            "inter.broker.listener.name": "SSL",
            "listener.name.ssl.ssl.client.auth": "required",
            "listener.name.controller.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:CN=broker;User:CN=client;User:{ADMIN}",
            "allow.everyone.if.no.acl.found": "true",
            "num.partitions": "4",
            **self.stores.settings("PEM", "broker"),
            **entries("sasl_plaintext"),
            **entries("sasl_ssl"),
            **(properties or {}),
        }
        self.server = BarnabasServer(folder / "server", port=self.plain_port, properties=chosen)

    def start(self) -> SuiteServer:
        """Starts the broker, with credentials of `admin` for each mechanism."""
        self.server.start()
        settings: dict[str, Any] = {
            "bootstrap.servers": f"127.0.0.1:{self.sasl_port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": ADMIN,
            "sasl.password": PASSWORD,
        }
        add_user(settings, ADMIN)
        return self

    def tls_settings(self) -> dict[str, str]:
        """Returns the settings of librdkafka with the certificate of a client."""
        return {"bootstrap.servers": f"127.0.0.1:{self.tls_port}", **self.stores.librdkafka("client")}

    def plain_settings(self) -> dict[str, str]:
        """Returns the settings of librdkafka for the listener without TLS and log-in."""
        return {"bootstrap.servers": f"127.0.0.1:{self.plain_port}"}

    def stop(self) -> None:
        self.server.stop()


class SuiteCluster:
    """An embedded secure cluster of three brokers, and a user of SCRAM who is no super user: as everybody, it may do
    what no rule is about.
    """

    def __init__(self, folder: Path, properties: Mapping[str, str] | None = None) -> None:
        chosen = {"allow.everyone.if.no.acl.found": "true", "num.partitions": "4", **(properties or {})}
        self.cluster = Cluster(folder, brokers=3, secure=True, properties=chosen).start()
        settings: dict[str, Any] = {"bootstrap.servers": self.cluster.bootstrap, **self.cluster.client_settings}
        add_user(settings, USER)
        self.settings: dict[str, str] = {
            **settings,
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }

    @property
    def command_config(self) -> Path:
        """Returns the properties file by which Kafka's tools log in as the super user."""
        return self.cluster.directory / "security" / "admin-java.properties"

    def token_settings(self, settings: Mapping[str, str]) -> dict[str, str]:
        """Returns the settings of librdkafka for a client that logs in by tokens, which `settings` are about."""
        kept = ("bootstrap.servers", "security.protocol", "ssl.ca.location")
        return {**{key: self.settings[key] for key in kept}, "sasl.mechanism": "OAUTHBEARER", **settings}

    def stop(self) -> None:
        self.cluster.close()


class UnsecuredTokenCluster(SuiteCluster):
    """A `SuiteCluster` whose clients log in by unsecured tokens as well, with the scope of librdkafka's tests."""

    def __init__(self, folder: Path, properties: Mapping[str, str]) -> None:
        super().__init__(folder, _oauthbearer(f'unsecuredValidatorRequiredScope="{SCOPE}"') | dict(properties))

    def unsecured_settings(self) -> dict[str, str]:
        """Returns the settings of librdkafka for the super user with tokens that it makes itself."""
        return self.token_settings(
            {
                "enable.sasl.oauthbearer.unsecure.jwt": "true",
                "sasl.oauthbearer.config": f"principal={ADMIN} scope={SCOPE}",
            }
        )


class TokenCluster(SuiteCluster):
    """A `SuiteCluster` whose clients log in by tokens of a provider as well."""

    def __init__(self, folder: Path, provider: IdentityProvider, properties: Mapping[str, str] | None = None) -> None:
        self._provider = provider
        super().__init__(
            folder,
            {
                **_oauthbearer(),
                "sasl.oauthbearer.jwks.endpoint.url": provider.keys_url,
                "sasl.oauthbearer.expected.audience": AUDIENCE,
                "sasl.oauthbearer.expected.issuer": ISSUER,
                "barnabas.sasl.oauthbearer.allowed.urls": provider.keys_url,
                **(properties or {}),
            },
        )

    def oidc_settings(self, client: str, secret: str) -> dict[str, str]:
        """Returns the settings of librdkafka for a client of the provider."""
        return self.token_settings(
            {
                "sasl.oauthbearer.method": "OIDC",
                "sasl.oauthbearer.client.id": client,
                "sasl.oauthbearer.client.secret": secret,
                "sasl.oauthbearer.token.endpoint.url": self._provider.token_url,
            }
        )

    def variables(self, folder: Path) -> dict[str, str]:
        """Returns the variables of test 0126 of librdkafka, and writes the private keys that they name."""
        key, encrypted = folder / "asserting.pem", folder / "asserting-encrypted.pem"
        key.write_bytes(self._provider.asserting.as_pem(private=True))
        encrypted.write_bytes(self._provider.asserting.as_pem(private=True, password=PASSWORD))
        return {
            "VALID_OIDC_URL": self._provider.token_url,
            "INVALID_OIDC_URL": self._provider.url("malformed"),
            "EXPIRED_TOKEN_OIDC_URL": self._provider.url("expired"),
            "OAUTHBEARER_CLIENT_PRIVATE_KEY": str(key),
            "OAUTHBEARER_CLIENT_PRIVATE_KEY_ENCRYPTED": str(encrypted),
            "OAUTHBEARER_CLIENT_PRIVATE_KEY_PASSWORD": PASSWORD,
        }


def add_user(settings: dict[str, Any], name: str) -> None:
    """Creates a user of SCRAM, by requests of a client with these settings."""
    admin = AdminClient(settings)
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        change = UserScramCredentialUpsertion(name, ScramCredentialInfo(mechanism, 4_096), PASSWORD.encode())
        for done in admin.alter_user_scram_credentials([change]).values():
            done.result(30)


def _oauthbearer(options: str = "") -> dict[str, str]:
    """Returns the settings of a secure cluster's nodes that add OAUTHBEARER, with options of its JAAS entry."""
    entry = f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required {options}".rstrip()
    return {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,SCRAM-SHA-256,OAUTHBEARER",
        "listener.name.sasl_ssl.oauthbearer.sasl.jaas.config": f"{entry};",
    }


def entries(listener: str) -> dict[str, str]:
    """Returns the JAAS entries of a listener."""
    scram = f"{_MODULES}.scram.ScramLoginModule required;"
    plain = f'{_MODULES}.plain.PlainLoginModule required user_{ADMIN}="{PASSWORD}";'
    return {
        f"listener.name.{listener}.plain.sasl.jaas.config": plain,
        f"listener.name.{listener}.scram-sha-256.sasl.jaas.config": scram,
        f"listener.name.{listener}.scram-sha-512.sasl.jaas.config": scram,
    }
