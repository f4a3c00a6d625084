"""Decisions about ACLs: which rules CreateAcls adds and DeleteAcls removes, with Kafka's checks and messages.

A rule that exists already is a success without a record. A request that would change more than 10,000 rules changes
none. Many rules are decided in portions, one turn of the event loop after the other; if the controller resigns in
between, the client asks again, and the changes already decided count as successes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from barnabas.common.errors import ErrorCode
from barnabas.common.portions import Portions
from barnabas.controller.requests.result import Cause, ControllerEvent, Result, Versioned
from barnabas.controller.requests.view import ControllerView
from barnabas.metadata.acl_filters import AclFilter
from barnabas.metadata.acls import (
    CLUSTER_NAME,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
    AclRule,
    shown,
)
from barnabas.metadata.security import SecurityImage
from barnabas.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from barnabas.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from barnabas.protocol.messages.records_metadata import AccessControlEntryRecord, RemoveAccessControlEntryRecord

_Created = CreateAclsResponse.AclCreationResult
_Deleted = DeleteAclsResponse.DeleteAclsFilterResult
_Match = DeleteAclsResponse.DeleteAclsMatchingAcl
#: The rules that the filters of a request match, by id, and the result of each filter.
MatchedRules = tuple[dict[bytes, AclRule], list[_Deleted]]

_RECORDS_MAX: Final = 10_000
#: The number of rules decided in one turn of the event loop.
_RULES_IN_PORTION: Final = 500
#: The number of rules compared with a filter in one turn.
_SEARCHED_IN_PORTION: Final = 10_000
_TOO_MANY: Final = "Unable to perform excessively large batch operation."
#: The maximum number of rules that a cause names; further ones are only counted.
_NAMED_MAX: Final = 3


def create_acls(view: ControllerView, request: CreateAclsRequest, actor: str) -> Result[CreateAclsResponse]:
    if len(request.creations) > _RECORDS_MAX:
        refused = create_refused(request, ErrorCode.POLICY_VIOLATION, _TOO_MANY)
        return Result([], refused, Cause(ControllerEvent.CREATE_ACLS, actor))
    return _create_from(view, request, actor, [])


def _create_from(
    view: ControllerView, request: CreateAclsRequest, actor: str, results: list[_Created]
) -> Result[CreateAclsResponse]:
    """Decides about the rules behind those that have results, up to a portion of them."""
    known = view.image.security.acl_ids
    added: dict[AclRule, AccessControlEntryRecord] = {}
    begin = len(results)
    for creation in request.creations[begin : begin + _RULES_IN_PORTION]:
        rule = rule_of(creation)
        problem = problem_of(rule)
        if problem is not None:
            results.append(_Created(error_code=ErrorCode.INVALID_REQUEST, error_message=problem))
            continue
        if rule not in known and rule not in added:
            added[rule] = rule.record(view.random.uuid())
        results.append(_Created())
    records: list[Versioned] = [(record, 0) for record in added.values()]
    cause = Cause(ControllerEvent.CREATE_ACLS, actor, _listed(list(added)))
    rest = None
    if len(results) < len(request.creations):
        rest = partial(_create_from, request=request, actor=actor, results=results)
    return Result(records, CreateAclsResponse(results=results), cause, rest)


def create_refused(request: CreateAclsRequest, code: ErrorCode, text: str | None = None) -> CreateAclsResponse:
    return CreateAclsResponse(results=[_Created(error_code=code, error_message=text) for _ in request.creations])


def rule_of(creation: CreateAclsRequest.AclCreation) -> AclRule:
    """Returns the rule that a request adds."""
    return AclRule(
        creation.resource_type,
        creation.resource_name,
        creation.resource_pattern_type,
        creation.operation,
        creation.principal,
        creation.host,
        creation.permission_type,
    )


def problem_of(rule: AclRule) -> str | None:
    """Returns why a rule cannot be created, None if it can."""
    if rule.resource_type == AclResource.CLUSTER and rule.resource_name not in ("", CLUSTER_NAME):
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not rule.resource_name:
        return "Invalid empty resource name"
    resource = shown(AclResource, rule.resource_type)
    if resource in ("UNKNOWN", "ANY"):
        return f"Invalid resourceType {resource}"
    if rule.pattern_type not in (AclPattern.LITERAL, AclPattern.PREFIXED):
        return f"Invalid patternType {shown(AclPattern, rule.pattern_type)}"
    operation = shown(AclOperation, rule.operation)
    if operation in ("UNKNOWN", "ANY"):
        return f"Invalid operation {operation}"
    if rule.permission not in (AclPermission.DENY, AclPermission.ALLOW):
        return f"Invalid permissionType {shown(AclPermission, rule.permission)}"
    if ":" not in rule.principal:
        return (
            f"Could not parse principal from `{rule.principal}` (no colon is present separating the principal type "
            "from the principal name)"
        )
    return None


def delete_acls(view: ControllerView, request: DeleteAclsRequest, actor: str) -> Result[DeleteAclsResponse]:
    return _search(view, matched_rules(view.image.security, request), request, actor)


def _search(
    view: ControllerView, work: Portions[MatchedRules], request: DeleteAclsRequest, actor: str
) -> Result[DeleteAclsResponse]:
    """Searches one portion of the rules; after the last portion, removes the rules that were found. The search covers
    the rules that existed when the request arrived.
    """
    try:
        next(work)
    except StopIteration as end:
        removed, results = end.value
    else:
        rest = partial(_search, work=work, request=request, actor=actor)
        return Result([], DeleteAclsResponse(), Cause(ControllerEvent.DELETE_ACLS, actor), rest)
    if len(removed) > _RECORDS_MAX:
        text = f"Cannot remove more than {_RECORDS_MAX} acls in a single delete operation."
        refused = delete_refused(request, ErrorCode.POLICY_VIOLATION, text)
        return Result([], refused, Cause(ControllerEvent.DELETE_ACLS, actor))
    return _remove(view, list(removed.items()), DeleteAclsResponse(filter_results=results), actor)


def matched_rules(security: SecurityImage, request: DeleteAclsRequest) -> Portions[MatchedRules]:
    """Returns the rules that the filters match, by id, and the result of each filter."""
    removed: dict[bytes, AclRule] = {}
    results: list[_Deleted] = []
    for place, requested in enumerate(request.filters):
        if place % _RULES_IN_PORTION == _RULES_IN_PORTION - 1:
            yield
        found = AclFilter.of(requested)
        if found.has_unknown_pattern or found.has_unknown_entry:
            text = "Unknown patternFilter." if found.has_unknown_pattern else "Unknown entryFilter."
            results.append(_Deleted(error_code=ErrorCode.INVALID_REQUEST, error_message=text))
            continue
        matched = yield from _matching(security, found)
        removed.update(matched)
        results.append(_Deleted(error_message=None, matching_acls=[_match(rule) for rule in matched.values()]))
    return removed, results


def _remove(
    view: ControllerView, removed: Sequence[tuple[bytes, AclRule]], response: DeleteAclsResponse, actor: str
) -> Result[DeleteAclsResponse]:
    """Removes the found rules that still exist, up to a portion of them."""
    first, left = removed[:_RULES_IN_PORTION], removed[_RULES_IN_PORTION:]
    present = [(rule_id, rule) for rule_id, rule in first if rule_id in view.image.security.acls]
    records: list[Versioned] = [(RemoveAccessControlEntryRecord(id=rule_id), 0) for rule_id, _ in present]
    cause = Cause(ControllerEvent.DELETE_ACLS, actor, _listed([rule for _, rule in present]))
    rest = partial(_remove, removed=left, response=response, actor=actor) if left else None
    return Result(records, response, cause, rest)


def delete_refused(request: DeleteAclsRequest, code: ErrorCode, text: str | None = None) -> DeleteAclsResponse:
    return DeleteAclsResponse(filter_results=[_Deleted(error_code=code, error_message=text) for _ in request.filters])


def _matching(security: SecurityImage, wanted: AclFilter) -> Portions[dict[bytes, AclRule]]:
    """Returns the rules that a filter matches, by id. A filter that names one rule needs no search."""
    only = wanted.only_rule
    if only is not None:
        rule_id = security.acl_ids.get(only)
        return {} if rule_id is None else {rule_id: only}
    found: dict[bytes, AclRule] = {}
    for place, (rule, rule_id) in enumerate(security.acl_ids.items(), 1):
        if wanted.matches(rule):
            found[rule_id] = rule
        if place % _SEARCHED_IN_PORTION == 0:
            yield
    return found


def _match(rule: AclRule) -> _Match:
    return _Match(
        error_message=None,
        resource_type=rule.resource_type,
        resource_name=rule.resource_name,
        pattern_type=rule.pattern_type,
        principal=rule.principal,
        host=rule.host,
        operation=rule.operation,
        permission_type=rule.permission,
    )


def _listed(rules: Sequence[AclRule]) -> str:
    """Returns the rules as text for the journal."""
    shown_rules = [in_words(rule) for rule in rules[:_NAMED_MAX]]
    if len(rules) > _NAMED_MAX:
        shown_rules.append(f"{len(rules) - _NAMED_MAX} more rules")
    return "; ".join(shown_rules)


def in_words(rule: AclRule) -> str:
    """Returns a rule as one line of text: "ALLOW User:alice READ TOPIC orders from *"."""
    prefix = "prefix " if rule.pattern_type == AclPattern.PREFIXED else ""
    return (
        f"{shown(AclPermission, rule.permission)} {rule.principal} {shown(AclOperation, rule.operation)} "
        f"{shown(AclResource, rule.resource_type)} {prefix}{rule.resource_name} from {rule.host}"
    )
