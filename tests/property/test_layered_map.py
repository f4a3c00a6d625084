"""A mapping of two layers: random changes, many and few at a time, against a dict."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.common import layered_map
from barnabas.common.layered_map import LayeredMap

_KEYS = st.integers(0, 12)
#: Entries to add, keys to remove, and whether the mapping is used after this change.
_CHANGES = st.lists(
    st.tuples(st.dictionaries(_KEYS, st.integers(), max_size=8), st.sets(_KEYS, max_size=5), st.booleans()), max_size=12
)


def _check(made: LayeredMap[int, int], expected: dict[int, int]) -> None:
    assert len(made) == len(expected)
    assert dict(made.items()) == made.to_dict() == expected
    assert sorted(made) == sorted(expected)
    assert sorted(made.values()) == sorted(expected.values())
    for key in range(13):
        assert (key in made) == (key in expected)
        assert made.get(key) == expected.get(key)
    assert made == expected


@settings(max_examples=300)
@given(_CHANGES, st.sampled_from([1, 4, 1_000]), st.sampled_from([1, 3, 1_000]))
def test_it_equals_a_dict_and_never_changes(
    changes: list[tuple[dict[int, int], set[int], bool]], together_min: int, links_max: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layered_map, "_TOGETHER_MIN", together_min)
        patch.setattr(layered_map, "_LINKS_MAX", links_max)
        made: LayeredMap[int, int] = LayeredMap()
        expected: dict[int, int] = {}
        versions = [(made, expected)]
        for added, removed, is_used in changes:
            made = made.changed(added, removed)
            expected = {key: value for key, value in expected.items() if key not in removed} | added
            if is_used:
                _check(made, expected)
            versions.append((made, expected))
        for made, expected in reversed(versions):
            _check(made, expected)


def test_many_entries_that_arrive_in_turn_are_put_into_one_dict(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hash trie for 100,000 rules, filled in portions of 500, took a third of the time of a start."""
    applied = []
    monkeypatch.setattr(LayeredMap, "_apply_above", lambda *_: applied.append("above"))
    made: LayeredMap[int, int] = LayeredMap()
    for begin in range(0, 100_000, 500):
        made = made.changed(dict.fromkeys(range(begin, begin + 500), 0))
    assert len(made) == 100_000
    assert not applied


def test_one_change_of_many_entries_copies_none(monkeypatch: pytest.MonkeyPatch) -> None:
    made = LayeredMap[int, int]().changed(dict.fromkeys(range(100_000), 0))
    assert len(made) == 100_000
    monkeypatch.setattr(LayeredMap, "to_dict", None)
    for number in range(100):
        made = made.changed({-1 - number: 0}, [number])
        assert len(made) == 100_000


def test_a_key_that_was_removed_is_not_found() -> None:
    made = LayeredMap[str, int]().changed({"a": 1, "b": 2}).changed({}, ["a", "x"])
    with pytest.raises(KeyError):
        made["a"]
    with pytest.raises(KeyError):
        made["x"]
    assert made["b"] == 2
    assert repr(made) == "LayeredMap({'b': 2})"
