"""The TLS contexts of a node: what it must not start with, and which certificates can replace others while it runs."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.tls_stores import PASSWORD, Stores, run

from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ConfigError
from barnabas.tls import pem
from barnabas.tls.certificates import parse_certificate
from barnabas.tls.listener_contexts import handshake
from barnabas.tls.listener_settings import Place, StoreSettings
from barnabas.tls.node_contexts import NodeContexts
from barnabas.tls.stores import read_trusted

KINDS = ("PEM", "PKCS12", "JKS")
#: A listener with TLS and a log-in.
LOG_IN = {
    "listeners": "SASL_SSL://localhost:9092,CONTROLLER://localhost:9093",
    "listener.security.protocol.map": "SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT",
    "security.inter.broker.protocol": "SASL_SSL",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.sasl_ssl.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="node" password="n" user_node="n";',
}
#: Lists that get the path and the flags of each file that is opened.
WATCHERS: list[list[tuple[object, int]]] = []
SUITE = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"


def watch(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open":
        path, _, flags = arguments
        for each in WATCHERS:
            each.append((path, flags))


sys.addaudithook(watch)


def config(settings: dict[str, str]) -> BrokerConfig:
    return BrokerConfig(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": "SSL://localhost:9092,CONTROLLER://localhost:9093",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": "1@localhost:9093",
            "security.inter.broker.protocol": "SSL",
            "listener.security.protocol.map": "SSL:SSL,CONTROLLER:PLAINTEXT",
            **settings,
        }
    )


@pytest.mark.parametrize("kind", KINDS)
def test_stores_of_each_format_give_contexts_that_trust_each_other(stores: Stores, kind: str) -> None:
    contexts = NodeContexts(config(stores.settings(kind, "broker")))
    handshake(contexts.server("SSL"), contexts.client("SSL"))


def test_stores_are_recognized_by_their_content_as_in_java(stores: Stores) -> None:
    settings = stores.settings("PKCS12", "broker") | {"ssl.keystore.type": "JKS", "ssl.truststore.type": "JKS"}
    assert NodeContexts(config(settings)).server("SSL") is not None


@pytest.mark.parametrize("kind", ["PKCS12", "JKS"])
def test_the_chain_of_a_key_is_not_trusted(stores: Stores, kind: str) -> None:
    """PKCS12 stores had the authority of the chain among the trusted, and with it everybody whom it has certified."""
    file = stores.folder / f"chain.{kind}"
    options = ("-storetype", kind, "-storepass", PASSWORD, "-noprompt", "-keystore", file)
    source = ("-srckeystore", stores.pkcs12("broker"), "-srcstorepass", PASSWORD)
    run(
        "keytool", "-importkeystore", *source, "-destkeystore", file, "-deststoretype", kind, "-deststorepass", PASSWORD
    )

    def trusted() -> set[str]:
        found = read_trusted(Place("listener X"), StoreSettings(kind, str(file), PASSWORD))
        return {parse_certificate(each).subject for each in found}

    assert trusted() == {"CN=broker"}
    run("keytool", "-importcert", "-file", stores.trusted, "-alias", "authority", *options)
    assert trusted() == {"CN=broker", "CN=Barnabas embedded authority"}


def test_keys_and_certificates_stand_in_the_configuration_with_blanks_for_line_ends(stores: Stores) -> None:
    text = stores.pem("inline").read_text().replace("\n", " ")
    key, begin, chain = text.partition("-----BEGIN CERTIFICATE-----")
    settings = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": key,
        "ssl.keystore.certificate.chain": begin + chain,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": stores.trusted.read_text(),
    }
    contexts = NodeContexts(config(settings))
    handshake(contexts.server("SSL"), contexts.client("SSL"))


def test_the_listeners_prefix_wins(stores: Stores) -> None:
    settings = stores.settings("PEM", "broker") | {"ssl.client.auth": "required"}
    settings["listener.name.ssl.ssl.client.auth"] = "none"
    assert NodeContexts(config(settings)).server("SSL").verify_mode == 0


@pytest.mark.parametrize(("prefix", "mode"), [("", ssl.CERT_NONE), ("listener.name.sasl_ssl.", ssl.CERT_REQUIRED)])
def test_a_log_in_listener_asks_for_certificates_with_its_prefix_only(
    stores: Stores, caplog: pytest.LogCaptureFixture, prefix: str, mode: ssl.VerifyMode
) -> None:
    settings = stores.settings("PEM", "broker") | LOG_IN | {f"{prefix}ssl.client.auth": "required"}
    assert NodeContexts(config(settings)).server("SASL_SSL").verify_mode == mode
    warned = "Broker configuration 'ssl.client.auth' is applied only to SSL listeners" in caplog.text
    assert warned == (mode == ssl.CERT_NONE)


@pytest.mark.parametrize(
    ("rules", "principal"),
    [("", "User:CN=broker"), ("RULE:^CN=(.*)$/$1/U,DEFAULT", "User:BROKER"), ("RULE:^CN=other$/x/", None)],
)
def test_the_principal_of_a_certificate_follows_from_the_rules_of_the_listener(
    stores: Stores, rules: str, principal: str | None
) -> None:
    given = {"listener.name.ssl.ssl.principal.mapping.rules": rules} if rules else {}
    contexts = NodeContexts(config(stores.settings("PEM", "broker") | given))
    blocks = pem.blocks((stores.authority.directory / "broker.pem").read_text())
    certificate = next(block.der for block in blocks if block.label == pem.CERTIFICATE)
    assert contexts.principal("SSL", None) == "User:ANONYMOUS"
    if principal is not None:
        assert contexts.principal("SSL", certificate) == principal
        return
    with pytest.raises(ValueError, match="Failed to map name for 'CN=broker'"):
        contexts.principal("SSL", certificate)


@pytest.mark.parametrize(("algorithm", "refuses"), [("https", True), ("", False)])
def test_a_node_that_dials_checks_the_name_of_the_host(stores: Stores, algorithm: str, refuses: bool) -> None:
    settings = stores.settings("PEM", "broker") | {"ssl.endpoint.identification.algorithm": algorithm}
    contexts = NodeContexts(config(settings))
    assert shaken(contexts, "localhost")
    assert shaken(contexts, "elsewhere.example") == (not refuses)


def shaken(contexts: NodeContexts, host: str) -> bool:
    """Returns whether a node that dials this host accepts the certificate of the listener."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = contexts.client("SSL").wrap_bio(to_client, to_server, server_hostname=host)
    server = contexts.server("SSL").wrap_bio(to_server, to_client, server_side=True)
    for end in (client, server, client):
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError:
            return False
    return client.cipher() is not None


