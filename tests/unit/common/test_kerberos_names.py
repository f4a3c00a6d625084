"""`sasl.kerberos.principal.to.local.rules`: the examples of Kafka's own tests and documentation."""

from __future__ import annotations

import pytest

from barnabas.common.errors import ConfigError
from barnabas.common.kerberos_names import KerberosName, LocalNames, NoLocalName

APPS = (
    r"RULE:[1:$1](App\..*)s/App\.(.*)/$1/g",
    r"RULE:[2:$1](App\..*)s/App\.(.*)/$1/g",
    "DEFAULT",
)


def _cased(case: str) -> tuple[str, ...]:
    return (
        f"RULE:[1:$1]/{case}",
        f"RULE:[2:$1](Test.*)s/ABC///{case}",
        f"RULE:[2:$1](ABC.*)s/ABC/XYZ/g/{case}",
        rf"RULE:[2:$1](App\..*)s/App\.(.*)/$1/g/{case}",
        f"RULE:[2:$1]/{case}",
        "DEFAULT",
    )


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("App.service-name/example.com@REALM.COM", ("App.service-name", "example.com", "REALM.COM")),
        ("App.service-name@REALM.COM", ("App.service-name", None, "REALM.COM")),
        ("user/host@REALM.COM", ("user", "host", "REALM.COM")),
        ("user", ("user", None, None)),
        ("user/host", ("user/host", None, None)),
        ("@", ("", None, "")),
    ],
)
def test_the_parts_of_a_principal(text: str, parts: tuple[str, str | None, str | None]) -> None:
    assert KerberosName.parse(text) == parts


@pytest.mark.parametrize("text", ["a/b/c@R", "a@b@R", "a@R/b"])
def test_a_principal_that_is_malformed(text: str) -> None:
    with pytest.raises(NoLocalName, match="Malformed"):
        KerberosName.parse(text)


@pytest.mark.parametrize(
    ("rules", "principal", "user"),
    [
        (APPS, "App.service-name/example.com@REALM.COM", "service-name"),
        (APPS, "App.service-name@REALM.COM", "service-name"),
        (APPS, "user/host@REALM.COM", "user"),
        (_cased("L"), "User@REALM.COM", "user"),
        (_cased("L"), "TestABC/host@FOO.COM", "test"),
        (_cased("L"), "ABC_User_ABC/host@FOO.COM", "xyz_user_xyz"),
        (_cased("L"), "App.SERVICE-name/example.com@REALM.COM", "service-name"),
        (_cased("L"), "User/root@REALM.COM", "user"),
        (_cased("U"), "User@REALM.COM", "USER"),
        (_cased("U"), "TestABC/host@FOO.COM", "TEST"),
        (_cased("U"), "ABC_User_ABC/host@FOO.COM", "XYZ_USER_XYZ"),
        (_cased("U"), "App.SERVICE-name/example.com@REALM.COM", "SERVICE-NAME"),
        (_cased("U"), "User/root@REALM.COM", "USER"),
        # The example of Kafka's documentation.
        ((r"RULE:[1:$1@$0](.*@MYDOMAIN.COM)s/@.*//", "DEFAULT"), "user@MYDOMAIN.COM", "user"),
        (("DEFAULT",), "alice", "alice"),
        (("DEFAULT",), "kafka/broker1.example.com@REALM.COM", "kafka"),
        (("RULE:[2:$1-$2-$0]",), "kafka/b@R", "kafka-b-R"),
        (("RULE:[1:x$1]s/x(.)/$1$1/",), "aa@R", "aaa"),
    ],
)
def test_users_of_principals(rules: tuple[str, ...], principal: str, user: str) -> None:
    assert LocalNames(rules, "REALM.COM").of(principal) == user


@pytest.mark.parametrize(
    ("rules", "principal", "text"),
    [
        (("DEFAULT",), "alice@OTHER.COM", "no rule of sasl.kerberos.principal.to.local.rules applies"),
        ((), "alice@REALM.COM", "no rule"),
        (("RULE:[1:$1@$0]",), "alice@REALM.COM", "Non-simple name alice@REALM.COM"),
        (("RULE:[1:$2]",), "alice@REALM.COM", r"refers to \$2"),
        (("RULE:[1:$a]",), "alice@REALM.COM", r"refers to \$"),
        (("RULE:[1:$1]s/a/$9/",), "alice@REALM.COM", r"refers to \$9"),
    ],
)
def test_principals_without_a_user(rules: tuple[str, ...], principal: str, text: str) -> None:
    with pytest.raises(NoLocalName, match=text):
        LocalNames(rules, "REALM.COM").of(principal)


@pytest.mark.parametrize(
    "rule",
    [
        *("default", "DEFAUL", "DEFAULT/L", "DEFAULT/g", "rule:[1:$1]", "rule:[1:$1]/L/U", "rule:[1:$1]/U/L"),
        *("rule:[1:$1]/LU", "RULE:[1:$1/L", "RULE:[1:$1]/l", "RULE:[2:$1](ABC.*)s/ABC/XYZ/L/g", ""),
        *("RULE:[:$1]", "RULE:[99999999999:$1]", "RULE:[1:$1](a{)", "RULE:[1:$1](*)", "RULE:[1:$1]s/(/x/"),
    ],
)
def test_rules_that_are_invalid(rule: str) -> None:
    with pytest.raises(ConfigError, match=r"sasl\.kerberos\.principal\.to\.local\.rules"):
        LocalNames((rule,), "REALM.COM")
