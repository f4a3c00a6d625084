"""`barnabas acls`: lists, adds and removes rules of the authorizer, as `kafka-acls` does, and explains its decisions.

A resource is given as TYPE:NAME: topic:orders, group:readers, transactional-id:payments, delegation-token:ID,
user:User:alice, or cluster; topic:* means every topic. The requests do not go through librdkafka, which knows neither
users and tokens as resources nor their operations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Annotated, Final, NamedTuple

import typer

from barnabas.cli import clients, output
from barnabas.cli.acl_requests import creation_of, filter_of
from barnabas.cli.explain_story import Event
from barnabas.cli.journal_reader import all_events
from barnabas.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, ClientProperty, Json
from barnabas.common.errors import ErrorCode
from barnabas.embedded.failures import Failure
from barnabas.journal.events import rule_fields
from barnabas.metadata import acls
from barnabas.metadata.acls import (
    CLUSTER_NAME,
    WILDCARD,
    AclIndex,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
    AclRule,
)
from barnabas.monitor.texts import at
from barnabas.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from barnabas.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from barnabas.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

_TYPES: Final = {
    "topic": AclResource.TOPIC,
    "group": AclResource.GROUP,
    "transactional-id": AclResource.TRANSACTIONAL_ID,
    "delegation-token": AclResource.DELEGATION_TOKEN,
    "user": AclResource.USER,
    "cluster": AclResource.CLUSTER,
}
_TYPE_NAMES: Final = {int(each): name for name, each in _TYPES.items()}
_USER: Final = "User:"
#: The version of CreateAcls, DescribeAcls and DeleteAcls that knows users as resources (Kafka 3.3).
_VERSION: Final = 3
_NOT_VISIBLE: Final = (
    "brokers do not show their super.users, who can do everything, and allow.everyone.if.no.acl.found, which opens "
    "resources without rules"
)


class Operation(StrEnum):
    """The operations, by the names that the commands accept and print."""

    ALL = "all"
    READ = "read"
    WRITE = "write"
    CREATE = "create"
    DELETE = "delete"
    ALTER = "alter"
    DESCRIBE = "describe"
    CLUSTER_ACTION = "cluster-action"
    DESCRIBE_CONFIGS = "describe-configs"
    ALTER_CONFIGS = "alter-configs"
    IDEMPOTENT_WRITE = "idempotent-write"
    CREATE_TOKENS = "create-tokens"
    DESCRIBE_TOKENS = "describe-tokens"
    TWO_PHASE_COMMIT = "two-phase-commit"

    @property
    def code(self) -> AclOperation:
        return AclOperation[self.name]


class Resource(NamedTuple):
    """One resource, or all resources of a type."""

    type: AclResource
    name: str

    @classmethod
    def parse(cls, text: str) -> Resource:
        """Parses TYPE:NAME. Raises Failure."""
        kind, colon, name = text.partition(":")
        found = _TYPES.get(kind)
        if found is AclResource.CLUSTER and not colon:
            return cls(found, CLUSTER_NAME)
        if found is AclResource.USER and name not in ("", WILDCARD) and not name.startswith(_USER):
            raise Failure(f"{text!r} is not a user", f"give it as user:{_USER}NAME")
        if found is None or found is AclResource.CLUSTER or not name:
            raise Failure(
                f"{text!r} is not a resource", f"give {', '.join(list(_TYPES)[:-1])} as TYPE:NAME, or cluster"
            )
        return cls(found, name)


Principal = Annotated[str, typer.Argument(metavar="PRINCIPAL", help="User:NAME; User:* means everyone")]
OperationArgument = Annotated[Operation, typer.Argument(metavar="OPERATION", help=", ".join(Operation))]
ResourceArgument = Annotated[str, typer.Argument(metavar="RESOURCE", help="TYPE:NAME, TYPE:* or cluster")]
Deny = Annotated[bool, typer.Option("--deny", help="Deny instead of allow; rules that deny take precedence")]
Prefixed = Annotated[bool, typer.Option("--prefixed", help="All resources whose names begin with NAME")]
Host = Annotated[str, typer.Option("--host", help="The client's numeric address; * means any")]

app = typer.Typer(help="List, add, remove and explain the rules of the authorizer", no_args_is_help=True)


@app.command("list")
def list_rules(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, properties: ClientProperty = None, as_json: Json = False
) -> None:
    """List all rules"""
    rules, has_authorizer = _rules(bootstrap)
    if as_json:
        output.show_json([_fields(rule) for rule in rules])
        return
    if not rules:
        print("there is no rule" if has_authorizer else "there is no rule: the cluster has no authorizer")
    for rule in rules:
        print(_shown(rule))


def _on_rule(work: Callable[[str, AclRule], None]) -> Callable[[str, AclRule], None]:
    """Makes a function a command with the arguments that name a rule, with its name and its docstring as help."""

    def command(
        principal: Principal,
        operation: OperationArgument,
        resource: ResourceArgument,
        deny: Deny = False,
        prefixed: Prefixed = False,
        host: Host = WILDCARD,
        bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
        properties: ClientProperty = None,
    ) -> None:
        work(bootstrap, _given(principal, operation, Resource.parse(resource), deny=deny, prefixed=prefixed, host=host))

    app.command(work.__name__, help=work.__doc__)(command)
    return work


@_on_rule
def add(bootstrap: str, rule: AclRule) -> None:
    """Add a rule; each broker applies it as soon as it receives it"""
    with clients.wire(bootstrap) as wire:
        (row,) = wire.call(CreateAclsRequest(creations=[creation_of(rule)]), _VERSION, CreateAclsResponse).results
    _check(row.error_code, row.error_message, "cannot add the rule")
    print(f"added: {_shown(rule)}")


@_on_rule
def remove(bootstrap: str, rule: AclRule) -> None:
    """Remove a rule

    The exit code is 1 if there is no such rule.
    """
    with clients.wire(bootstrap) as wire:
        (row,) = wire.call(DeleteAclsRequest(filters=[filter_of(rule)]), _VERSION, DeleteAclsResponse).filter_results
    _check(row.error_code, row.error_message, "cannot remove the rule")
    if not row.matching_acls:
        raise Failure(f"there is no such rule: {_shown(rule)}", "`barnabas acls list` shows the rules")
    print(f"removed: {_shown(rule)}")


@app.command()
def explain(
    principal: Principal,
    operation: OperationArgument,
    resource: ResourceArgument,
    host: Annotated[str, typer.Option("--host", help="The client's numeric address")] = "127.0.0.1",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    properties: ClientProperty = None,
) -> None:
    """Explain whether a principal may do something, and which rule decides

    The exit code is 1 if it may not.
    """
    asked = Resource.parse(resource)
    question = f"{principal} {operation} {resource} from {host}"
    rules, has_authorizer = _rules(bootstrap)
    if not has_authorizer:
        print(f"{question}: allowed, because the cluster has no authorizer")
        return
    index = AclIndex()
    index.update((number.to_bytes(16, "big"), rule) for number, rule in enumerate(rules))
    decision = index.decide(principal, host, operation.code, asked.type, asked.name)
    if decision.rule is not None:
        print(f"{question}: {'allowed' if decision.allowed else 'denied'} by the rule {_shown(decision.rule)}")
        who = addition(decision.rule, all_events(bootstrap, properties))
        print(f"the rule was added {who}" if who else "the journal does not show who added the rule")
    else:
        why = "no rule of the resource applies to this request" if decision.has_rules else "the resource has no rule"
        print(f"{question}: denied, because {why}")
    if not decision.allowed:
        output.say(_NOT_VISIBLE)
        raise typer.Exit(1)


def addition(rule: AclRule, events: Iterable[Event]) -> str | None:
    """Returns when a rule was added, and by whom, if that is known; None if the journal does not have it."""
    wanted = rule_fields(rule)
    added = [each for each in events if each["kind"] == "acl-added" and each.items() >= wanted.items()]
    if not added:
        return None
    actor, time = added[-1]["actor"], at(added[-1]["time_ms"])
    return f"by {actor} at {time}" if actor else f"at {time}"


def _rules(bootstrap: str) -> tuple[Sequence[AclRule], bool]:
    """Returns all rules, and whether the cluster has an authorizer. Raises Failure."""
    everything = DescribeAclsRequest(
        resource_type_filter=AclResource.ANY,
        resource_name_filter=None,
        pattern_type_filter=AclPattern.ANY,
        principal_filter=None,
        host_filter=None,
        operation=AclOperation.ANY,
        permission_type=AclPermission.ANY,
    )
    with clients.wire(bootstrap) as wire:
        answer = wire.call(everything, _VERSION, DescribeAclsResponse)
    if answer.error_code == ErrorCode.SECURITY_DISABLED:
        return (), False
    _check(answer.error_code, answer.error_message, "cannot list the rules")
    found = [
        AclRule(
            resource.resource_type,
            resource.resource_name,
            resource.pattern_type,
            row.operation,
            row.principal,
            row.host,
            row.permission_type,
        )
        for resource in answer.resources
        for row in resource.acls
    ]
    return sorted(found, key=_shown), True


def _check(code: int, text: str | None, what: str) -> None:
    """Raises Failure if the code is an error."""
    if code != ErrorCode.NONE:
        name = ErrorCode(code).name if code in ErrorCode._value2member_map_ else f"error {code}"
        raise Failure(f"{what}: {text} ({name})" if text else f"{what}: {name}")


def _given(
    principal: str, operation: Operation, resource: Resource, *, deny: bool, prefixed: bool, host: str
) -> AclRule:
    if not principal.startswith(_USER) or principal == _USER:
        raise Failure(f"{principal!r} is not a principal", f"give it as {_USER}NAME")
    pattern = AclPattern.PREFIXED if prefixed else AclPattern.LITERAL
    permission = AclPermission.DENY if deny else AclPermission.ALLOW
    return AclRule(resource.type, resource.name, pattern, operation.code, principal, host, permission)


def _fields(rule: AclRule) -> dict[str, str]:
    resource = acls.shown(AclResource, rule.resource_type)
    return {
        "permission": acls.shown(AclPermission, rule.permission).lower(),
        "principal": rule.principal,
        "host": rule.host,
        "operation": acls.shown(AclOperation, rule.operation).lower().replace("_", "-"),
        "resource": _TYPE_NAMES.get(rule.resource_type, resource.lower()),
        "pattern": acls.shown(AclPattern, rule.pattern_type).lower(),
        "name": rule.resource_name,
    }


def _shown(rule: AclRule) -> str:
    """Returns a rule on one line: "allow User:alice read topic:orders", with the host unless the rule applies to all
    hosts.
    """
    fields = _fields(rule)
    is_cluster = rule.resource_type == AclResource.CLUSTER
    suffix = " and all names that begin with it" if fields["pattern"] == "prefixed" else ""
    where = "cluster" if is_cluster else f"{fields['resource']}:{rule.resource_name}{suffix}"
    host = "" if rule.host == WILDCARD else f" from {rule.host}"
    return f"{fields['permission']} {rule.principal} {fields['operation']} {where}{host}"