@pytest.mark.parametrize("kind", KINDS)
def test_no_key_is_written_to_a_disk(stores: Stores, kind: str) -> None:
    given = config(stores.settings(kind, "broker"))
    opened: list[tuple[object, int]] = []
    WATCHERS.append(opened)
    try:
        NodeContexts(given)
    finally:
        WATCHERS.clear()
    assert any(str(path).startswith(str(stores.folder)) for path, _ in opened)
    assert [path for path, flags in opened if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)] == []


REFUSALS = [
    ({"ssl.keystore.location": "/no/such/file"}, "ssl.keystore.location=/no/such/file: cannot be read: No such file"),
    ({"ssl.keystore.password": "sesame"}, "SSL key store password cannot be specified with PEM format"),
    ({"ssl.truststore.password": "sesame"}, "SSL trust store password cannot be specified for PEM format."),
    (
        {"ssl.keystore.type": "BKS"},
        "Invalid value BKS for configuration ssl.keystore.type: JKS, PKCS12, PEM are allowed",
    ),
    ({"ssl.keystore.key": "sesame"}, "SSL private key is specified, but certificate chain is not specified."),
    (
        {"ssl.keystore.key": "sesame", "ssl.keystore.certificate.chain": "sesame"},
        "Both SSL key store location and separate private key are specified.",
    ),
    ({"ssl.keystore.certificate.chain": "sesame"}, "certificate chain is specified, but private key is not specified"),
    ({"ssl.truststore.certificates": "sesame"}, "Both SSL trust store location and separate trust certificates"),
    ({"ssl.keystore.type": "JKS"}, "SSL key store is specified, but key store password is not specified."),
    (
        {"ssl.keystore.type": "JKS", "ssl.keystore.password": "sesame"},
        "this is a PEM file; set the store's type to PEM",
    ),
    ({"ssl.enabled.protocols": "TLSv1.1"}, "for configuration ssl.enabled.protocols: TLSv1.2, TLSv1.3 are allowed"),
    ({"ssl.protocol": "SSLv3"}, "for configuration ssl.protocol: TLS, TLSv1.2, TLSv1.3 are allowed"),
    ({"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"}, "suites of TLS 1.3 cannot be chosen individually"),
    ({"ssl.cipher.suites": "ECDHE-RSA-AES128-SHA"}, "Unsupported CipherSuite"),
    (
        {"ssl.cipher.suites": SUITE, "ssl.enabled.protocols": "TLSv1.3"},
        "has no suite for ssl.enabled.protocols=TLSv1.3",
    ),
    ({"ssl.endpoint.identification.algorithm": "ldaps"}, "https and an empty value are allowed"),
    ({"ssl.engine.factory.class": "org.x.Y"}, "Java classes cannot be loaded"),
    ({"ssl.principal.mapping.rules": "RULE:a"}, "ssl.principal.mapping.rules: Invalid rule"),
]


