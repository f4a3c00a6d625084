"""The same rules and questions for Kafka's published StandardAuthorizer and for ours: the same answers."""

from __future__ import annotations

import random
import subprocess
from itertools import product

from tests.clients import programs

from barnabas.broker.authorizer import Authorizer
from barnabas.common.config import BrokerConfig
from barnabas.metadata.acls import AclOperation, AclResource, AclRule
from barnabas.protocol.messages.records_metadata import AccessControlEntryRecord
from barnabas.simulation.host import MemoryHost

NAMES = ["a", "ab", "abc", "b", "ba", "bab", "*"]
ASKED = ["a", "ab", "abc", "abcd", "b", "ba", "c", "bab", "hardcode"]
PRINCIPALS = ["User:alice", "User:bob", "User:*", "Group:alice"]
ASKERS = ["User:alice", "User:bob", "Group:alice", "User:admin"]
HOSTS = ["10.0.0.1", "10.0.0.2", "*"]
OPERATIONS = [operation for operation in AclOperation if AclOperation.ALL <= operation <= AclOperation.IDEMPOTENT_WRITE]
RESOURCES = [AclResource.TOPIC, AclResource.GROUP]
Rule = tuple[int, str, int, str, str, int, int]


class Both:
    """Collects questions with our answers, and lets Kafka answer them all at once."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self.answers: list[tuple[bool, str]] = []

    def begin(self, rules: list[Rule], *, by_default: bool) -> None:
        properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.bootstrap.servers": "localhost:9093",
            "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": "/data",
            "super.users": "User:admin",
            "allow.everyone.if.no.acl.found": str(by_default).lower(),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        }
        self._ours = Authorizer(BrokerConfig.from_properties(properties), MemoryHost(seed=1).clock)
        self._ours.is_ready = True
        self._lines.append(f"begin\t{str(by_default).lower()}\tUser:admin")
        for place, (resource, name, pattern, principal, host, operation, permission) in enumerate(rules):
            record = AccessControlEntryRecord(
                resource_type=resource,
                resource_name=name,
                pattern_type=pattern,
                principal=principal,
                host=host,
                operation=operation,
                permission_type=permission,
            )
            self._ours.index.update([(place.to_bytes(16, "big"), AclRule.of(record))])
            fields = (resource, name, pattern, principal, host, operation, permission)
            self._lines.append("\t".join(["rule", *map(str, fields)]))

    def ask(self, principal: str, host: str, operation: AclOperation, resource: AclResource, name: str) -> None:
        answer = self._ours.decide(principal, host, operation, resource, name).allowed
        self._note(answer, "\t".join(["ask", principal, host, str(int(operation)), str(int(resource)), name]))

    def ask_any(self, principal: str, host: str, operation: AclOperation, resource: AclResource) -> None:
        class Asker:
            api_key = 22

        asker = Asker()
        asker.principal, asker.client_host = principal, host  # type: ignore[attr-defined]
        answer = self._ours.allows_any(asker, operation, resource)  # type: ignore[arg-type]
        self._note(answer, "\t".join(["any", principal, host, str(int(operation)), str(int(resource))]))

    def _note(self, answer: bool, line: str) -> None:
        self._lines.append(line)
        self.answers.append((answer, line))

    def compare(self) -> None:
        result = subprocess.run(
            programs.java_program("Rights"),
            input="\n".join(self._lines) + "\n",
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert result.returncode == 0, result.stderr
        kafkas = [line == "1" for line in result.stdout.split()]
        assert len(kafkas) == len(self.answers)
        differing = [line for (ours, line), theirs in zip(self.answers, kafkas, strict=True) if ours != theirs]
        assert differing == []
        allowed = sum(kafkas)
        assert 0.1 < allowed / len(kafkas) < 0.9, "the questions are too simple"


def test_random_rules_and_questions() -> None:
    both, chance = Both(), random.Random(22)
    for _ in range(150):
        rules: list[Rule] = [
            (
                int(chance.choice(RESOURCES)),
                chance.choice(NAMES),
                chance.choice((3, 4)),
                chance.choice(PRINCIPALS),
                chance.choice(HOSTS),
                int(chance.choice(OPERATIONS)),
                chance.choice((2, 3, 3)),
            )
            for _ in range(chance.randrange(25))
        ]
        both.begin(list(dict.fromkeys(rules)), by_default=chance.random() < 0.5)
        for _ in range(70):
            who = (chance.choice(ASKERS), chance.choice(HOSTS[:2]))
            both.ask(*who, chance.choice(OPERATIONS[1:]), chance.choice(RESOURCES), chance.choice(ASKED))
        for _ in range(10):
            who = (chance.choice(ASKERS), chance.choice(HOSTS[:2]))
            both.ask_any(*who, AclOperation.WRITE, chance.choice(RESOURCES))
    assert len(both.answers) >= 12_000
    both.compare()


def test_an_allow_and_a_deny_in_every_combination() -> None:
    """Guard S22."""
    both = Both()
    patterns = [("ab", 3), ("a", 4), ("*", 3), ("ab", 4), ("b", 4)]
    shapes = list(product(patterns, ["*", "10.0.0.1", "10.0.0.2"], ["User:alice", "User:*"], (2, 3, 4)))
    for (allow, deny), reverse in product(product(shapes[::2], shapes[1::3]), (False, True)):
        rules: list[Rule] = []
        for (pattern, host, principal, operation), permission in ((allow, 3), (deny, 2)):
            rules.append((2, *pattern, principal, host, operation, permission))
        both.begin(rules[::-1] if reverse else rules, by_default=reverse)
        both.ask("User:alice", "10.0.0.1", AclOperation.READ, AclResource.TOPIC, "ab")
        both.ask("User:alice", "10.0.0.1", AclOperation.DESCRIBE, AclResource.TOPIC, "ab")
    assert len(both.answers) > 4_096
    both.compare()
