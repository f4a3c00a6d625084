"""The server-side assignors: every partition is assigned once, to a subscriber, evenly, and few partitions move."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.finished import finished

from barnabas.coordinators.groups.consumer.assignors import ASSIGNORS, Subscriber, Targets, assign_range, assign_uniform
from barnabas.coordinators.groups.consumer.member import assignment_of, partitions_of

TOPIC_IDS = [bytes([index]) * 16 for index in range(4)]
counts = st.fixed_dictionaries({topic_id: st.integers(1, 9) for topic_id in TOPIC_IDS})
subscriptions = st.dictionaries(
    st.sampled_from([f"m{index}" for index in range(7)]), st.frozensets(st.sampled_from(TOPIC_IDS)), min_size=1
)


def subscribers(wanted: dict[str, frozenset[bytes]], last: Targets | None = None) -> list[Subscriber]:
    return [
        Subscriber(member_id, None, topic_ids, {} if last is None else last.get(member_id, {}))
        for member_id, topic_ids in wanted.items()
    ]


def places(targets: Targets) -> dict[tuple[bytes, int], str]:
    found: dict[tuple[bytes, int], str] = {}
    for member_id, target in targets.items():
        for place in partitions_of(target):
            assert place not in found, "given to two"
            found[place] = member_id
    return found


@settings(max_examples=60, deadline=None)
@given(wanted=subscriptions, sizes=counts, before=counts, last=subscriptions)
def test_everything_is_given_once_to_somebody_who_wants_it(
    wanted: dict[str, frozenset[bytes]],
    sizes: dict[bytes, int],
    before: dict[bytes, int],
    last: dict[str, frozenset[bytes]],
) -> None:
    """The last target does not matter, even one of other members and other numbers of partitions."""
    for assign in ASSIGNORS.values():
        targets = finished(assign(subscribers(wanted, finished(assign(subscribers(last), before))), sizes))
        assert set(targets) == set(wanted)
        found = places(targets)
        everything = {(one, index) for topics in wanted.values() for one in topics for index in range(sizes[one])}
        assert set(found) == everything
        assert all(topic_id in wanted[member_id] for (topic_id, _), member_id in found.items())


@settings(max_examples=60, deadline=None)
@given(members=st.integers(1, 7), sizes=counts, joined=st.integers(0, 2))
def test_uniform_is_even_and_moves_no_more_than_it_must(members: int, sizes: dict[bytes, int], joined: int) -> None:
    everything = frozenset(TOPIC_IDS)
    had = subscribers(dict.fromkeys([f"m{index}" for index in range(members)], everything))
    first = finished(assign_uniform(had, sizes))
    wanted = dict.fromkeys([f"m{index}" for index in range(members + joined)], everything)
    second = finished(assign_uniform(subscribers(wanted, first), sizes))
    loads = [len(list(partitions_of(target))) for target in second.values()]
    assert max(loads) - min(loads) <= 1
    before, after = places(first), places(second)
    moved = [place for place in before if before[place] != after[place]]
    assert len(moved) == sum(len(list(partitions_of(second[f"m{members + index}"]))) for index in range(joined))


@settings(max_examples=60, deadline=None)
@given(wanted=subscriptions, sizes=counts)
def test_uniform_evens_out_what_can_be_moved(wanted: dict[str, frozenset[bytes]], sizes: dict[bytes, int]) -> None:
    """No partition is assigned to a member that has two more than another subscriber."""
    targets = finished(assign_uniform(subscribers(wanted), sizes))
    loads = {member_id: len(list(partitions_of(target))) for member_id, target in targets.items()}
    for (topic_id, _), member_id in places(targets).items():
        assert all(loads[member_id] - loads[one] < 2 for one, topics in wanted.items() if topic_id in topics)


def test_range_gives_neighbours_and_keeps_co_partitioned_topics_together() -> None:
    one, two = TOPIC_IDS[:2]
    topics = frozenset({one, two})
    static = Subscriber("z", "a-instance", topics, {})
    members = [Subscriber("b", None, topics, {}), Subscriber("a", None, topics, {}), static]
    given_to = finished(assign_range(members, {one: 7, two: 7}))
    assert given_to["z"] == assignment_of([(topic, index) for topic in (one, two) for index in (0, 1, 2)])
    assert given_to["a"] == assignment_of([(topic, index) for topic in (one, two) for index in (3, 4)])
    assert given_to["b"] == assignment_of([(topic, index) for topic in (one, two) for index in (5, 6)])