@pytest.mark.parametrize("changes, words", REFUSALS)
def test_a_wrong_setting_ends_the_start_with_one_line(stores: Stores, changes: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        NodeContexts(config(stores.settings("PEM", "broker") | changes))
    text = str(refusal.value)
    assert words in text
    assert "\n" not in text
    assert "sesame" not in text


def test_a_listener_without_a_certificate_does_not_start() -> None:
    with pytest.raises(ConfigError, match=r"listener SSL: ssl.keystore.location is not set"):
        NodeContexts(config({}))


@pytest.mark.parametrize("kind", ["PKCS12", "JKS"])
def test_a_wrong_password_of_a_store_is_said_without_it(stores: Stores, kind: str) -> None:
    settings = stores.settings(kind, "broker") | {"ssl.keystore.password": "sesame"}
    with pytest.raises(ConfigError, match=r"ssl.keystore.location=.*password") as refusal:
        NodeContexts(config(settings))
    assert "sesame" not in str(refusal.value)


def test_another_key_than_that_of_the_certificate_is_refused(stores: Stores, tmp_path: Path) -> None:
    other = stores.pem("other").read_text().partition("-----BEGIN CERTIFICATE-----")[0]
    text = stores.pem("broker").read_text()
    mixed = tmp_path / "mixed.pem"
    mixed.write_text(other + text[text.index("-----BEGIN CERTIFICATE-----") :])
    with pytest.raises(ConfigError, match="does not belong to the first certificate of the chain"):
        NodeContexts(config(stores.settings("PEM", "broker") | {"ssl.keystore.location": str(mixed)}))


def test_brokers_that_would_refuse_each_other_do_not_start(stores: Stores, tmp_path: Path) -> None:
    settings = stores.settings("PEM", "broker") | {"ssl.truststore.location": str(Stores(tmp_path).trusted)}
    with pytest.raises(ConfigError, match=r"A client SSLEngine created with the provided settings can't connect"):
        NodeContexts(config(settings))


def test_suites_of_tls_1_2_leave_out_tls_1_3(stores: Stores) -> None:
    contexts = NodeContexts(config(stores.settings("PEM", "broker") | {"ssl.cipher.suites": SUITE}))
    context = contexts.server("SSL")
    assert context.maximum_version.name == "TLSv1_2"
    assert "ECDHE-ECDSA-AES128-GCM-SHA256" in [each["name"] for each in context.get_ciphers()]


def test_renegotiation_is_refused(stores: Stores) -> None:
    """Guard S16: under TLS 1.2 a client could make a server work for handshakes on one connection."""
    context = NodeContexts(config(stores.settings("PEM", "broker"))).server("SSL")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        command = ["openssl", "s_client", "-tls1_2", "-connect", f"127.0.0.1:{listening.getsockname()[1]}"]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as client:
            accepted, _ = listening.accept()
            accepted.settimeout(30)
            with context.wrap_socket(accepted, server_side=True) as link:
                assert client.stdin is not None
                client.stdin.write(b"R\n")
                client.stdin.flush()
                with contextlib.suppress(ssl.SSLError, ConnectionError):
                    assert link.recv(1) == b""
                told, _ = client.communicate(timeout=30)
    assert b"RENEGOTIATING" in told
    assert b"no renegotiation" in told


def test_no_secret_is_in_the_text_of_an_object(stores: Stores) -> None:
    contexts = NodeContexts(config(stores.settings("JKS", "broker")))
    assert PASSWORD not in repr(contexts._by_name["SSL"].settings)
    assert "PRIVATE" not in repr(contexts._by_name["SSL"].keys)


# Changes while the node runs.


class Running:
    """A node's contexts whose key store is a file that the test replaces."""

    def __init__(self, stores: Stores, *hosts: str, **settings: str) -> None:
        self.stores = stores
        self.file = stores.pem("running", *hosts)
        given = stores.settings("PEM", "running", "listener.name.ssl.")
        self.config = config(given | {name.replace("_", "."): value for name, value in settings.items()})
        self.contexts = NodeContexts(self.config)
        self.config.use_files(self.contexts.check, self.contexts.refresh)
        self.context = self.contexts.server("SSL")

    def replace(self, source: Path) -> None:
        text = source.read_text()
        self.file.write_text(text)
        stamp = self.file.stat().st_mtime_ns + 1_000_000_000
        os.utime(self.file, ns=(stamp, stamp))

    def set_again(self) -> dict[str, str]:
        """Sets the location to the value that it has."""
        changes = {"listener.name.ssl.ssl.keystore.location": str(self.file)}
        self.config.check_files(self.config.with_dynamic(changes, {}))
        assert self.config.update_dynamic(changes, {}) == []
        return changes

    @property
    def has_changed(self) -> bool:
        return self.contexts.server("SSL") is not self.context


def test_the_same_location_is_read_again_when_its_file_has_changed(stores: Stores) -> None:
    running = Running(stores)
    running.set_again()
    assert not running.has_changed
    running.replace(stores.pem("running"))
    running.set_again()
    assert running.has_changed


def test_a_certificate_with_another_name_is_refused_and_the_former_stays(stores: Stores) -> None:
    running = Running(stores)
    running.replace(stores.pem("renamed"))
    words = r"Keystore DistinguishedName does not match:  existing=\{alias=kafka, DN=CN=running\}, new=\{.*CN=renamed\}"
    with pytest.raises(ConfigError, match=words):
        running.set_again()
    running.config.update_dynamic({"listener.name.ssl.ssl.keystore.location": str(running.file)}, {})
    assert not running.has_changed


def test_a_certificate_without_a_former_host_is_refused_unless_allowed(stores: Stores) -> None:
    running = Running(stores, "localhost", "b.example")
    fewer = stores.pem("fewer", "localhost").read_text()
    assert fewer
    running.replace(stores.pem("running", "localhost"))
    with pytest.raises(ConfigError, match=r"Keystore SubjectAltNames do not match: .*\[2, b.example\]"):
        running.set_again()
    running = Running(stores, "localhost", "b.example", ssl_allow_san_changes="true")
    running.replace(stores.pem("running", "localhost"))
    running.set_again()
    assert running.has_changed


def test_a_certificate_with_another_name_is_accepted_if_that_is_allowed(stores: Stores) -> None:
    running = Running(stores, ssl_allow_dn_changes="true")
    running.replace(stores.pem("renamed"))
    running.set_again()
    assert running.has_changed


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"truststore.type": "PEM", "truststore.location": "TRUSTED"}, "Cannot add SSL truststore to an existing"),
        ({"keystore.type": "BKS"}, "JKS, PKCS12, PEM are allowed"),
        ({"keystore.location": "/no/such/file"}, "cannot be read: No such file"),
        ({"keystore.password": "sesame"}, "SSL key store password cannot be specified with PEM format"),
    ],
)
def test_a_change_that_cannot_be_used_is_refused_and_the_former_stays(
    stores: Stores, changes: dict[str, str], words: str
) -> None:
    """The listener of clients has no trust store of its own."""
    given = stores.settings("PEM", "broker", "listener.name.ssl.")
    prefix = "listener.name.clients.ssl."
    given |= {
        f"{prefix}keystore.type": "PEM",
        f"{prefix}keystore.location": given["listener.name.ssl.ssl.keystore.location"],
    }
    listeners = "SSL://localhost:9092,CLIENTS://localhost:9094,CONTROLLER://localhost:9093"
    given |= {"listeners": listeners, "listener.security.protocol.map": "SSL:SSL,CLIENTS:SSL,CONTROLLER:PLAINTEXT"}
    running = config(given)
    contexts = NodeContexts(running)
    running.use_files(contexts.check, contexts.refresh)
    context = contexts.server("CLIENTS")
    proposed = {f"{prefix}{key}": value.replace("TRUSTED", str(stores.trusted)) for key, value in changes.items()}
    with pytest.raises(ConfigError, match=words) as refused:
        running.check_files(running.with_dynamic(proposed, {}))
    assert "sesame" not in str(refused.value)
    running.update_dynamic(proposed, {})
    assert contexts.server("CLIENTS") is context


