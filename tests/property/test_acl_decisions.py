"""Random rules and questions: the index against every rule read in turn, and against an index that was built anew."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.plain_rules import plain_answer, plain_rule

from barnabas.metadata import acls
from barnabas.metadata.acls import (
    AclIndex,
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
    AclRule,
    Decision,
)
from barnabas.metadata.image import EMPTY_IMAGE, MetadataDelta, MetadataImage
from barnabas.metadata.security import SecurityImage
from barnabas.protocol.message import Message
from barnabas.protocol.messages.records_metadata import AccessControlEntryRecord, RemoveAccessControlEntryRecord

NAMES = ["a", "ab", "abc", "b", "ba", "bab", "*"]
PRINCIPALS = ["User:alice", "User:bob", "User:*", "Group:alice"]
HOSTS = ["10.0.0.1", "10.0.0.2", "*"]
OPERATIONS = [operation for operation in AclOperation if operation > AclOperation.ANY]
RESOURCES = [AclResource.TOPIC, AclResource.GROUP]

Question = tuple[str, str, AclOperation, AclResource, str]
#: (name, pattern), host, principal, operation
Shape = tuple[tuple[str, AclPattern], str, str, AclOperation]

RECORDS = st.builds(
    AccessControlEntryRecord,
    resource_type=st.sampled_from([int(each) for each in RESOURCES]),
    resource_name=st.sampled_from(NAMES),
    pattern_type=st.sampled_from([3, 4]),
    principal=st.sampled_from(PRINCIPALS),
    host=st.sampled_from(HOSTS),
    operation=st.sampled_from([int(each) for each in OPERATIONS]),
    permission_type=st.sampled_from([2, 3]),
)
#: A change: the id of the rule, and its record, or None to remove it.
CHANGES = st.lists(st.tuples(st.integers(0, 9), st.none() | RECORDS), max_size=25)
QUESTIONS = st.lists(
    st.tuples(
        st.sampled_from(PRINCIPALS),
        st.sampled_from(HOSTS[:2]),
        st.sampled_from(OPERATIONS),
        st.sampled_from(RESOURCES),
        st.sampled_from(["a", "ab", "abc", "abcd", "b", "ba", "c", "bab", "hardcode", "*"]),
    ),
    min_size=20,
    max_size=20,
)


def _replayed(changes: list[tuple[int, AccessControlEntryRecord | None]]) -> tuple[AclIndex, list[AclRule]]:
    """Returns the index that followed an image through the changes, and the rules that are left."""
    index, image = AclIndex(), EMPTY_IMAGE
    for number, record in changes:
        rule_id = bytes([number]) * 16
        delta = MetadataDelta(image)
        if record is not None:
            record.id = rule_id
            delta.replay(record)
        elif rule_id in image.security.acls:
            delta.replay(RemoveAccessControlEntryRecord(id=rule_id))
        image = delta.apply(image.offset + 1, 1, 0)
        index.update(delta.changed_acls.items())
    return index, list(image.security.acls.values())


@settings(max_examples=600)
@given(CHANGES, QUESTIONS, st.sampled_from([0, 1, 2, 24]))
def test_index_answers_like_all_rules_read_in_turn(
    changes: list[tuple[int, AccessControlEntryRecord | None]], questions: list[Question], compared_max: int
) -> None:
    """Guard S9. The rules of a principal are compared one by one up to a number, and indexed beyond it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(acls, "_COMPARED_MAX", compared_max)
        index, rules = _replayed(changes)
    assert len(index) == len(rules)
    for principal, host, operation, resource, name in questions:
        decision = index.decide(principal, host, operation, resource, name)
        expected = plain_answer(rules, principal, host, operation, resource, name)
        assert decision.allowed == bool(expected)
        assert decision.has_rules == (expected is not None)
        assert decision.rule == plain_rule(rules, principal, host, operation, resource, name)


@settings(max_examples=300)
@given(CHANGES, QUESTIONS)
def test_rules_followed_by_changes_and_rules_of_a_snapshot_decide_alike(
    changes: list[tuple[int, AccessControlEntryRecord | None]], questions: list[Question]
) -> None:
    """Guard S9: CVE-2024-27309: rules that were removed must not remain in effect, nor take others with them."""
    index, rules = _replayed(changes)
    built = AclIndex()
    ids = [bytes([place]) * 16 for place in range(len(rules))]
    built.update(zip(ids, rules, strict=True))
    for question in questions:
        assert index.decide(*question) == built.decide(*question)
        assert index.allows_any(*question[:4]) == built.allows_any(*question[:4])


@settings(max_examples=300)
@given(CHANGES, QUESTIONS)
def test_any_resource_is_allowed_if_some_name_is(
    changes: list[tuple[int, AccessControlEntryRecord | None]], questions: list[Question]
) -> None:
    """The operation is WRITE, which nothing implies, so that both algorithms must agree."""
    index, rules = _replayed(changes)
    names = [name + end for name in [*NAMES, "hardcode"] for end in ("", "x", "!")]
    for principal, host, _, resource, _ in questions:
        some = any(plain_answer(rules, principal, host, AclOperation.WRITE, resource, name) for name in names)
        assert index.allows_any(principal, host, AclOperation.WRITE, resource) == some


