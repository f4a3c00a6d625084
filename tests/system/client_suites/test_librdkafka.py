"""The tests of librdkafka 2.15.1, unchanged, over TLS and with log-ins; tests of ACLs run as an anonymous client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.clients import client_suites
from tests.support.suite_results import check, expected
from tests.support.suite_server import SuiteCluster, SuiteServer
from tests.support.tls_stores import PASSWORD, Stores, run

#: How long a session lasts; each part of the test of sessions takes a few of them.
SESSION_MS: Final = 10_000
#: The parts of 0142 that need neither share groups nor OAUTHBEARER.
SESSION_PARTS: Final = ("do_test_consumer", "do_test_producer", "do_test_txn_producer", "do_test_reauth_failure")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SuiteServer]:
    made = SuiteServer(tmp_path / "server", {"auto.create.topics.enable": "true"}).start()
    yield made
    made.stop()


def listed(kind: str) -> list[str]:
    """Returns the tests that must pass, of one kind of listener."""
    lines = [line.split() for line in expected("librdkafka", folder="client_suites")]
    return [name for each, name in lines if each == kind]


def certificates(stores: Stores, folder: Path) -> dict[str, str]:
    """Returns the variables by which test 0097 finds certificates, in the formats of librdkafka."""
    source, trusted = stores.pem("client"), stores.trusted
    found = {"SSL_pub_pem": source, "SSL_priv_pem": source, "SSL_all_cas_pem": trusted}
    for name, command in {
        "SSL_pub_der": ("x509", "-in", source, "-outform", "DER"),
        "SSL_ca_der": ("x509", "-in", trusted, "-outform", "DER"),
        "SSL_priv_der": ("pkey", "-in", source, "-outform", "DER"),
        "SSL_pkcs": ("pkcs12", "-export", "-in", source, "-certfile", trusted, "-passout", f"pass:{PASSWORD}"),
    }.items():
        found[name] = folder / f"{name}.file"
        run("openssl", *command, "-out", found[name])
    return {**{name: str(path) for name, path in found.items()}, "SSL_password": PASSWORD}


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_certificates_and_keys_are_accepted_and_refused(tmp_path: Path, server: SuiteServer) -> None:
    results = client_suites.librdkafka(
        tmp_path, server.tls_settings(), ["0097", "0133"], environment=certificates(server.stores, tmp_path)
    )
    check(tmp_path, results, listed("ssl"))


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_rules_stop_a_client_and_its_removal_lets_it_go_on(tmp_path: Path, server: SuiteServer) -> None:
    results = client_suites.librdkafka(tmp_path, server.plain_settings(), ["0109", "0115", "0119"])
    check(tmp_path, results, listed("plaintext"))


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_sessions_are_renewed_and_lose_no_record(tmp_path: Path) -> None:
    cluster = SuiteCluster(tmp_path / "cluster", {"connections.max.reauth.ms": str(SESSION_MS)})
    try:
        for part in SESSION_PARTS:
            results = client_suites.librdkafka(
                tmp_path / part, cluster.settings, ["0142"], environment={"SUBTESTS": f"{part}:"}
            )
            check(tmp_path, results, listed("session"))
    finally:
        cluster.stop()


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_credentials_are_changed_while_a_client_runs(tmp_path: Path) -> None:
    cluster = SuiteCluster(tmp_path / "cluster")
    try:
        results = client_suites.librdkafka(
            tmp_path, cluster.settings, ["0128", "0135"], environment={"SUBTESTS": "do_test:"}
        )
        check(tmp_path, results, listed("credentials"))
    finally:
        cluster.stop()
