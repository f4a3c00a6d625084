"""Mapping rules: which rule decides, and what is refused. `tests/system/test_names_beside_java.py` asks Kafka's own."""

from __future__ import annotations

import pytest

from barnabas.common.errors import ConfigError
from barnabas.tls.mapping_rules import MappingRules, NoMatchingRuleError

SERVICE = "CN=kafka1,OU=ServiceUsers,O=Org,C=US"


@pytest.mark.parametrize(
    "rules, name, mapped",
    [
        ("DEFAULT", SERVICE, SERVICE),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", SERVICE, "kafka1"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1@Some/U", SERVICE, "KAFKA1@SOME"),
        ("RULE:^CN=(.*?),OU=Other.*$/$1/, RULE:^CN=(.*?),.*$/$1/L", "CN=Kafka1,OU=x", "kafka1"),
        ("RULE:^CN=(.*?),OU=Other.*$/$1/,DEFAULT", SERVICE, SERVICE),
        ("RULE:^.*OU=(.*?),.*$/$1\\/$9/", SERVICE, "ServiceUsers/$9"),
    ],
)
def test_the_first_rule_that_matches_the_whole_name_decides(rules: str, name: str, mapped: str) -> None:
    """Guard S15."""
    assert MappingRules(rules).principal_name(name) == mapped


@pytest.mark.parametrize("rules", ["RULE:CN=kafka/x/", "RULE:^CN=(.*?),OU=Other.*$/$1/", ""])
def test_a_name_without_a_rule_has_no_principal(rules: str) -> None:
    with pytest.raises(NoMatchingRuleError):
        MappingRules(rules).principal_name(SERVICE)


@pytest.mark.parametrize("rules", ["RULE:a/b", "DEFAULTS", "RULE:(/x/", "RULE:a{/x/", "RULE:a/b/c/"])
def test_a_malformed_rule_is_refused_with_the_key_and_the_rule(rules: str) -> None:
    with pytest.raises(ConfigError, match=r"for configuration ssl.principal.mapping.rules: Invalid rule"):
        MappingRules(rules)
