"""The ACLs of Kafka's znodes themselves, as `zookeeper.set.acl` requires (`ZkData.defaultAcls`)."""

from __future__ import annotations

from typing import Final, NamedTuple

from barnabas.znodes import paths

#: ZooKeeper's permission bits.
READ: Final = 1
ALL: Final = 31


class Access(NamedTuple):
    """An entry of a znode's ACL: permission bits for an identity of a scheme."""

    permissions: int
    scheme: str
    identity: str


OPEN: Final = (Access(ALL, "world", "anyone"),)
#: All permissions, for the client that created the znode; `auth` stands for the identities of the creator's session.
CREATOR_ONLY: Final = (Access(ALL, "auth", ""),)
CREATOR_WRITES: Final = (*CREATOR_ONLY, Access(READ, "world", "anyone"))

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


def default_acls(path: str, *, secure: bool) -> tuple[Access, ...]:
    """Returns the ACL that Kafka gives to a new znode; `secure` is `zookeeper.set.acl`."""
    if not secure or path == paths.CONSUMERS:
        return OPEN
    return CREATOR_ONLY if is_sensitive(path) else CREATOR_WRITES
