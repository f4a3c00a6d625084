"""Many rules in one separate process, by the code of the controller and of the authorizer: no quorum, no network.

    rules_model.py '{"rules": 100000, "questions": 20000, "changes": 30, "seed": 1}'

Each user has ten rules: on two topics by name, on one prefix, on a group. It measures questions that were not asked
before, and changes: decided by the controller, replayed into an image, followed by an authorizer whose cache is full.
Prints one JSON object; times are CPU times.
"""

from __future__ import annotations

import gc
import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from barnabas.broker.authorizer import Authorizer
from barnabas.cli.acl_requests import creation_of, filter_of
from barnabas.common.config import BrokerConfig
from barnabas.controller.requests import acls
from barnabas.controller.requests.view import ControllerView
from barnabas.metadata.acls import AclOperation, AclPattern, AclPermission, AclResource, AclRule
from barnabas.metadata.image import EMPTY_IMAGE, MetadataDelta
from barnabas.protocol.messages.create_acls import CreateAclsRequest
from barnabas.protocol.messages.delete_acls import DeleteAclsRequest
from barnabas.server.clock import SystemClock
from scale_model import Chance

RULES_OF_A_USER = 10
#: The number of questions that are asked again.
_KNOWN = 1_000
_PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "log.dirs": "/none",
}
_OF_A_USER = (
    (AclResource.TOPIC, AclPattern.LITERAL, AclOperation.READ),
    (AclResource.TOPIC, AclPattern.LITERAL, AclOperation.WRITE),
    (AclResource.TOPIC, AclPattern.LITERAL, AclOperation.DESCRIBE_CONFIGS),
    (AclResource.TOPIC, AclPattern.PREFIXED, AclOperation.READ),
    (AclResource.TOPIC, AclPattern.PREFIXED, AclOperation.WRITE),
    (AclResource.GROUP, AclPattern.LITERAL, AclOperation.READ),
    (AclResource.GROUP, AclPattern.PREFIXED, AclOperation.READ),
    (AclResource.TRANSACTIONAL_ID, AclPattern.PREFIXED, AclOperation.WRITE),
    (AclResource.TRANSACTIONAL_ID, AclPattern.PREFIXED, AclOperation.DESCRIBE),
    (AclResource.TOPIC, AclPattern.LITERAL, AclOperation.ALTER_CONFIGS),
)


class Client(NamedTuple):
    """The origin of a question."""

    principal: str
    client_host: str
    api_key: int = 0


def rules(count: int) -> list[AclRule]:
    """Returns the rules of `count / RULES_OF_A_USER` users."""
    found = []
    for index in range(count):
        user = index // RULES_OF_A_USER
        resource, pattern, operation = _OF_A_USER[index % RULES_OF_A_USER]
        # A question is answered by one look-up for each length of a prefix, that is for each number of digits.
        name = f"team-{user}." if pattern == AclPattern.PREFIXED else f"orders-{user}"
        found.append(AclRule(resource, name, pattern, operation, f"User:user-{user}", "*", AclPermission.ALLOW))
    return found


class Model:
    """An image with rules, and the authorizer of a broker that follows it."""

    def __init__(self, count: int, seed: int) -> None:
        self._config = BrokerConfig.from_properties(_PROPERTIES)
        self._chance = Chance(seed)
        self.image = EMPTY_IMAGE
        self.authorizer = Authorizer(self._config, SystemClock())
        delta = MetadataDelta(self.image)
        for rule in rules(count):
            delta.replay(rule.record(self._chance.uuid()))
        self.follow(delta, count)

    def follow(self, delta: MetadataDelta, records: int) -> None:
        image = delta.apply(self.image.offset + records, 1, 0)
        self.authorizer.on_image(delta, image)
        self.image = image

    def decide(self, decision: Callable[[ControllerView], Any]) -> None:
        """Lets the controller decide, and follows its records."""
        view = ControllerView(self.image, self._config, self._chance)
        result = decision(view)
        delta = MetadataDelta(self.image)
        while True:
            for record, _ in result.records:
                delta.replay(record)
            if result.rest is None:
                break
            result = result.rest(view)
        assert delta.changed_acls, "a rule has changed"
        self.follow(delta, len(delta.changed_acls))


class Question(NamedTuple):
    client: Client
    operation: AclOperation
    topic: str
    is_allowed: bool


def questions(users: int, count: int, chance: random.Random) -> list[Question]:
    """Returns questions that differ from each other: a third by names, a third by prefixes, a third to be denied."""
    found = []
    for index in range(count):
        user = chance.randrange(users)
        client = Client(f"User:user-{user}", f"/10.{index >> 16}.{index >> 8 & 255}.{index & 255}")
        topic, is_allowed = (
            (f"orders-{user}", True),
            (f"team-{user}.topic-{index}", True),
            (f"orders-{user + 1}", False),
        )[index % 3]
        found.append(Question(client, AclOperation.WRITE, topic, is_allowed))
    return found


def ask(authorizer: Authorizer, asked: list[Question]) -> float:
    """Asks these questions, and returns the CPU time in seconds."""
    allows, topic = authorizer.allows, AclResource.TOPIC
    begun = time.process_time()
    found = [allows(each.client, each.operation, topic, each.topic, log_denied=False) for each in asked]
    elapsed_s = time.process_time() - begun
    assert found == [each.is_allowed for each in asked], "the rules decide"
    return elapsed_s


def change_ms(model: Model, index: int, asked: list[Question]) -> tuple[float, float]:
    """Adds a rule and removes it, each while the cache is full. Returns the CPU time of both."""
    rule = AclRule(
        AclResource.TOPIC, f"new-{index}", AclPattern.LITERAL, AclOperation.READ, "User:new", "*", AclPermission.ALLOW
    )
    added = CreateAclsRequest(creations=[creation_of(rule)])
    removed = DeleteAclsRequest(filters=[filter_of(rule)])
    ask(model.authorizer, asked)
    begun = time.process_time()
    model.decide(lambda view: acls.create_acls(view, added, "bench"))
    added_s = time.process_time() - begun
    ask(model.authorizer, asked)
    begun = time.process_time()
    model.decide(lambda view: acls.delete_acls(view, removed, "bench"))
    return added_s * 1_000, (time.process_time() - begun) * 1_000


def run(options: dict[str, Any]) -> dict[str, float]:
    chance = random.Random(options["seed"])
    model = Model(options["rules"], options["seed"])
    users = options["rules"] // RULES_OF_A_USER
    # A broker freezes what it has loaded, and then lets young objects be collected.
    gc.collect()
    gc.freeze()
    asked = questions(users, options["questions"], chance)
    question_us = ask(model.authorizer, asked) * 1e6 / len(asked)
    latest = asked[-_KNOWN:]
    known_us = ask(model.authorizer, latest) * 1e6 / len(latest)
    added_ms, removed_ms = [], []
    for index in range(options["changes"]):
        added, removed = change_ms(model, index, asked)
        added_ms.append(added)
        removed_ms.append(removed)
    return {
        "question_us": question_us,
        "known_us": known_us,
        "added_ms": statistics.median(added_ms),
        "removed_ms": statistics.median(removed_ms),
    }


def main() -> int:
    print(json.dumps(run(json.loads(sys.argv[1]))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
