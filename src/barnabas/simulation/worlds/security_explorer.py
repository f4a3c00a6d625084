"""Seeded runs of a cluster with log-ins, rules and quotas that change under faults (guards S1, S3, S9, S10, S13, S14,
S19, S21).

Three brokers and three controllers log in to each other; an administrator keeps changing rules, credentials and quotas;
users work by their current rights, and attack (`security_workers`). Faults strike brokers, controllers and links.
Everything that nodes let users do is compared with the metadata of that node in that event (`security_effects`). In the
end everything heals: then changes are possible again, all nodes have the same rules, and nothing is left of closed
connections.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from barnabas.metadata.acls import AclOperation, AclResource
from barnabas.protocol.messages.alter_client_quotas import AlterClientQuotasResponse
from barnabas.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from barnabas.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from barnabas.protocol.peer_security import ChannelSecurity
from barnabas.protocol.sasl.logins import Login
from barnabas.simulation.checkers import NoUncaughtExceptions, Watch
from barnabas.simulation.faults import Fault, FaultKind
from barnabas.simulation.history import Violation
from barnabas.simulation.injector import Injector
from barnabas.simulation.metadata_checkers import SameImages
from barnabas.simulation.rare_events import observed
from barnabas.simulation.second_decision_table import second_decisions
from barnabas.simulation.world import MILLISECOND_US, SECOND_US, Livelock, Note
from barnabas.simulation.worlds.replicated import RawClient, Replicated
from barnabas.simulation.worlds.scripted_client import Answered, ScriptedClient
from barnabas.simulation.worlds.security_effects import DECISION, TOPICS, Effects, Quota, User
from barnabas.simulation.worlds.security_workers import (
    ADMIN,
    BROKERS,
    Administrator,
    UserWork,
    credential_of,
    quota_of,
)

CONTROLLERS: Final = ("controller1", "controller2", "controller3")
USERS: Final = ("alice", "bob", "carol")
#: The user with a fixed quota, and the number of its connections.
HURRIED: Final = "carol"
_CONNECTIONS: Final = 3
_QUOTA_BYTES: Final = 15_000
_LIVENESS_S_MAX: Final = 60
_KINDS: Final = (FaultKind.KILL, FaultKind.STOP, FaultKind.PAUSE)
_LINKS: Final = (FaultKind.PARTITION, FaultKind.ONE_WAY, FaultKind.RESET, FaultKind.SLOW_LINK)
_DURATIONS_MS: Final = (30, 200, 800, 2_500)
_PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SECURITY: Final = {
    "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,PLAINTEXT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:node;User:{ADMIN}",
    "connection.failed.authentication.delay.ms": "50",
    # Rates are measured over two windows of a second: with Kafka's eleven, a new rate would admit ten seconds' worth of
    # a quota.
    "quota.window.num": "2",
    **{
        f"listener.name.{listener}.plain.sasl.jaas.config": (
            f'{_PLAIN} required username="node" password="node-secret" user_node="node-secret" '
            f'user_{ADMIN}="admin-secret";'
        )
        for listener in ("plaintext", "controller")
    },
}


@dataclass
class Outcome:
    """The result of a run."""

    seed: int
    problem: str | None
    faults: list[Fault]
    events: int
    #: How often each kind of effect was compared.
    counts: dict[str, int]
    #: The number of changes that the administrator made.
    changes: int
    notes: list[Note]

    def __str__(self) -> str:
        return "\n".join([f"seed {self.seed}: {self.problem}", *map(str, self.faults), str(self.counts)])


class _Rig(Replicated):
    security = ChannelSecurity(login=lambda: Login("PLAIN", ADMIN, "admin-secret"))


class SecurityRun:
    """A run. `kinds` replaces the seed's kinds of faults."""

    DURATION_S = 5

    def __init__(self, seed: int, *, duration_s: int | None = None, kinds: Sequence[FaultKind] | None = None) -> None:
        self.seed = seed
        self._duration_s = self.DURATION_S if duration_s is None else duration_s
        self._kinds = kinds
        self.passwords = {user: f"{user}-0" for user in USERS}
        self.is_ending = False
        self.faults: list[Fault] = []
        self.controllers = CONTROLLERS

    def execute(self) -> Outcome:
        problem: str | None = None
        self._prepare()
        try:
            with second_decisions().judging(), observed([DECISION], self.effects.on_decision):
                self._run()
        except (Violation, Livelock) as broken:
            problem = str(broken)
        except AssertionError as broken:
            problem = f"the run itself failed: {broken}"
        trace = self.world.trace
        return Outcome(
            self.seed, problem, self.faults, trace.count, self.effects.counts, self._administrator.answered, trace.notes
        )

    # -- what workers see

    def leader_of(self, topic: str) -> str:
        image = self.rig.decided.partition(topic, 0)
        if image is None or image.leader < 0:
            return self.world.stream("any broker").choice(BROKERS)
        return f"broker{image.leader}"

    def topic_id_of(self, topic: str) -> bytes:
        return self.rig.topic_id(topic)

    # -- the run

    def _prepare(self) -> None:
        """Starts the cluster, and makes topics, users and the first rules."""
        random = Random(f"{self.seed} security")
        sessions = {"connections_max_reauth_ms": random.choice(("1500", "3000"))} if random.random() < 0.6 else {}
        rig = self.rig = _Rig(self.seed, 3, controllers=3, **_keyed(_SECURITY), **sessions)
        self.world = rig.world
        has_quotas = random.random() < 0.6
        for place, topic in enumerate(TOPICS):
            rig.create_topic(topic, [[1 + (place + each) % 3 for each in range(3)]], min_insync_replicas="1")
        clients = {user: ScriptedClient(rig.cluster, f"{user}.1", self._on_answer) for user in USERS}
        hurried = [
            ScriptedClient(rig.cluster, f"{HURRIED}.{place}", self._on_answer) for place in range(2, _CONNECTIONS + 1)
        ]
        self._clients = [*clients.values(), *hurried]
        users = [User(client.name.partition(".")[0], client.name, client.address) for client in self._clients]
        burst_bytes = _CONNECTIONS * 2 * 2_200
        self.effects = Effects(rig.cluster, users, Quota(HURRIED, _QUOTA_BYTES, burst_bytes))
        admin = RawClient(rig.cluster, "admin-host", security=_Rig.security)
        addresses = {user: client.address for user, client in clients.items()}
        pace_ms = random.choice((60, 200, 500))
        self._administrator = Administrator(self, admin, addresses, pace_ms, HURRIED if has_quotas else None)
        self._set_up(has_quotas=has_quotas)
        self._scripts = [
            UserWork(self, client, user, hurries=has_quotas and user == HURRIED).script()
            for user, client in clients.items()
        ] + [UserWork(self, client, HURRIED, hurries=has_quotas).script() for client in hurried]
        Watch(rig.cluster, [NoUncaughtExceptions(), self.effects, SameImages()], interval=1)

    def _on_answer(self, answer: Answered) -> None:
        self.effects.answered(answer)

    def _set_up(self, *, has_quotas: bool) -> None:
        call = self.rig.client.call
        credentials = AlterUserScramCredentialsRequest(
            upsertions=[credential_of(user, self.passwords[user]) for user in USERS]
        )
        made = call("broker1", credentials, AlterUserScramCredentialsResponse)
        assert [row.error_code for row in made.results] == [0] * len(USERS)
        rules = [
            _allow(HURRIED, AclOperation.ALL, AclResource.TOPIC, "*"),
            _allow("alice", AclOperation.ALL, AclResource.TOPIC, "*"),
            _allow("bob", AclOperation.READ, AclResource.TOPIC, "a-one"),
            _allow("bob", AclOperation.WRITE, AclResource.TOPIC, "a-one"),
        ]
        added = call("broker1", CreateAclsRequest(creations=rules), CreateAclsResponse)
        assert [row.error_code for row in added.results] == [0] * len(rules)
        if has_quotas:
            changed = call("broker1", quota_of(HURRIED, _QUOTA_BYTES), AlterClientQuotasResponse)
            assert [row.error_code for row in changed.entries] == [0]
        self.rig.run_for(200)

    def _run(self) -> None:
        begin_ms = self.world.now_us // MILLISECOND_US + 200
        end_ms = begin_ms + self._duration_s * 1_000
        self.faults = _draw_faults(self.world.stream("security faults"), begin_ms, end_ms, self._kinds)
        self._administrator.start()
        for client, script in zip(self._clients, self._scripts, strict=True):
            client.run(script)
        injector = Injector(self.rig.cluster)
        with injector.injecting(self.faults):
            self.world.run_until(end_ms * MILLISECOND_US)
            injector.heal()
            self._heal()

    def _heal(self) -> None:
        goal = self._administrator.answered + 5
        self._await(lambda: self._administrator.answered >= goal, "no rule changes although everything healed")
        self._administrator.stopping = True
        self.is_ending = True
        self._await(lambda: all(client.is_done for client in self._clients), "a user still waits for an answer")
        self._await(self._is_settled, "the nodes have different rules although everything healed")
        self.world.run_for(3 * SECOND_US)
        self._check_remains()

    def _await(self, condition: Callable[[], bool], problem: str) -> None:
        until_us = self.world.now_us + _LIVENESS_S_MAX * SECOND_US
        if not self.world.run_while(lambda: not condition(), until_us) and not condition():
            raise Violation(problem)

    def _is_settled(self) -> bool:
        nodes = self.rig.cluster.nodes.values()
        rules = self.rig.decided.security
        return all(node.broker is not None and node.broker.metadata.image.security == rules for node in nodes)

    def _check_remains(self) -> None:
        """Checks that users' connections, which are all closed, left nothing on the nodes: no connection, no muting, no
        memory."""
        own = {client.address for client in self._clients}
        for name, node in self.rig.cluster.nodes.items():
            left = [each for each in node.connections if each.client_host.removeprefix("/") in own]
            if left:
                raise Violation(f"{len(left)} connections of users are left on {name}")
            if any(each.muting is not None for each in node.connections):
                raise Violation(f"{name} muted another node")
            assert node.broker is not None, "all nodes run"
            open_ones = set(map(id, node.connections))
            if any(id(each) not in open_ones for each in node.broker.memory.holders):
                raise Violation(f"the memory of closed connections is counted on {name}")


