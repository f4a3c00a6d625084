"""Actions on ACLs, SCRAM users and quotas.

A password is salted and hashed here, as every client does, and is neither kept nor written to the audit log.
"""

from __future__ import annotations

import re
import secrets
from typing import Any, Final

from barnabas.console.actions.inputs import Inputs
from barnabas.console.actions.outcome import Result, outcome, plan
from barnabas.console.actions.requests import ask_controller
from barnabas.console.problems import Problem
from barnabas.console.security.rights import Role
from barnabas.console.views.security import (
    ENTITIES,
    MECHANISMS,
    OPERATIONS,
    PATTERNS,
    PERMISSIONS,
    QUOTA_KEYS,
    RESOURCES,
    acls_view,
    quotas_view,
    scram_users_view,
)
from barnabas.console.watched import WatchedCluster
from barnabas.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from barnabas.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from barnabas.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from barnabas.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from barnabas.protocol.sasl.mechanism import SCRAM
from barnabas.protocol.sasl.scram_server import ITERATIONS_MAX, ITERATIONS_MIN, salted_password

_PRINCIPAL: Final = re.compile(r"[^:\s]+:.+", re.DOTALL)
_CLUSTER_NAME: Final = "kafka-cluster"
_SALT_BYTES: Final = 26
_TEXT_MAX: Final = 1_000


async def add_acl(cluster: WatchedCluster, inputs: Inputs, _role: Role) -> dict[str, Any]:
    rule = _rule(inputs)
    if inputs.is_dry_run:
        listed = await acls_view(cluster)
        warnings = [] if listed["problem"] is None else [listed["problem"]]
        if listed["rows"] is not None and rule in listed["rows"]:
            warnings.append("this rule already exists")
        if rule["permission"] == "deny":
            warnings.append("a rule that denies takes precedence over all rules that allow")
        return plan([f"adds the rule: {shown_rule(rule)}"], warnings)
    creation = CreateAclsRequest.AclCreation(
        resource_type=RESOURCES[rule["resource"]],
        resource_name=rule["name"],
        resource_pattern_type=PATTERNS[rule["pattern"]],
        principal=rule["principal"],
        host=rule["host"],
        operation=OPERATIONS[rule["operation"]],
        permission_type=PERMISSIONS[rule["permission"]],
    )
    answer = await ask_controller(
        cluster,
        CreateAclsRequest(creations=[creation]),
        CreateAclsResponse,
        lambda found: found.results,
    )
    rows: list[Result] = [(shown_rule(rule), row.error_code, row.error_message) for row in answer.results]
    return outcome(f"added: {shown_rule(rule)}", rows)


async def remove_acl(cluster: WatchedCluster, inputs: Inputs, _role: Role) -> dict[str, Any]:
    rule = _rule(inputs)
    if inputs.is_dry_run:
        listed = await acls_view(cluster)
        is_missing = listed["rows"] is not None and rule not in listed["rows"]
        return plan([f"removes the rule: {shown_rule(rule)}"], ["there is no such rule"] if is_missing else [])
    wanted = DeleteAclsRequest.DeleteAclsFilter(
        resource_type_filter=RESOURCES[rule["resource"]],
        resource_name_filter=rule["name"],
        pattern_type_filter=PATTERNS[rule["pattern"]],
        principal_filter=rule["principal"],
        host_filter=rule["host"],
        operation=OPERATIONS[rule["operation"]],
        permission_type=PERMISSIONS[rule["permission"]],
    )
    answer = await ask_controller(
        cluster,
        DeleteAclsRequest(filters=[wanted]),
        DeleteAclsResponse,
        lambda found: found.filter_results,
    )
    rows: list[Result] = [
        (
            shown_rule(rule),
            row.error_code or next((each.error_code for each in row.matching_acls), 0),
            row.error_message,
        )
        for row in answer.filter_results
    ]
    found = outcome(f"removed: {shown_rule(rule)}", rows)
    if not any(row.matching_acls for row in answer.filter_results):
        raise Problem("not-found", f"there is no such rule: {shown_rule(rule)}")
    return found


async def set_scram_user(cluster: WatchedCluster, inputs: Inputs, _role: Role) -> dict[str, Any]:
    """Sets the password of a user for one mechanism."""
    user, mechanism = _name(inputs, "user"), inputs.choice("mechanism", tuple(MECHANISMS))
    iterations = inputs.number("iterations", least=ITERATIONS_MIN, most=ITERATIONS_MAX, default=ITERATIONS_MIN)
    password = inputs.text("password")
    if inputs.is_dry_run:
        rows = (await scram_users_view(cluster))["rows"] or []
        is_there = any(row["user"] == user and row["mechanism"] == mechanism for row in rows)
        line = (
            f"replaces the password of {user} for {mechanism}" if is_there else f"lets {user} log in with {mechanism}"
        )
        return plan([line], ["open connections stay open"] if is_there else [])
    number, hash_name = SCRAM[mechanism]
    salt = secrets.token_bytes(_SALT_BYTES)
    row = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name=user,
        mechanism=number,
        iterations=iterations,
        salt=salt,
        salted_password=salted_password(hash_name, password, salt, iterations),
    )
    return await _alter_users(cluster, AlterUserScramCredentialsRequest(upsertions=[row]), f"{user} can log in")