def test_a_certificate_of_another_authority_is_refused_between_brokers(stores: Stores, tmp_path: Path) -> None:
    running = Running(stores)
    running.replace(Stores(tmp_path).pem("running"))
    with pytest.raises(ConfigError, match=r"Validation of dynamic config update of SSLFactory failed: .*verify failed"):
        running.set_again()
    assert not running.has_changed


def test_an_unreadable_store_is_refused(stores: Stores) -> None:
    running = Running(stores)
    running.file.write_text("nothing")
    with pytest.raises(ConfigError, match="Private key not provided"):
        running.set_again()


@pytest.mark.timeout(30)
@pytest.mark.parametrize("store", ["keystore", "truststore"])
def test_a_store_that_is_no_file_is_refused_without_a_wait(stores: Stores, store: str, tmp_path: Path) -> None:
    """A pipe held up the whole broker until somebody wrote into it."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path):
        with pytest.raises(ConfigError, match=rf"ssl\.{store}\.location={path}: is not a regular file"):
            NodeContexts(config(stores.settings("PEM", "broker") | {f"ssl.{store}.location": str(path)}))


def test_an_expired_certificate_is_warned_of(stores: Stores, caplog: pytest.LogCaptureFixture) -> None:
    stores.pem("expired", days=1, begin=datetime.now(UTC) - timedelta(days=2))
    settings = stores.settings("PEM", "expired", "listener.name.controller.")
    settings |= {"listener.security.protocol.map": "SSL:SSL,CONTROLLER:SSL"}
    NodeContexts(config(stores.settings("PEM", "broker") | settings))
    assert "listener CONTROLLER: the certificate of CN=expired is valid from" in caplog.text
