"""The settings of OAUTHBEARER: what a node refuses to start with, and what its keys mean."""

from __future__ import annotations

from typing import Final

import pytest
from tests.support.log_in import SECURED
from tests.support.wired import PROPERTIES

from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ConfigError
from barnabas.common.log_in_settings import listener_tokens_of, login_tokens_of
from barnabas.common.oauth_settings import (
    ClientCredentials,
    EndpointLogin,
    Expectations,
    Refresh,
    Source,
    UnsecuredLogin,
    UnsecuredRules,
)

URL: Final = "https://issuer.test/keys"
TOKENS: Final = "https://issuer.test/token"
PREFIX: Final = "listener.name.plaintext.oauthbearer."
MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
KEY_SET: Final = "sasl.oauthbearer.jwks.endpoint.url"
_PACKAGE: Final = "org.apache.kafka.common.security.oauthbearer."


def config(**changes: str) -> BrokerConfig:
    properties = {
        **PROPERTIES,
        **SECURED,
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        KEY_SET: URL,
        "barnabas.sasl.oauthbearer.allowed.urls": f"{URL}, {TOKENS},file:///keys.json,file:///a%20token",
        **changes,
    }
    return BrokerConfig.from_properties({key: text for key, text in properties.items() if text != "unset"})


def test_the_keys_of_a_listener() -> None:
    found = listener_tokens_of(config(), "PLAINTEXT")
    assert found == (
        Source(KEY_SET, URL, 100, 10_000),
        3_600_000,
        Expectations((), None, 30, "scope", "sub"),
        UnsecuredRules("sub", "scope", (), 0),
    )
    changes = {
        PREFIX + KEY_SET: "file:///keys.json",
        "listener.name.plaintext.sasl.oauthbearer.jwks.endpoint.refresh.ms": "5000",
        "sasl.oauthbearer.jwks.endpoint.refresh.ms": "6000",
        PREFIX + "sasl.oauthbearer.expected.audience": "a, b",
        "sasl.oauthbearer.expected.audience": "c",
        "sasl.oauthbearer.expected.issuer": "i",
        "sasl.oauthbearer.clock.skew.seconds": "0",
        "sasl.oauthbearer.scope.claim.name": "scp",
        "sasl.oauthbearer.sub.claim.name": "email",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": "7",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "8",
    }
    found = listener_tokens_of(config(**changes), "PLAINTEXT")
    assert found.key_set == Source(KEY_SET, "file:///keys.json", 7, 8)
    assert found.key_set.path == "/keys.json"
    assert (found.refresh_ms, found.expected) == (5_000, Expectations(("a", "b"), "i", 0, "scp", "email"))


def test_the_options_for_unsecured_tokens() -> None:
    entry = (
        f'{MODULE} unsecuredValidatorPrincipalClaimName=" user " unsecuredValidatorScopeClaimName="scp" '
        'unsecuredValidatorRequiredScope=" a  b " unsecuredValidatorAllowableClockSkewMs="3000";'
    )
    found = listener_tokens_of(config(**{KEY_SET: "unset", PREFIX + "sasl.jaas.config": entry}), "PLAINTEXT")
    assert found.key_set is None
    assert found.unsecured == UnsecuredRules("user", "scp", ("a", "b"), 3_000)


def _entry(options: str) -> dict[str, str]:
    return {KEY_SET: "unset", PREFIX + "sasl.jaas.config": f"{MODULE} {options};"}