async def remove_scram_user(cluster: WatchedCluster, inputs: Inputs, _role: Role) -> dict[str, Any]:
    user, mechanism = _name(inputs, "user"), inputs.choice("mechanism", tuple(MECHANISMS))
    if inputs.is_dry_run:
        return plan([f"{user} cannot log in with {mechanism} any more"], ["open connections stay open"])
    row = AlterUserScramCredentialsRequest.ScramCredentialDeletion(name=user, mechanism=MECHANISMS[mechanism])
    request = AlterUserScramCredentialsRequest(deletions=[row])
    return await _alter_users(cluster, request, f"{user} cannot log in with {mechanism} any more")


async def set_quotas(cluster: WatchedCluster, inputs: Inputs, _role: Role) -> dict[str, Any]:
    """Sets quotas of an entity, and removes those that are null; the others stay."""
    entity, changes = _entity(inputs), _quota_changes(inputs)
    request = AlterClientQuotasRequest(
        entries=[
            AlterClientQuotasRequest.EntryData(
                entity=[
                    AlterClientQuotasRequest.EntityData(entity_type=kind, entity_name=name)
                    for kind, name in entity.items()
                ],
                ops=[
                    AlterClientQuotasRequest.OpData(key=key, value=value or 0.0, remove=value is None)
                    for key, value in changes.items()
                ],
            )
        ],
        validate_only=inputs.is_dry_run,
    )
    subject = shown_entity(entity)
    answer = await ask_controller(cluster, request, AlterClientQuotasResponse, lambda found: found.entries)
    rows: list[Result] = [(subject, row.error_code, row.error_message) for row in answer.entries]
    found = outcome(f"the quotas of {subject} were changed", rows)
    if not inputs.is_dry_run:
        return found
    before: dict[str, float] = next(
        (row["quotas"] for row in (await quotas_view(cluster))["rows"] or [] if row["entity"] == entity), {}
    )
    return plan([f"{subject}: {key} {_quota(before.get(key))} -> {_quota(value)}" for key, value in changes.items()])


async def _alter_users(cluster: WatchedCluster, request: AlterUserScramCredentialsRequest, text: str) -> dict[str, Any]:
    answer = await ask_controller(
        cluster,
        request,
        AlterUserScramCredentialsResponse,
        lambda found: found.results,
    )
    return outcome(text, [(row.user, row.error_code, row.error_message) for row in answer.results])


def _rule(inputs: Inputs) -> dict[str, str]:
    """Returns a rule in the form of the list. Raises Problem."""
    resource = inputs.choice("resource", tuple(RESOURCES))
    principal = _name(inputs, "principal")
    if not _PRINCIPAL.fullmatch(principal):
        raise Problem("bad-request", "a principal must have the form TYPE:NAME, such as User:anna")
    return {
        "resource": resource,
        "name": _CLUSTER_NAME if resource == "cluster" else _name(inputs, "name"),
        "pattern": inputs.choice("pattern", tuple(PATTERNS)) if "pattern" in inputs.body else "literal",
        "principal": principal,
        "host": _name(inputs, "host") if inputs.body.get("host") else "*",
        "operation": inputs.choice("operation", tuple(OPERATIONS)),
        "permission": inputs.choice("permission", tuple(PERMISSIONS)),
    }


def shown_rule(rule: dict[str, str]) -> str:
    where = "cluster" if rule["resource"] == "cluster" else f"{rule['resource']} {rule['name']}"
    if rule["pattern"] == "prefixed":
        where += " and all names that begin with it"
    host = "" if rule["host"] == "*" else f" from {rule['host']}"
    return f"{rule['permission']} {rule['principal']} {rule['operation']} {where}{host}"


def shown_entity(entity: dict[str, str | None]) -> str:
    return ", ".join(f"{kind} {'(default)' if name is None else name}" for kind, name in entity.items())


def _name(inputs: Inputs, name: str) -> str:
    found = inputs.text(name)
    if len(found) > _TEXT_MAX:
        raise Problem("bad-request", f"{name} is longer than {_TEXT_MAX} characters")
    return found


def _entity(inputs: Inputs) -> dict[str, str | None]:
    found = inputs.body.get("entity")
    is_right = (
        isinstance(found, dict)
        and found
        and all(
            kind in ENTITIES and (name is None or (isinstance(name, str) and 0 < len(name) <= _TEXT_MAX))
            for kind, name in found.items()
        )
    )
    if not is_right or found is None:
        raise Problem("bad-request", f"entity must be an object with {', '.join(ENTITIES)}; null is the default")
    return dict(sorted(found.items()))


def _quota_changes(inputs: Inputs) -> dict[str, float | None]:
    found = inputs.body.get("quotas")
    if not isinstance(found, dict) or not found or not set(found) <= set(QUOTA_KEYS):
        raise Problem("bad-request", f"quotas must be an object with {', '.join(QUOTA_KEYS)}; null removes one")
    for key, value in found.items():
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0
        if value is not None and not is_number:
            raise Problem("bad-request", f"{key} is not a number above 0")
    return {key: None if value is None else float(value) for key, value in found.items()}


def _quota(value: float | None) -> str:
    return "none" if value is None else f"{value:,g}"
