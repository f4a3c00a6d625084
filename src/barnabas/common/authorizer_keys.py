"""The keys of Kafka's authorizer, which are not among its declared broker keys: a node passes them on as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from barnabas.common.errors import ConfigError

STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
#: The authorizer of ZooKeeper mode.
ACL_AUTHORIZER: Final = "kafka.security.authorizer.AclAuthorizer"
#: The ZooKeeper that has the rules, if it is not the one of `zookeeper.connect`.
ACL_ZOOKEEPER: Final = "authorizer.zookeeper.url"
SUPER_USERS: Final = "super.users"
ALLOW_IF_NO_ACL: Final = "allow.everyone.if.no.acl.found"
AUTHORIZER_KEYS: Final = frozenset({SUPER_USERS, ALLOW_IF_NO_ACL})


def super_users(properties: Mapping[str, str]) -> frozenset[str]:
    """Returns the super users, who can do everything; semicolons separate them in the value. Raises ConfigError."""
    found = [item.strip() for item in properties.get(SUPER_USERS, "").split(";") if item.strip()]
    for item in found:
        kind, colon, name = item.partition(":")
        if not (kind and colon and name):
            raise ConfigError(
                f"Invalid value {item} for configuration {SUPER_USERS}: each principal must have the form Type:name, "
                "and semicolons separate them"
            )
    return frozenset(found)


def allows_without_rules(properties: Mapping[str, str]) -> bool:
    """Returns whether a resource without rules is open to everybody. Only "true" is true, as in Java."""
    return properties.get(ALLOW_IF_NO_ACL, "").strip().lower() == "true"
