"""The security settings of a client: the names of Java's clients and of librdkafka, and the errors for wrong ones."""

from __future__ import annotations

import pytest

from barnabas.common.errors import ConfigError
from barnabas.protocol.client_security import ClientSecurity, Tls, client_security
from barnabas.protocol.sasl.logins import Login

JAAS = 'org.apache.kafka.common.security.{module} required username="alice" password="{password}";'
PLAIN = "plain.PlainLoginModule"
SCRAM = "scram.ScramLoginModule"


def _jaas(module: str, password: str = "s3;cr=et") -> str:
    return JAAS.format(module=module, password=password)


def test_without_properties_there_is_nothing() -> None:
    assert client_security({}) == client_security({"client.id": "x"}) == ClientSecurity()


@pytest.mark.parametrize(
    ("mechanism", "jaas", "password"),
    [
        ("PLAIN", _jaas(PLAIN), "s3;cr=et"),
        ("scram-sha-256", _jaas(SCRAM), "s3;cr=et"),
        ("SCRAM-SHA-512", _jaas(SCRAM, r"a\"b\\c"), 'a"b\\c'),
        ("PLAIN", "kafkashaded." + _jaas(PLAIN).replace('"', "'"), "s3;cr=et"),
        (
            "PLAIN",
            "org.apache.kafka.common.security.plain.PlainLoginModule required\n  username=alice\n  password=bare ;",
            "bare",
        ),
    ],
)
def test_jaas(mechanism: str, jaas: str, password: str) -> None:
    given = {"security.protocol": "SASL_SSL", "sasl.mechanism": mechanism, "sasl.jaas.config": jaas}
    found = client_security(given)
    assert found.login == Login(mechanism.upper(), "alice", password)
    assert found.tls == Tls()


@pytest.mark.parametrize(
    ("mechanism", "module", "option", "by_token"),
    [
        ("SCRAM-SHA-256", SCRAM, 'tokenauth="true"', True),
        ("SCRAM-SHA-512", SCRAM, "tokenauth=TRUE", True),
        ("SCRAM-SHA-512", SCRAM, 'tokenauth="false"', False),
        ("SCRAM-SHA-512", SCRAM, "", False),
        ("PLAIN", PLAIN, 'tokenauth="true"', False),
    ],
)
def test_a_log_in_by_token(mechanism: str, module: str, option: str, by_token: bool) -> None:
    entry = _jaas(module, "secret").replace(";", f" {option};")
    given = {"security.protocol": "SASL_SSL", "sasl.mechanism": mechanism, "sasl.jaas.config": entry}
    assert client_security(given).login == Login(mechanism, "alice", "secret", by_token)


def test_names_of_librdkafka() -> None:
    given = {"security.protocol": "sasl_plaintext", "sasl.mechanisms": "PLAIN", "sasl.username": "u"}
    found = client_security(given | {"sasl.password": "p"})
    assert found == ClientSecurity(None, Login("PLAIN", "u", "p"))


def test_tls_by_both_names() -> None:
    java = {"ssl.truststore.location": "ca", "ssl.truststore.type": "PEM", "ssl.keystore.location": "c"}
    ours = {"ssl.ca.location": "ca", "ssl.certificate.location": "c"}
    ssl = {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": ""}
    wanted = Tls(authorities_file="ca", certificate_file="c", checks_name=False)
    assert client_security(ssl | java).tls == client_security(ssl | ours).tls == wanted
    unchecked = client_security({"security.protocol": "SSL", "enable.ssl.certificate.verification": "false"}).tls
    assert unchecked is not None
    assert not unchecked.checks_certificate


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"security.protocol": "TLS"}, r"kafka\.security\.protocol=TLS: it is not one of PLAINTEXT, SSL, SASL_PLAIN"),
        ({"security.protocol": "SASL_SSL"}, r"kafka\.sasl\.mechanism: it must be set, to one of PLAIN, SCRAM-SHA-256"),
        ({"sasl.mechanism": "GSSAPI"}, "GSSAPI: it is not one of PLAIN"),
        ({"sasl.mechanism": "PLAIN"}, "it must contain username and password"),
        (
            {"sasl.mechanism": "PLAIN", "sasl.jaas.config": _jaas(SCRAM)},
            "it must name PlainLoginModule, not ScramLoginModule",
        ),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": "PASSWORD"}, "a line such as"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": _jaas(PLAIN) + "PASSWORD"}, "a line such as"),
        ({"ssl.truststore.type": "JKS"}, "only PEM is read here; keytool"),
        ({"ssl.keystore.password": "PASSWORD"}, "a PEM file has none; keytool -importkeystore"),
        ({"ssl.cipher.suites": "PASSWORD"}, r"kafka\.ssl\.cipher\.suites: it is not supported here"),
        ({"sasl.kerberos.service.name": "PASSWORD"}, "it is not supported here"),
        ({"ssl.enabled.protocols": "SSLv3"}, r"expected TLSv1\.2, TLSv1\.3"),
    ],
)
def test_wrong_ones_are_reported_without_secrets(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        client_security(given, "kafka.")
    assert "PASSWORD" not in str(refused.value)
