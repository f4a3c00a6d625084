"""/kafka-acl and /kafka-acl-extended: the ACLs of resources, and the notifications of their changes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from barnabas.common.host import Buffer
from barnabas.znodes import paths
from barnabas.znodes.znode_json import JsonObject, ZnodeError, json_bytes, read_object, text_of

ACL_VERSION: Final = 1
LITERAL: Final = 3
PREFIXED: Final = 4

#: Kafka's codes of resource types, operations and permissions, and their names in znodes.
RESOURCE_TYPES: Final = {
    2: "Topic",
    3: "Group",
    4: "Cluster",
    5: "TransactionalId",
    6: "DelegationToken",
    7: "User",
}
OPERATIONS: Final = {
    2: "All",
    3: "Read",
    4: "Write",
    5: "Create",
    6: "Delete",
    7: "Alter",
    8: "Describe",
    9: "ClusterAction",
    10: "DescribeConfigs",
    11: "AlterConfigs",
    12: "IdempotentWrite",
    13: "CreateTokens",
    14: "DescribeTokens",
}
PERMISSIONS: Final = {2: "Deny", 3: "Allow"}

_RESOURCE_CODES: Final = {name: code for code, name in RESOURCE_TYPES.items()}
_OPERATION_CODES: Final = {name.upper(): code for code, name in OPERATIONS.items()}
_PERMISSION_CODES: Final = {name.upper(): code for code, name in PERMISSIONS.items()}
#: Resource types as notifications name them.
_CHANGED_TYPES: Final = {
    2: "TOPIC",
    3: "GROUP",
    4: "CLUSTER",
    5: "TRANSACTIONAL_ID",
    6: "DELEGATION_TOKEN",
    7: "USER",
}
_CHANGED_CODES: Final = {name: code for code, name in _CHANGED_TYPES.items()}


class ResourcePattern(NamedTuple):
    """The resources that an ACL applies to: one by its name, or all whose names begin with it."""

    resource_type: int
    name: str
    pattern_type: int


class AclEntry(NamedTuple):
    """A permission or a denial for a principal from a host; `permission` and `operation` are Kafka's codes."""

    principal: str
    permission: int
    operation: int
    host: str


def has_acls(pattern: ResourcePattern) -> bool:
    """Returns whether a resource can have ACLs that Kafka's AclAuthorizer reads: it finds no name with a slash."""
    is_known = pattern.resource_type in RESOURCE_TYPES and pattern.pattern_type in (LITERAL, PREFIXED)
    return is_known and pattern.name != "" and "/" not in pattern.name


def type_path(resource_type: int, pattern_type: int) -> str:
    """Returns the parent of the ACLs of all resources of one type, of one kind of pattern."""
    root = paths.ACLS if pattern_type == LITERAL else paths.PREFIXED_ACLS
    return f"{root}/{RESOURCE_TYPES[resource_type]}"


def acl_path(pattern: ResourcePattern) -> str:
    """Returns the path of a resource's ACLs. Raises ValueError for a type that is not the type of a resource."""
    if pattern.resource_type not in RESOURCE_TYPES or pattern.pattern_type not in (LITERAL, PREFIXED):
        raise ValueError(f"{pattern} is not a resource that has ACLs")
    return f"{type_path(pattern.resource_type, pattern.pattern_type)}/{pattern.name}"


def pattern_of(path: str) -> ResourcePattern | None:
    """Returns the resource whose ACLs are at this path, or None for any other path."""
    for root, pattern_type in ((paths.ACLS, LITERAL), (paths.PREFIXED_ACLS, PREFIXED)):
        if path.startswith(f"{root}/"):
            kind, _, name = path[len(root) + 1 :].partition("/")
            if kind in _RESOURCE_CODES and name:
                return ResourcePattern(_RESOURCE_CODES[kind], name, pattern_type)
    return None


def encode_acls(entries: Iterable[AclEntry]) -> bytes:
    """Returns the content. Kafka writes the entries of a resource in the order of a set; this encoder keeps the order
    of `entries`.
    """
    listed = [
        {
            "principal": entry.principal,
            "permissionType": PERMISSIONS[entry.permission],
            "host": entry.host,
            "operation": OPERATIONS[entry.operation],
        }
        for entry in entries
    ]
    return json_bytes({"acls": listed, "version": ACL_VERSION})


def decode_acls(path: str, data: Buffer | None) -> list[AclEntry]:
    """Returns the entries, each once. Empty content has no entries, as in Kafka."""
    if data is None or not len(data):
        return []
    content = read_object(path, data)
    content.version(1, ACL_VERSION)
    return list(dict.fromkeys(_entry(item) for item in content.nested_list("acls")))


def _entry(item: JsonObject) -> AclEntry:
    principal = item.text("principal")
    if ":" not in principal:
        raise item.wrong("principal", f"is {principal!r}, which is not TYPE:NAME")
    return AclEntry(
        principal,
        _code(item, "permissionType", _PERMISSION_CODES),
        _code(item, "operation", _OPERATION_CODES),
        item.text("host"),
    )


def _code(item: JsonObject, key: str, codes: dict[str, int]) -> int:
    name = item.text(key)
    code = codes.get(name.upper().replace("_", ""))
    if code is None:
        raise item.wrong(key, f"is {name!r}, which is not known")
    return code


def acl_change(pattern: ResourcePattern) -> tuple[str, bytes]:
    """Returns the path at which the notification of changed ACLs is created, and its content."""
    kind = _CHANGED_TYPES[pattern.resource_type]
    if pattern.pattern_type == LITERAL:
        return paths.NEW_ACL_CHANGE, f"{kind}:{pattern.name}".encode()
    content = {"version": ACL_VERSION, "resourceType": kind, "name": pattern.name, "patternType": "PREFIXED"}
    return paths.NEW_EXTENDED_ACL_CHANGE, json_bytes(content)


def decode_acl_change(path: str, data: Buffer | None) -> ResourcePattern:
    """Returns the resource whose ACLs changed, from the notification at this path."""
    if not path.startswith(f"{paths.EXTENDED_ACL_CHANGES}/"):
        text = text_of(path, data)
        kind, colon, name = text.partition(":")
        if not colon:
            raise ZnodeError(path, f"holds {text!r} instead of TYPE:NAME")
        return ResourcePattern(_changed_type(path, kind), name, LITERAL)
    content = read_object(path, data)
    content.version(0, ACL_VERSION)
    if content.text("patternType") != "PREFIXED":
        raise content.wrong("patternType", f"is {content.text('patternType')!r}, expected PREFIXED")
    return ResourcePattern(_changed_type(path, content.text("resourceType")), content.text("name"), PREFIXED)


def _changed_type(path: str, name: str) -> int:
    code = _CHANGED_CODES.get(name.upper())
    if code is None:
        raise ZnodeError(path, f"names the resource type {name!r}, which is not known")
    return code
