"""`barnabas acls explain`: who added the rule that decides, from the events of the journal."""

from __future__ import annotations

from typing import Any

from tests.support.secured import SecuredBroker

from barnabas.cli.acls import addition
from barnabas.journal.events import rule_fields
from barnabas.metadata.acls import AclOperation, AclPattern, AclPermission, AclResource, AclRule

RULE = AclRule(AclResource.TOPIC, "ord", AclPattern.PREFIXED, AclOperation.READ, "User:alice", "*", AclPermission.ALLOW)


def event(kind: str, actor: str, time_ms: int, **changes: Any) -> dict[str, Any]:
    return {"id": f"{time_ms}", "kind": kind, "actor": actor, "time_ms": time_ms, **rule_fields(RULE), **changes}


def test_the_latest_addition_of_the_rule_counts() -> None:
    events = [
        event("acl-added", "User:admin", 1_000),
        event("acl-removed", "User:eve", 2_000),
        event("acl-added", "User:bob", 3_000),
        event("acl-added", "User:carol", 4_000, name="other"),
        event("acl-added", "User:dave", 5_000, permission="deny"),
    ]
    assert addition(RULE, events) == "by User:bob at 1970-01-01T00:00:03.000Z"


def test_a_controller_that_found_the_rule_in_the_log_does_not_know_who_added_it() -> None:
    assert addition(RULE, [event("acl-added", "", 1_000)]) == "at 1970-01-01T00:00:01.000Z"


def test_a_journal_without_the_rule_has_no_answer() -> None:
    assert addition(RULE, []) is None
    assert addition(RULE, [event("acl-removed", "User:eve", 2_000)]) is None


def test_a_rule_of_the_metadata_has_the_fields_of_its_event() -> None:
    secured = SecuredBroker()
    secured.add_rule(AclOperation.READ, AclResource.TOPIC, "ord", pattern=AclPattern.PREFIXED)
    assert list(secured.broker.metadata.image.security.acls.values()) == [RULE]
