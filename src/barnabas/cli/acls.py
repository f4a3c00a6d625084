"""`barnabas acls`: lists, adds and removes rules of the authorizer, as `kafka-acls` does, and explains its decisions.

A resource is given as TYPE:NAME: topic:orders, group:readers, transactional-id:payments, or cluster; topic:* means
every topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Annotated, Any, Final, NamedTuple

import typer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from barnabas.cli import output
from barnabas.cli.clients import TIMEOUT_S, admin_client, result
from barnabas.cli.explain_story import Event
from barnabas.cli.journal_reader import all_events
from barnabas.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, ClientProperty, Json
from barnabas.embedded.failures import Failure
from barnabas.journal.events import rule_fields
from barnabas.metadata import acls
from barnabas.metadata.acls import CLUSTER_NAME, AclIndex, AclRule
from barnabas.monitor.texts import at

#: An `AclBinding`: the client converts its fields to enums, which its type hints do not say.
_Binding = Any

_TYPES: Final = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
    "cluster": ResourceType.BROKER,
}
_TYPE_NAMES: Final = {each: name for name, each in _TYPES.items()}
_AUTHORIZER: Final = "authorizer.class.name"
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

    @property
    def of_librdkafka(self) -> AclOperation:
        return AclOperation[self.name]


class Resource(NamedTuple):
    """One resource, or all resources of a type."""

    type: ResourceType
    name: str

    @classmethod
    def parse(cls, text: str) -> Resource:
        """Parses TYPE:NAME. Raises Failure."""
        kind, colon, name = text.partition(":")
        found = _TYPES.get(kind)
        if found is ResourceType.BROKER and not colon:
            return cls(found, CLUSTER_NAME)
        if found is None or found is ResourceType.BROKER or not name:
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
    admin = admin_client(bootstrap, properties)
    rules = _rules(admin)
    if as_json:
        output.show_json([_fields(rule) for rule in rules])
        return
    if not rules:
        # librdkafka does not report SECURITY_DISABLED here.
        print("there is no rule" if _has_authorizer(admin) else "there is no rule: the cluster has no authorizer")
    for rule in rules:
        print(_shown(rule))


def _on_rule(work: Callable[[AdminClient, _Binding], None]) -> Callable[[AdminClient, _Binding], None]:
    """Makes a function a command with the arguments that name a rule, with its name and its docstring as help."""

    def command(
        principal: Principal,
        operation: OperationArgument,
        resource: ResourceArgument,
        deny: Deny = False,
        prefixed: Prefixed = False,
        host: Host = "*",
        bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
        properties: ClientProperty = None,
    ) -> None:
        rule = _binding(principal, operation, Resource.parse(resource), deny=deny, prefixed=prefixed, host=host)
        work(admin_client(bootstrap, properties), rule)

    app.command(work.__name__, help=work.__doc__)(command)
    return work


@_on_rule
def add(admin: AdminClient, rule: _Binding) -> None:
    """Add a rule; each broker applies it as soon as it receives it"""
    (done,) = admin.create_acls([rule], request_timeout=TIMEOUT_S).values()
    result(done, "cannot add the rule")
    print(f"added: {_shown(rule)}")


@_on_rule
def remove(admin: AdminClient, rule: _Binding) -> None:
    """Remove a rule

    The exit code is 1 if there is no such rule.
    """
    wanted = AclBindingFilter(
        rule.restype,
        rule.name,
        rule.resource_pattern_type,
        rule.principal,
        rule.host,
        rule.operation,
        rule.permission_type,
    )
    (done,) = admin.delete_acls([wanted], request_timeout=TIMEOUT_S).values()
    if not result(done, "cannot remove the rule"):
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
    admin = admin_client(bootstrap, properties)
    question = f"{principal} {operation} {resource} from {host}"
    if not _has_authorizer(admin):
        print(f"{question}: allowed, because the cluster has no authorizer")
        return
    rules = {_rule(binding): _shown(binding) for binding in _rules(admin)}
    index = AclIndex()
    ids = (number.to_bytes(16, "big") for number in range(len(rules)))
    index.update(zip(ids, rules, strict=True))
    kind = acls.AclResource.CLUSTER if asked.type is ResourceType.BROKER else acls.AclResource[asked.type.name]
    decision = index.decide(principal, host, acls.AclOperation[operation.name], kind, asked.name)
    if decision.rule is not None:
        print(f"{question}: {'allowed' if decision.allowed else 'denied'} by the rule {rules[decision.rule]}")
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


def _rules(admin: AdminClient) -> list[_Binding]:
    any_text: Any = None
    everything = AclBindingFilter(
        ResourceType.ANY,
        any_text,
        ResourcePatternType.ANY,
        any_text,
        any_text,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    found = result(admin.describe_acls(everything, request_timeout=TIMEOUT_S), "cannot list the rules")
    return sorted(found, key=_shown)


def _has_authorizer(admin: AdminClient) -> bool:
    described = result(admin.describe_cluster(request_timeout=TIMEOUT_S), "cannot describe the cluster")
    resource = ConfigResource(ConfigResource.Type.BROKER, str(described.nodes[0].id))
    (done,) = admin.describe_configs([resource], request_timeout=TIMEOUT_S).values()
    entries = result(done, "cannot read the configuration of a broker")
    return _AUTHORIZER not in entries or bool(entries[_AUTHORIZER].value)


def _binding(
    principal: str, operation: Operation, resource: Resource, *, deny: bool, prefixed: bool, host: str
) -> _Binding:
    if not principal.startswith("User:") or principal == "User:":
        raise Failure(f"{principal!r} is not a principal", "give it as User:NAME")
    pattern = ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL
    permission = AclPermissionType.DENY if deny else AclPermissionType.ALLOW
    return AclBinding(resource.type, resource.name, pattern, principal, host, operation.of_librdkafka, permission)


def _rule(binding: _Binding) -> AclRule:
    is_cluster = binding.restype is ResourceType.BROKER
    return AclRule(
        acls.AclResource.CLUSTER if is_cluster else acls.AclResource[binding.restype.name],
        binding.name,
        acls.AclPattern[binding.resource_pattern_type.name],
        acls.AclOperation[binding.operation.name],
        binding.principal,
        binding.host,
        acls.AclPermission[binding.permission_type.name],
    )


def _fields(rule: _Binding) -> dict[str, str]:
    return {
        "permission": rule.permission_type.name.lower(),
        "principal": rule.principal,
        "host": rule.host,
        "operation": rule.operation.name.lower().replace("_", "-"),
        "resource": _TYPE_NAMES.get(rule.restype, rule.restype.name.lower()),
        "pattern": rule.resource_pattern_type.name.lower(),
        "name": rule.name,
    }


def _shown(rule: _Binding) -> str:
    """Returns a rule on one line: "allow User:alice read topic:orders", with the host unless the rule applies to all
    hosts.
    """
    fields = _fields(rule)
    is_cluster = rule.restype is ResourceType.BROKER
    suffix = " and all names that begin with it" if fields["pattern"] == "prefixed" else ""
    where = "cluster" if is_cluster else f"{fields['resource']}:{rule.name}{suffix}"
    host = "" if rule.host == "*" else f" from {rule.host}"
    return f"{fields['permission']} {rule.principal} {fields['operation']} {where}{host}"