_MALFORMED: Final = "that is malformed"
_PROTOCOL: Final = 'only "http", "https", and "file" protocol are supported'


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({KEY_SET: "unset"}, f"{KEY_SET} must be set for OAUTHBEARER on listener PLAINTEXT"),
        ({KEY_SET: " "}, f"{KEY_SET} must be set"),
        (_entry(""), f"{KEY_SET} must be set"),
        (_entry('clientId="x"'), f"{KEY_SET} must be set"),
        (_entry('unsecuredLoginStringClaim_sub="x"') | {KEY_SET: URL}, "choose either"),
        (_entry('unsecuredValidatorAllowableClockSkewMs="-1"'), "unsecuredValidatorAllowableClockSkewMs is not"),
        (_entry('unsecuredValidatorAllowableClockSkewMs="1e3"'), "unsecuredValidatorAllowableClockSkewMs is not"),
        ({PREFIX + "sasl.jaas.config": f'{MODULE} ssl.truststore.location="/x";'}, "ssl.truststore.location of OAUTH"),
        ({KEY_SET: "https://other.test/keys"}, "https://other.test/keys is not allowed. Add it to barnabas.sasl."),
        ({KEY_SET: URL + "?a"}, "is not allowed"),
        ({KEY_SET: "file:///etc/passwd"}, "file:///etc/passwd is not allowed"),
        ({"barnabas.sasl.oauthbearer.allowed.urls": ""}, f"{URL} is not allowed"),
        ({"barnabas.sasl.oauthbearer.allowed.urls": "*"}, f"{URL} is not allowed"),
        ({KEY_SET: "ldap://issuer.test"}, _PROTOCOL),
        ({KEY_SET: "issuer.test/keys"}, _PROTOCOL),
        ({KEY_SET: "https:///keys"}, _MALFORMED),
        ({KEY_SET: "https://user:marker@issuer.test/"}, _MALFORMED),
        ({KEY_SET: "https://user:mark/marker@issuer.test/"}, _MALFORMED),
        ({KEY_SET: "ldap://user:marker@issuer.test/"}, _PROTOCOL),
        ({KEY_SET: "https://issuer.test:port/"}, _MALFORMED),
        ({KEY_SET: "https://[::1/"}, _MALFORMED),
        ({KEY_SET: "file://elsewhere/keys"}, _MALFORMED),
        ({KEY_SET: "https://issuer.test/a b"}, _MALFORMED),
        ({"sasl.oauthbearer.jwks.endpoint.refresh.ms": "0"}, "Value must be at least 1"),
        ({"sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": "0"}, "Value must be at least 1"),
        ({"sasl.oauthbearer.clock.skew.seconds": "-1"}, "Value must be at least 0"),
        (
            {PREFIX + "sasl.jaas.config": SECURED["listener.name.plaintext.plain.sasl.jaas.config"]},
            "it must name OAuth",
        ),
        ({PREFIX + "sasl.server.callback.handler.class": "com.example.Handler"}, "Java classes cannot be loaded"),
        ({"sasl.server.callback.handler.class": _PACKAGE + "OAuthBearerValidatorCallbackHandler"}, "cannot be loaded"),
        ({"sasl.oauthbearer.jwt.validator.class": _PACKAGE + "ClientJwtValidator"}, "Java classes cannot be loaded"),
        ({PREFIX + "sasl.login.class": "com.example.Login"}, "Java classes cannot be loaded"),
    ],
)
def test_a_node_does_not_start_with(changes: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        config(**changes)
    assert text in str(refused.value)
    assert "mark" not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_urls_cannot_be_chosen_over_the_network() -> None:
    """CVE-2025-27817: only URLs of the properties file are asked, whatever is set at run time."""
    now = config()
    for key in (KEY_SET, "barnabas.sasl.oauthbearer.allowed.urls"):
        with pytest.raises(ConfigError, match="Cannot update these configs dynamically"):
            now.with_dynamic({key: "https://other.test"}, {})
    with pytest.raises(ConfigError, match=r"https://other\.test is not allowed"):
        now.with_dynamic({PREFIX + KEY_SET: "https://other.test"}, {})
    with pytest.raises(ConfigError, match=r"ssl\.truststore\.location"):
        now.with_dynamic({PREFIX + "sasl.jaas.config": f'{MODULE} ssl.truststore.location="/etc/passwd";'}, {})
    unsecured = {PREFIX + "sasl.jaas.config": f'{MODULE} unsecuredLoginStringClaim_sub="eve";'}
    for removed in ({}, {PREFIX + KEY_SET: ""}, {PREFIX + KEY_SET: "", f"listener.name.plaintext.{KEY_SET}": " "}):
        with pytest.raises(ConfigError, match="choose either"):
            now.with_dynamic(unsecured | removed, {})


def test_the_classes_that_kafka_documents_can_be_named() -> None:
    config(
        **{
            PREFIX + "sasl.server.callback.handler.class": _PACKAGE + "OAuthBearerValidatorCallbackHandler",
            PREFIX + "sasl.login.callback.handler.class": _PACKAGE + "OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.jwt.validator.class": _PACKAGE + "BrokerJwtValidator",
            PREFIX + "sasl.oauthbearer.jwt.retriever.class": _PACKAGE + "FileJwtRetriever",
        }
    )


def _peers(options: str, **changes: str) -> BrokerConfig:
    return config(
        **{
            "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
            PREFIX + "sasl.jaas.config": f"{MODULE} {options};",
            **changes,
        }
    )


ENDPOINT: Final = {"sasl.oauthbearer.token.endpoint.url": TOKENS}


def test_a_node_logs_in_to_others_by_the_tokens_of_an_endpoint() -> None:
    found = login_tokens_of(_peers('clientId="node" clientSecret="marker" scope="kafka"', **ENDPOINT), "PLAINTEXT")
    assert found == EndpointLogin(
        Source("sasl.oauthbearer.token.endpoint.url", TOKENS, 100, 10_000),
        ClientCredentials("node", "marker", "kafka"),
        Refresh(0.8, 0.05, 60_000, 300_000),
    )
    assert "marker" not in repr(found)
    keys = {
        "sasl.oauthbearer.client.credentials.client.id": "other",
        "sasl.oauthbearer.client.credentials.client.secret": "better",
        "sasl.oauthbearer.scope": "wide",
    }
    found = login_tokens_of(_peers('clientId="node" clientSecret="marker"', **ENDPOINT, **keys), "PLAINTEXT")
    assert isinstance(found, EndpointLogin)
    assert found.credentials == ("other", "better", "wide")


def test_a_node_logs_in_to_others_by_the_token_of_a_file() -> None:
    found = login_tokens_of(_peers("", **{"sasl.oauthbearer.token.endpoint.url": "file:///a%20token"}), "PLAINTEXT")
    assert isinstance(found, EndpointLogin)
    assert (found.source.path, found.credentials) == ("/a token", None)


def test_a_node_logs_in_to_others_by_unsecured_tokens() -> None:
    options = (
        'unsecuredLoginStringClaim_sub="node" unsecuredLoginListClaim_scope="|a|b" unsecuredLoginNumberClaim_n="1.5" '
        'unsecuredLoginLifetimeSeconds="60" unsecuredLoginExtension_traceId="7"'
    )
    found = login_tokens_of(_peers(options, **{KEY_SET: "unset"}), "PLAINTEXT")
    assert found == UnsecuredLogin({"sub": "node", "scope": ["a", "b"], "n": 1.5}, "sub", 60)


@pytest.mark.parametrize(
    ("options", "changes", "text"),
    [
        ("", {}, "this node logs in to other nodes on PLAINTEXT with OAUTHBEARER: it needs"),
        ("", ENDPOINT, "or clientId and clientSecret in the JAAS entry"),
        ('clientId="node"', ENDPOINT, "or clientId and clientSecret in the JAAS entry"),
        ('unsecuredLoginStringClaim_user="x"', {KEY_SET: "unset"}, "unsecuredLoginStringClaim_sub"),
        ('unsecuredLoginNumberClaim_exp="1"', {KEY_SET: "unset"}, "Cannot explicitly set the 'exp' claim"),
        ('unsecuredLoginNumberClaim_n="x"', {KEY_SET: "unset"}, "unsecuredLoginNumberClaim_n is not a number"),
        ("", {"sasl.oauthbearer.token.endpoint.url": "https://other.test"}, "https://other.test is not allowed"),
    ],
)
def test_a_node_does_not_start_if_it_cannot_log_in_to_others(options: str, changes: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        _peers(options, **changes)
    assert text in str(refused.value)
