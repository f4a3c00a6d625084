"""The tests of librdkafka 2.15.1, unchanged, over TLS and with log-ins.

The tests of rules call kafka-acls.sh without a log-in, and skip themselves if clients log in. They run twice: over
plain text, and over SASL_SSL, where the script logs in by itself, and the function of the test-runner that would make
them skip is replaced when it is linked (`client_suites.librdkafka`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest
from tests.clients import client_suites
from tests.clients.foreign_suites import Results
from tests.clients.toxiproxy import Toxiproxy
from tests.support import suite_certificates
from tests.support.identity_provider import IdentityProvider
from tests.support.suite_results import check, expected, in_two_runs
from tests.support.suite_server import (
    ADMIN,
    PASSWORD,
    SuiteCluster,
    SuiteServer,
    TokenCluster,
    UnsecuredTokenCluster,
)

import kafka_jars

#: Tests that are not run, with the reason.
EXCLUDED: Final = {
    "0097_ssl_verify": "not at a listener that requires certificates: with TLS 1.3, the test fails at Apache Kafka as "
    "well; with TLS 1.2, it expects a client that learns the names of the broker's authorities (docs/differences.md)",
    "0126, 0135 and 0142, parts of share consumers": "share groups (KIP-932), which are not served: "
    "SUBTESTS chooses the others",
    "0155 to 0191": "share groups: the tests skip themselves",
}
#: The delay of a network for the client of 0097, which takes an answer that is there at once for a lost connection.
LATENCY_MS: Final = 20
#: How long a session lasts; each part of the test of sessions takes a few of them.
SESSION_MS: Final = 10_000
#: How long one lasts if tokens live for half of it. The client looks for the next token once a second after 80 % of a
#: token's life, and renews its session after 90 %: tokens below 10 s are too late, and a second renewal within a second
#: is refused. With 10 s and tokens of 5 s the part fails at Apache Kafka 4.1.0 as well.
TOKEN_SESSION_MS: Final = 30_000
#: The parts of 0142 that need neither share groups nor OAUTHBEARER, and how often each runs.
SESSION_PARTS: Final = {
    "do_test_consumer": 1,
    "do_test_producer": 1,
    "do_test_txn_producer": 2,
    "do_test_reauth_failure": 1,
}
#: The part of 0142 with OAUTHBEARER: with a provider, with and without a queue of its own for log-ins; with tokens that
#: the client makes, also with a lifetime longer than a session.
TOKEN_SESSION_PART: Final = "do_test_oauthbearer"
PROVIDER_RUNS: Final = 2
UNSECURED_RUNS: Final = 4
#: The parts of 0126 without share consumers, by the beginning of their names, and how many there are.
TOKEN_PARTS: Final = {"do_test_produce_consumer_with_OIDC": 19, "do_test_OIDC_aws_iam": 3}
#: The calls of kafka-acls.sh by 0109, 0115 and 0119: each part that needs a rule has run.
RULE_CHANGES: Final = 10
#: Tests with parts that need share groups: their other parts run below.
PARTS: Final = ("0135", "0142")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SuiteServer]:
    made = SuiteServer(tmp_path / "server", {"auto.create.topics.enable": "true"}).start()
    yield made
    made.stop()


def passed_parts(folder: Path) -> int:
    """Returns how many parts of tests passed. A part that cannot find its settings, and one that SUBTESTS does not
    choose, passes over itself, and its test passes.
    """
    return (folder / "librdkafka.log").read_text(errors="replace").count(": PASS (")


def listed(kind: str) -> list[str]:
    """Returns the tests that must pass, of one kind of listener."""
    lines = [line.split() for line in expected("librdkafka", folder="client_suites")]
    return [name for each, name in lines if each == kind]


def rules_results(
    tmp_path: Path, kind: str, settings: Mapping[str, str], command_config: Path | None = None
) -> Results:
    """Runs the tests of rules. 0115 fails if metadata arrive while its thread is in `produce`, as on a busy machine: it
    gets a second run.
    """

    def run(folder: Path, only: Collection[str]) -> Results:
        chosen = sorted(name[:4] for name in only or listed(kind))
        return client_suites.librdkafka(folder, settings, chosen, command_config=command_config)

    return in_two_runs(tmp_path, run)


def token_sessions(tmp_path: Path, settings: Mapping[str, str]) -> Results:
    """Runs the part of 0142 that renews sessions with tokens."""
    return client_suites.librdkafka(tmp_path, settings, ["0142"], environment={"SUBTESTS": f"{TOKEN_SESSION_PART}:"})


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_the_suite_passes_with_a_log_in_over_tls(tmp_path: Path) -> None:
    """All tests that need a broker, in their quick form."""
    cluster = SuiteCluster(tmp_path / "cluster", {"auto.create.topics.enable": "true"})
    skipped = {"TESTS_SKIP": ",".join(PARTS)}

    def run(folder: Path, only: Collection[str]) -> Results:
        # Some tests of the suite measure time; they get a second run, alone.
        chosen = sorted({name[:4] for name in only})
        return client_suites.librdkafka(
            folder, cluster.settings, chosen, options=["-L", "-Q"], environment=skipped, timeout_s=3000
        )

    try:
        results = in_two_runs(tmp_path, run)
    finally:
        cluster.stop()
    check(tmp_path, results, listed("sasl_ssl"))


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_certificates_and_keys_are_accepted_and_refused(tmp_path: Path, server: SuiteServer) -> None:
    results = client_suites.librdkafka(tmp_path, server.tls_settings(), ["0097", "0133"])
    check(tmp_path, results, listed("ssl"))


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_certificates_in_all_forms_and_refused_by_the_client(tmp_path: Path, server: SuiteServer) -> None:
    port, command_port = kafka_jars.free_ports(2)
    settings = suite_certificates.settings(server.stores, "client", tmp_path)
    variables = suite_certificates.variables(server.stores, tmp_path, settings)
    proxies = Toxiproxy(tmp_path, command_port)
    try:
        proxies.add("slow", port, server.sasl_tls_port, latency_ms=LATENCY_MS)
        settings |= {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "security.protocol": "sasl_ssl",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": ADMIN,
            "sasl.password": PASSWORD,
        }
        results = client_suites.librdkafka(tmp_path, settings, ["0097"], environment=variables)
    finally:
        proxies.close()
    check(tmp_path, results, listed("certificates"))


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_tokens_from_a_provider_by_secret_assertion_and_machine(tmp_path: Path) -> None:
    """All parts of 0126 but those of share consumers, over TLS."""
    provider = IdentityProvider({"client": PASSWORD})
    cluster = TokenCluster(tmp_path / "cluster", provider)
    try:
        variables = cluster.variables(tmp_path)
        for part, number in TOKEN_PARTS.items():
            results = client_suites.librdkafka(
                tmp_path / part,
                cluster.oidc_settings("client", PASSWORD),
                ["0126"],
                environment=variables | {"SUBTESTS": part},
            )
            check(tmp_path / part, results, listed("tokens"))
            assert passed_parts(tmp_path / part) == number
    finally:
        cluster.stop()
        provider.close()


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_rules_stop_a_client_and_its_removal_lets_it_go_on(tmp_path: Path, server: SuiteServer) -> None:
    check(tmp_path, rules_results(tmp_path, "plaintext", server.plain_settings()), listed("plaintext"))


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_rules_stop_a_client_that_logs_in_over_tls(tmp_path: Path) -> None:
    """Rules for a user of SCRAM who is no super user; the brokers have listeners of SASL_SSL only."""
    cluster = SuiteCluster(tmp_path / "cluster", {"auto.create.topics.enable": "true"})
    try:
        results = rules_results(tmp_path, "rules", cluster.settings, cluster.command_config)
    finally:
        cluster.stop()
    check(tmp_path, results, listed("rules"))
    logs = [path.read_text(errors="replace") for path in tmp_path.glob("*/librdkafka.log")]
    assert sum(log.count("/bin/kafka-acls.sh --bootstrap-server ") for log in logs) >= RULE_CHANGES


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_sessions_are_renewed_and_lose_no_record(tmp_path: Path) -> None:
    cluster = SuiteCluster(tmp_path / "cluster", {"connections.max.reauth.ms": str(SESSION_MS)})
    try:
        for part, runs in SESSION_PARTS.items():
            results = client_suites.librdkafka(
                tmp_path / part, cluster.settings, ["0142"], environment={"SUBTESTS": f"{part}:"}
            )
            check(tmp_path, results, listed("session"))
            assert passed_parts(tmp_path / part) == runs
    finally:
        cluster.stop()


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("session_ms", "lifetime_ms"), [(TOKEN_SESSION_MS, TOKEN_SESSION_MS // 2), (SESSION_MS, SESSION_MS * 2)]
)
def test_sessions_are_renewed_with_tokens_of_a_provider(tmp_path: Path, session_ms: int, lifetime_ms: int) -> None:
    provider = IdentityProvider({"client": PASSWORD}, lifetime_s=lifetime_ms // 1_000)
    cluster = TokenCluster(tmp_path / "cluster", provider, {"connections.max.reauth.ms": str(session_ms)})
    try:
        results = token_sessions(tmp_path, cluster.oidc_settings("client", PASSWORD))
    finally:
        cluster.stop()
        provider.close()
    check(tmp_path, results, listed("token_session"))
    assert passed_parts(tmp_path) == PROVIDER_RUNS


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_sessions_are_renewed_with_unsecured_tokens(tmp_path: Path) -> None:
    cluster = UnsecuredTokenCluster(tmp_path / "cluster", {"connections.max.reauth.ms": str(TOKEN_SESSION_MS)})
    try:
        results = token_sessions(tmp_path, cluster.unsecured_settings())
    finally:
        cluster.stop()
    check(tmp_path, results, listed("unsecured_session"))
    assert passed_parts(tmp_path) == UNSECURED_RUNS


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
