"""The ACLs of Kafka's znodes themselves, as `zookeeper.set.acl` requires (`ZkData.defaultAcls`)."""

from __future__ import annotations

from typing import Final

from barnabas.znodes import paths
from barnabas.zookeeper.wire.records import CREATOR_ALL_ACL, OPEN_ACL, READ_ACL, Acl

#: All permissions for the identities of the creator's session, and reading for everybody.
CREATOR_WRITES: Final = (*CREATOR_ALL_ACL, *READ_ACL)

#: The znodes with secrets; every path with one of these prefixes is one of them, as in Kafka.
_SENSITIVE: Final = (f"{paths.CONFIG}/users", f"{paths.CONFIG}/brokers", paths.TOKENS)

#: The roots that `zookeeper-security-migration` visits (`ZkData.SecureRootPaths`).
SECURE_ROOTS: Final = (
    paths.ADMIN,
    paths.BROKERS,
    paths.CLUSTER,
    paths.CONFIG,
    paths.CONTROLLER,
    paths.CONTROLLER_EPOCH,
    paths.ISR_CHANGES,
    paths.PRODUCER_ID_BLOCK,
    paths.LOG_DIR_EVENTS,
    paths.DELEGATION_TOKEN,
    paths.EXTENDED_ACLS,
    paths.MIGRATION,
    paths.FEATURE,
    paths.ACLS,
    paths.ACL_CHANGES,
    paths.PREFIXED_ACLS,
    paths.EXTENDED_ACL_CHANGES,
)


def is_sensitive(path: str) -> bool:
    return path.startswith(_SENSITIVE)


def secure_acl(path: str) -> tuple[Acl, ...]:
    """Returns the ACL that Kafka gives to a new znode with `zookeeper.set.acl=true`."""
    if path == paths.CONSUMERS:
        return OPEN_ACL
    return CREATOR_ALL_ACL if is_sensitive(path) else CREATOR_WRITES
