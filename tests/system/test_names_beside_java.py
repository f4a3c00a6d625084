"""Names of certificates and mapping rules compared with Java's own classes: the same questions, the same answers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import kafka_jars
from barnabas.common.errors import ConfigError
from barnabas.common.kerberos_names import LocalNames
from barnabas.tls.distinguished_names import java_name
from barnabas.tls.mapping_rules import MappingRules

SOURCE = Path(__file__).resolve().parents[1] / "clients" / "java" / "Names.java"
QUESTIONS = 10_000
#: Attributes: those with keywords, mail, serial number, title, given name, DN qualifier.
TYPES = (
    *("550403", "550406", "550407", "550408", "550409", "55040a", "55040b"),
    *("0992268993f22c640101", "0992268993f22c640119", "2a864886f70d010901", "550405", "55040c", "55042a", "55042e"),
)
#: UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString, UniversalString, INTEGER.
TAGS = (12, 12, 12, 12, 19, 20, 22, 27, 30, 28, 2)
PIECES = (
    "a",
    "B",
    "1",
    " ",
    "  ",
    ",",
    "=",
    "+",
    "<",
    ">",
    "#",
    ";",
    '"',
    "\\",
    "\0",
    "\r",
    "\n",
    "é",
    "€",
    "-",
    ".",
    "*",
    "@",
)
PATTERNS = (
    "^CN=(.*?),.*$",
    "CN=([^,]*).*",
    "(.*)",
    "^(.*?)=(.*)$",
    ".*",
    "a|ab",
    "^CN=(.*?), OU=(.*?)$",
    "C(N)=(a)?(.*)",
)
REFUSED_PATTERNS = ("(", "[a-", "x{2", "a{", "x{a}", "[{]a{")
REPLACEMENTS = ("$1", "$1@$2", "$0", "x", "", "$3$1", "$12", "a\\$1", "$a", "\\", "$1$9$8", "${1}", "$1\\/b")
ENDS = ("", "/L", "/U", "/", "/LU", "/x")


def tlv(tag: int, content: bytes) -> bytes:
    size = len(content)
    length = bytes([size]) if size < 128 else bytes([0x82]) + size.to_bytes(2, "big")
    return bytes([tag]) + length + content


def value(chance: random.Random) -> bytes:
    tag = chance.choice(TAGS)
    if tag == 2:
        return tlv(2, bytes([chance.randrange(1, 100)]))
    text = "".join(chance.choice(PIECES) for _ in range(chance.randrange(0, 6)))
    encoding = {30: "utf-16-be", 28: "utf-32-be", 20: "latin-1", 22: "ascii", 19: "ascii"}.get(tag, "utf-8")
    return tlv(tag, text.encode(encoding, "ignore"))


def encoded_name(chance: random.Random) -> bytes:
    def pair() -> bytes:
        return tlv(0x30, tlv(6, bytes.fromhex(chance.choice(TYPES))) + value(chance))

    sets = [tlv(0x31, b"".join(pair() for _ in range(chance.choice((1, 1, 1, 2))))) for _ in range(chance.randrange(4))]
    return tlv(0x30, b"".join(sets))


def rules(chance: random.Random) -> str:
    def rule() -> str:
        kind = chance.randrange(40)
        if kind < 3:
            return chance.choice(("DEFAULTS", "RULE:", "RULE:a/b")) if kind else ""
        if kind < 8:
            return "DEFAULT"
        end = chance.choice(ENDS) if kind < 10 else chance.choice(("/", "/L", "/U"))
        pattern = chance.choice(REFUSED_PATTERNS if kind == 10 else PATTERNS)
        return f"RULE:{pattern}/{chance.choice(REPLACEMENTS)}{end}"

    return chance.choice((",", ", ", " , ")).join(rule() for _ in range(chance.randrange(1, 4)))


def asked_of_java(lines: Sequence[str]) -> list[str]:
    done = kafka_jars.run_tool(str(SOURCE), stdin="".join(f"{line}\n" for line in lines))
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_names_are_those_that_java_writes() -> None:
    """Guard S15."""
    chance = random.Random(20)
    names = [encoded_name(chance) for _ in range(QUESTIONS)]
    answers = asked_of_java([f"name {name.hex()}" for name in names])
    differing = [
        (name.hex(), bytes.fromhex(answer[3:]).decode(), java_name(name))
        for name, answer in zip(names, answers, strict=True)
        if answer != "refused" and bytes.fromhex(answer[3:]) != java_name(name).encode()
    ]
    assert differing == []
    assert sum(answer != "refused" for answer in answers) > QUESTIONS // 2


def mapped(text: str, name: str) -> str:
    try:
        return f"ok {MappingRules(text).principal_name(name).encode().hex()}"
    except (ValueError, ConfigError):
        return "refused"


def test_mapping_rules_are_those_of_kafkas_mapper() -> None:
    """Guard S15."""
    chance = random.Random(20)
    names = ("CN=a", "CN=ab,O=x", "CN=kafka1, OU=SME", "ab", "", "CN=Duke,OU=ServiceUsers,O=Org,C=US")
    asked = [(rules(chance), chance.choice(names)) for _ in range(QUESTIONS)]
    answers = asked_of_java([f"rule {text.encode().hex()} {name.encode().hex()}" for text, name in asked])
    differing = [
        (*question, answer, mapped(*question))
        for question, answer in zip(asked, answers, strict=True)
        if answer != mapped(*question)
    ]
    assert differing[:5] == []
    assert sum(answer != "refused" for answer in answers) > QUESTIONS // 4


def local_rule(chance: random.Random) -> str:
    kind = chance.randrange(40)
    if kind < 6:
        return "DEFAULT" if kind else chance.choice(("DEFAULT/L", "RULE:", "rule:[1:$1]"))
    refused = ("$", "$3", "$a")
    form = chance.choice(("$1", "$1", "$1@$0", "$1$2", "$2-$0", "x$1", "$0$1$2", "") + refused * (kind == 6))
    text = f"RULE:[{chance.choice('1122230')}:{form}]"
    if chance.randrange(2):
        text += f"({chance.choice(('.*', 'a.*', '[a-z]+', '.*@REALM', 'A(b)?', '.*x', 'a|ab', '.', 'a{'))})"
    if chance.randrange(2):
        pattern = chance.choice(("a", "@.*", "(a)(b)?", ".*", "[A-Z]", "^x", "x*", "", "(?<n>b)", "("))
        replacement = chance.choice(("", "b", "$1", "$2$1", "$0$0", "$9", "\\\\", "\\$1", "${n}", "@", "$"))
        text += f"s/{pattern}/{replacement}/{chance.choice(('', 'g'))}"
    return text + chance.choice(("", "", "/L", "/U", "L") + ("/l",) * (kind == 7))


def local(text: str, principal: str) -> str:
    try:
        return f"ok {LocalNames(text.split(','), 'REALM').of(principal).encode().hex()}"
    except (ValueError, ConfigError):
        return "refused"


def test_users_of_principals_are_those_of_kafkas_short_namer() -> None:
    chance = random.Random(21)
    names = (
        "a@REALM",
        "ab@REALM",
        "Ab@OTHER",
        "a",
        "",
        "ab/x@REALM",
        "a/b/c@REALM",
        "a@b@c",
        "Abx/ab@OTHER",
        "@",
        "/@",
    )
    asked = [
        (",".join(local_rule(chance) for _ in range(chance.randrange(1, 4))), chance.choice(names))
        for _ in range(QUESTIONS)
    ]
    answers = asked_of_java([f"local {text.encode().hex()} {name.encode().hex()}" for text, name in asked])
    differing = [
        (*question, answer, local(*question))
        for question, answer in zip(asked, answers, strict=True)
        if answer != local(*question)
    ]
    assert differing[:5] == []
    assert sum(answer != "refused" for answer in answers) > QUESTIONS // 5