@settings(max_examples=300)
@given(CHANGES)
def test_rules_of_one_batch_and_of_many_give_the_same_image(
    changes: list[tuple[int, AccessControlEntryRecord | None]],
) -> None:
    records = _records(changes)
    one = _image_of(records)
    image = EMPTY_IMAGE
    for record in records:
        image = _image_of([record], image)
    assert one.security == image.security
    assert set(one.security.acls.values()) == set(one.security.acl_ids)


@settings(max_examples=100)
@given(CHANGES)
def test_the_difference_between_two_images_has_the_rules_that_changed(
    changes: list[tuple[int, AccessControlEntryRecord | None]],
) -> None:
    records = _records(changes)
    for place in range(len(records)):
        before = _image_of(records[:place])
        after = _image_of(records[place:], before)
        index = AclIndex()
        index.update(before.security.acls.items())
        index.update(MetadataDelta.between(before, after).changed_acls.items())
        assert index.rules == dict(after.security.acls)


def test_many_rules_are_put_into_an_image_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of the image for each of 100,000 rules took a third of the time of a start."""
    copies = 0

    class Counted(SecurityImage):
        __slots__ = ()

        def __init__(self, *given: Any, **named: Any) -> None:
            nonlocal copies
            copies += 1
            super().__init__(*given, **named)

    delta = MetadataDelta(MetadataImage(security=Counted()))
    rule = AclRule(AclResource.TOPIC, "a", AclPattern.LITERAL, AclOperation.READ, "User:a", "*", AclPermission.ALLOW)
    for number in range(1_000):
        delta.replay(rule._replace(resource_name=f"a{number}").record(number.to_bytes(16, "big")))
    image = delta.apply(1, 1, 0)
    assert len(image.security.acls) == len(image.security.acl_ids) == 1_000
    assert copies == 2, "the first one and the one with all rules"


def test_a_rule_is_not_removed_twice() -> None:
    rule_id = bytes([1]) * 16
    rule = AclRule(AclResource.TOPIC, "a", AclPattern.LITERAL, AclOperation.READ, "User:a", "*", AclPermission.ALLOW)
    removal = RemoveAccessControlEntryRecord(id=rule_id)
    for image in (EMPTY_IMAGE, _image_of([rule.record(rule_id), removal])):
        with pytest.raises(KeyError):
            MetadataDelta(image).replay(removal)
    delta = MetadataDelta(_image_of([rule.record(rule_id)]))
    delta.replay(removal)
    with pytest.raises(KeyError):
        delta.replay(removal)


def _records(changes: list[tuple[int, AccessControlEntryRecord | None]]) -> list[Message]:
    """Returns the records of changes that fit what came before them. No id has two rules, and no rule two ids."""
    records: list[Message] = []
    present: dict[bytes, AclRule] = {}
    for number, record in changes:
        rule_id = bytes([number]) * 16
        if record is None and rule_id in present:
            del present[rule_id]
            records.append(RemoveAccessControlEntryRecord(id=rule_id))
        elif record is not None and rule_id not in present and AclRule.of(record) not in present.values():
            present[rule_id] = AclRule.of(record)
            records.append(present[rule_id].record(rule_id))
    return records


def _image_of(records: list[Message], before: MetadataImage = EMPTY_IMAGE) -> MetadataImage:
    delta = MetadataDelta(before)
    for record in records:
        delta.replay(record)
    return delta.apply(before.offset + len(records), 1, 0)


def test_deny_beats_allow_in_every_order_prefix_and_host() -> None:
    """Guard S22: an ALLOW and a DENY, each in every combination of pattern, host, principal and operation."""
    patterns = [
        ("ab", AclPattern.LITERAL),
        ("a", AclPattern.PREFIXED),
        ("*", AclPattern.LITERAL),
        ("ab", AclPattern.PREFIXED),
    ]
    shapes = list(product(patterns, ["*", "10.0.0.1"], ["User:alice", "User:*"], [AclOperation.READ, AclOperation.ALL]))
    asked = ("User:alice", "10.0.0.1", AclOperation.READ, AclResource.TOPIC, "ab")
    count = 0
    for allow, deny in product(shapes, shapes):
        for order in (0, 1):
            made = [_shaped(allow, AclPermission.ALLOW), _shaped(deny, AclPermission.DENY)]
            index = AclIndex()
            index.update((bytes([place]) * 16, made[place]) for place in (order, 1 - order))
            assert index.decide(*asked) == Decision(False, made[1], True)
            index.update([(bytes([1]) * 16, None)])
            assert index.decide(*asked) == Decision(True, made[0], True)
            count += 1
    assert count == 2048


def _shaped(shape: Shape, permission: AclPermission) -> AclRule:
    (name, pattern), host, principal, operation = shape
    return AclRule(AclResource.TOPIC, name, pattern, operation, principal, host, permission)
