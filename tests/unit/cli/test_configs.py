"""`barnabas configs` without a broker: its output, and refusals before any request to the cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.cli import entry
from barnabas.cli.configs import changes
from barnabas.cli.configs.access import Entity, EntityKind, Entry, Synonym
from barnabas.embedded.failures import Failure

TOPIC = Entity(EntityKind.TOPICS, "t")
BROKER = Entity(EntityKind.BROKERS, "1")
DEFAULT = Entity(EntityKind.BROKERS, "")


def listed(name: str, source: str, *synonyms: Synonym, read_only: bool = False) -> Entry:
    return Entry(name, "1", source, "LONG", read_only, False, synonyms, None)


@pytest.mark.parametrize(
    ("texts", "added"),
    [
        (["a=1"], {"a": "1"}),
        (["a=1,b=2", "c=3"], {"a": "1", "b": "2", "c": "3"}),
        (["a=[1,2],b=3"], {"a": "1,2", "b": "3"}),
        ([" a = 1 , b=x=y"], {"a": "1", "b": "x=y"}),
        (["a="], {"a": ""}),
        (["a=[]"], {"a": ""}),
        (["a=[0-9]+"], {"a": "[0-9]+"}),
    ],
)
def test_added_pairs(texts: list[str], added: dict[str, str]) -> None:
    assert changes.parse_added(texts) == added


@pytest.mark.parametrize("text", ["a", "a=1,b", "=1", "cleanup.policy=compact,delete", "a=1,a=2"])
def test_wrong_pairs_are_named(text: str) -> None:
    with pytest.raises(Failure, match=r"^--add (a|b|=1|delete)"):
        changes.parse_added([text])


def test_a_file_is_read_as_kafka_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "some.properties"
    file.write_text("# comment\nretention.ms : 5\ncleanup.policy=compact,\\\n  delete\n")
    assert changes.read_added(file) == {"retention.ms": "5", "cleanup.policy": "compact,delete"}


def test_a_key_is_added_or_deleted() -> None:
    assert changes.parse_deleted(["a,b", " c,a"]) == ["a", "b", "c"]
    assert changes.changes_of({"a": "1"}, ["b"]) == {"a": "1", "b": None}
    with pytest.raises(Failure, match="a cannot be both"):
        changes.changes_of({"a": "1"}, ["a"])


def test_only_what_is_set_there_can_be_deleted() -> None:
    entries = [listed("a", "DYNAMIC_TOPIC_CONFIG"), listed("b", "DEFAULT_CONFIG")]
    changes.check(TOPIC, {"a": None}, entries, [])
    with pytest.raises(Failure, match="--delete b: it is not set on topic t") as refused:
        changes.check(TOPIC, {"b": None}, entries, [])
    assert refused.value.hint == "keys that are set there: a"
    with pytest.raises(Failure, match="--delete a: it is not set on the default of all brokers"):
        changes.check(DEFAULT, {"a": None}, [listed("a", "DYNAMIC_BROKER_CONFIG")], [])


@pytest.mark.parametrize(
    "key", ["log.retention.ms", "leader.replication.throttled.rate", "listener.name.inside.log.retention.ms"]
)
def test_keys_that_brokers_know(key: str) -> None:
    changes.check(BROKER, {key: "1"}, [listed("log.retention.ms", "DEFAULT_CONFIG")], [])
    changes.check(DEFAULT, {key: "1"}, [], ["log.retention.ms"])


def test_a_key_that_no_broker_knows_is_refused_with_similar_ones() -> None:
    with pytest.raises(Failure, match=r"broker 1 has no key log\.retenton\.ms") as refused:
        changes.check(BROKER, {"log.retenton.ms": "1"}, [listed("log.retention.ms", "DEFAULT_CONFIG")], [])
    assert refused.value.hint == "similar keys: log.retention.ms"
    with pytest.raises(Failure, match="has no key zzz") as refused:
        changes.check(DEFAULT, {"zzz": "1"}, [], ["log.retention.ms"])
    assert "--allow-unknown" in (refused.value.hint or "")


def test_hints_for_refused_changes() -> None:
    entries = [listed("log.dirs", "STATIC_BROKER_CONFIG", read_only=True), listed("retention.ms", "DEFAULT_CONFIG")]
    assert "log.dirs is read-only" in (changes.hint_for(["log.dirs"], entries) or "")
    assert changes.hint_for(["retenton.ms"], entries) == "similar keys: retention.ms"
    assert changes.hint_for(["retention.ms"], entries) is None


def test_the_value_after_a_deletion_is_that_of_the_next_source() -> None:
    own = Synonym("a", "1", "DYNAMIC_TOPIC_CONFIG")
    below = Synonym("log.a", "2", "DYNAMIC_BROKER_CONFIG")
    default = Synonym("log.a", "3", "DEFAULT_CONFIG")
    entry = listed("a", "DYNAMIC_TOPIC_CONFIG", own, below, default)
    assert changes.after_deletion(TOPIC, entry) == ("2", "DYNAMIC_BROKER_CONFIG")
    assert changes.after_deletion(TOPIC, listed("a", "DYNAMIC_TOPIC_CONFIG", own)) == (None, None)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["describe"], "give --entity-type"),
        (["describe", "--topic", "t", "--broker", "1"], "give only one of"),
        (["describe", "--entity-type", "topics", "--entity-default"], "only brokers have one"),
        (["describe", "--entity-type", "topics", "--broker", "1"], "another kind of entity"),
        (["describe", "--entity-type", "topics", "--entity-name", ""], "must not be empty"),
        (["alter", "--entity-type", "topics", "--add", "a=1"], "name what to change"),
        (["alter", "--topic", "t"], "nothing to alter"),
        (["alter", "--topic", "t", "--add", "a"], "expected KEY=VALUE"),
        (["alter", "--topic", "t", "--add", "a=1", "--add-file", "f"], "give only one of --add and --add-file"),
        (["alter", "--topic", "t", "--add-file", "/no/such/file"], "/no/such/file: No such file"),
    ],
)
def test_wrong_use_is_said_in_one_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.run(["configs", *arguments, "--bootstrap", "127.0.0.1:1"]) == 1
    assert said in capsys.readouterr().err