def _keyed(properties: dict[str, str]) -> dict[str, str]:
    """Returns properties under names that `Replicated` turns into keys."""
    return {key.replace(".", "_"): value for key, value in properties.items()}


def _allow(user: str, operation: AclOperation, resource: AclResource, name: str) -> CreateAclsRequest.AclCreation:
    return CreateAclsRequest.AclCreation(
        resource_type=resource,
        resource_name=name,
        resource_pattern_type=3,
        principal=f"User:{user}",
        host="*",
        operation=operation,
        permission_type=3,
    )


def _draw_faults(random: Random, begin_ms: int, end_ms: int, given: Sequence[FaultKind] | None) -> list[Fault]:
    """Draws faults of nodes and of the links between them; each seed has its own kinds and pace."""
    kinds = list(given) if given is not None else [kind for kind in (*_KINDS, *_LINKS) if random.random() < 0.5]
    nodes = (*BROKERS, *CONTROLLERS)
    gap_ms = random.choice((300, 800, 2_000))
    faults: list[Fault] = []
    at_ms = begin_ms
    while kinds and (at_ms := at_ms + 1 + int(random.expovariate(1 / gap_ms))) < end_ms:
        kind = random.choice(kinds)
        node = random.choice(nodes)
        peer = random.choice([name for name in nodes if name != node]) if kind in _LINKS else ""
        duration_ms = int(random.choice(_DURATIONS_MS) * (0.25 + random.random()))
        amount = random.choice((2, 20, 120)) if kind in _LINKS else 0
        faults.append(Fault(at_ms, kind, node, peer, duration_ms, amount))
    return faults


def explore(seed: int, **options: object) -> Outcome:
    return SecurityRun(seed, **options).execute()  # type: ignore[arg-type]
