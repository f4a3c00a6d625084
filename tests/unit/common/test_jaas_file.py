"""A JAAS file as the fallback for `sasl.jaas.config`, in Kafka's order."""

from __future__ import annotations

from typing import Final

import pytest
from tests.support.log_in import SECURED
from tests.support.wired import PROPERTIES

from barnabas.common import jaas
from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ConfigError
from barnabas.common.jaas_file import KEY, with_jaas_file
from barnabas.common.log_in_settings import credentials_of, jaas_entry

PLAIN_KEY: Final = "listener.name.plaintext.plain.sasl.jaas.config"
_PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
TEXT: Final = f"""
// The connection to ZooKeeper, which is not for listeners.
Client {{
  org.apache.zookeeper.server.auth.DigestLoginModule required username="z" password="z";
}};
plaintext.KafkaServer {{
  {_PLAIN} required username="own" password="a\\"b\\\\c" user_own="a\\"b\\\\c";
}};
KafkaServer {{
  {_PLAIN} required username="all" password="p" user_all="p";
  {_SCRAM} required username="scram" password="q";
}};
/* the end */"""


def _config(text: str = TEXT, **changes: str) -> BrokerConfig:
    properties = {**PROPERTIES, **SECURED, KEY: "/jaas.conf", **changes}
    if PLAIN_KEY not in changes:
        del properties[PLAIN_KEY]
    return BrokerConfig.from_properties(with_jaas_file(properties, {"/jaas.conf": text}.__getitem__))


def test_the_section_of_the_listener_counts_before_the_general_one() -> None:
    config = _config()
    assert credentials_of(config, "PLAINTEXT", "PLAIN") == ("own", 'a"b\\c')
    assert credentials_of(config, "CONTROLLER", "PLAIN") == ("all", "p")
    assert credentials_of(config, "CONTROLLER", "SCRAM-SHA-256") == ("scram", "q")
    assert jaas_entry(config, "PLAINTEXT", "SCRAM-SHA-256") is None, "a section is taken as a whole"


def test_the_configuration_counts_before_the_file() -> None:
    config = _config(**{PLAIN_KEY: SECURED[PLAIN_KEY]})
    assert credentials_of(config, "PLAINTEXT", "PLAIN")[0] == "node"


def test_a_node_without_a_file_reads_none() -> None:
    def fail(path: str) -> str:
        raise AssertionError(path)

    assert with_jaas_file(PROPERTIES, fail) is PROPERTIES
    assert with_jaas_file({KEY: " "}, fail) == {KEY: " "}


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (f"{_PLAIN} required;", "a section must have the form NAME { entries };"),
        (f"KafkaServer {{ {_PLAIN} required;", "a section must have the form"),
        (f"KafkaServer {{ {_PLAIN} required; }}", 'the section KafkaServer does not end with "};"'),
        (TEXT + TEXT, "it has the section plaintext.KafkaServer twice"),
        ("KafkaServer { com.sun.security.auth.module.JndiLoginModule required; };", "section KafkaServer: its"),
        ('KafkaServer { "', "a quotation mark is not closed"),
    ],
)
def test_a_file_that_is_wrong_ends_the_start(text: str, cause: str) -> None:
    with pytest.raises(ConfigError) as refused:
        _config(text)
    assert str(refused.value).startswith(f"{KEY}: /jaas.conf: {cause}")


def test_a_file_that_cannot_be_read_ends_the_start() -> None:
    def missing(path: str) -> str:
        raise FileNotFoundError(2, "No such file or directory", path)

    def binary(path: str) -> str:
        return b"\xff".decode()

    with pytest.raises(ConfigError, match=r"cannot read /jaas\.conf: No such file"):
        with_jaas_file({KEY: "/jaas.conf"}, missing)
    with pytest.raises(ConfigError, match=r"cannot read /jaas\.conf: the file is not UTF-8"):
        with_jaas_file({KEY: "/jaas.conf"}, binary)


@pytest.mark.parametrize("value", ["", "a", 'a"b', "a\\b", '\\"', "a;b={c}", "// a", "\n"])
def test_an_entry_is_shown_as_it_is_read(value: str) -> None:
    entry = jaas.JaasEntry("PlainLoginModule", {"a": value, "b": "x"})
    assert jaas.parse(jaas.shown(entry)) == entry


@pytest.mark.parametrize("comments", ["/* a */ " * 2_000, "// a // b\n" * 2_000, "/***/" * 2_000])
def test_comments_take_linear_time(comments: str) -> None:
    """An administrator could otherwise stop a broker with a text that is no entry."""
    with pytest.raises(jaas.JaasError, match="a quotation mark is not closed"):
        jaas.parse(comments + '"')
