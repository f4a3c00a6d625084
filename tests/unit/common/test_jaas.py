"""JAAS entries: the form that Java reads, and nothing else."""

from __future__ import annotations

import time

import pytest

from barnabas.common import jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (f"{PLAIN} required;", {}),
        (f'{PLAIN} required username="a" password=\'b c\' x=bare;', {"username": "a", "password": "b c", "x": "bare"}),
        (f'{PLAIN}\n  REQUIRED\n  username="a\\"b\\\\c;="\n;\n', {"username": 'a"b\\c;='}),
        (f'{PLAIN} required a = "1" b= 2 c =3;', {"a": "1", "b": "2", "c": "3"}),
        (f'// a comment\n{PLAIN} /* another; one */ required a="//b";', {"a": "//b"}),
        (f'kafkashaded.{PLAIN} optional a="";', {"a": ""}),
    ],
)  # fmt: skip
def test_entries(text: str, options: dict[str, str]) -> None:
    entry = jaas.parse(text)
    assert entry.module == "PlainLoginModule"
    assert entry.options == options


def test_users_are_options_with_a_prefix() -> None:
    entry = jaas.parse(f'{PLAIN} required username="u" user_a="1" user_b="2" user_="3";')
    assert entry.users == {"a": "1", "b": "2", "": "3"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "0 login modules"),
        (f"{PLAIN} required", 'does not end with ";"'),
        (f"{PLAIN} required; {PLAIN} required;", "2 login modules"),
        (f"{PLAIN};", "must begin with a login module"),
        (f"{PLAIN} always;", "must begin with a login module"),
        ('com.sun.security.auth.module.JndiLoginModule required user.provider.url="ldap://marker";', "is not one of"),
        ("com.sun.security.auth.module.LdapLoginModule required;", "is not one of"),
        ("PlainLoginModule required;", "is not one of"),
        ("evil.PlainLoginModule required;", "is not one of"),
        (f'{PLAIN} required a="1" a="marker";', "has the option a twice"),
        (f'{PLAIN} required a="marker;', "quotation mark is not closed"),
        (f'{PLAIN} required a "marker";', "must have the form"),
        (f'{PLAIN} required ="marker";', "must have the form"),
        (f"{PLAIN} required a=;", "must have the form"),
    ],
)
def test_wrong_entries_are_refused_without_their_values(text: str, said: str) -> None:
    """Guard S6 (CVE-2023-25194, CVE-2025-27818, CVE-2025-27819): modules that dial what their options name are not
    allowed."""
    with pytest.raises(jaas.JaasError, match=said) as refused:
        jaas.parse(text)
    assert "marker" not in str(refused.value)


def test_options_are_not_shown() -> None:
    assert "marker" not in repr(jaas.parse(f'{PLAIN} required password="marker";'))


def test_many_options_take_linear_time() -> None:
    options = " ".join(f"user_{index}=x" for index in range(100_000))
    taken_s = []
    # A collection of garbage looks at all objects of all tests, and can fall into one of the attempts.
    for _ in range(3):
        begin_s = time.process_time()
        assert len(jaas.parse(f"{PLAIN} required {options};").users) == 100_000
        taken_s.append(time.process_time() - begin_s)
    assert min(taken_s) < 2
