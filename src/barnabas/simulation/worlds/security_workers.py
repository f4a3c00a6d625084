"""The workers of the security world: an administrator who changes rules, credentials and quotas, users who work by
their current rights, and attackers among them.

Each user works from a machine of its own. It writes, reads in fetch sessions and by long polls, creates topics, renews
its session in time or lets it end, and sometimes tries something forbidden: it sends an envelope in the name of the
administrator, fetches in the name of a replica, or finishes a log-in with another nonce than the server's.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable, Generator
from random import Random
from typing import Final, Protocol

from barnabas.broker.requests.forwarding import encode_principal
from barnabas.common.errors import ErrorCode
from barnabas.metadata.acls import AclOperation, AclPattern, AclPermission, AclResource
from barnabas.protocol import codec
from barnabas.protocol.header import request_header_version
from barnabas.protocol.message import Message
from barnabas.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from barnabas.protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from barnabas.protocol.messages.create_acls import CreateAclsRequest
from barnabas.protocol.messages.create_topics import CreateTopicsRequest
from barnabas.protocol.messages.delete_acls import DeleteAclsRequest
from barnabas.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from barnabas.protocol.messages.fetch import FetchRequest, FetchResponse
from barnabas.protocol.messages.header import RequestHeader
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.protocol.sasl.logins import Login
from barnabas.protocol.sasl.mechanism import SCRAM
from barnabas.protocol.sasl.scram_server import keys_of, salted_password
from barnabas.simulation.world import MILLISECOND_US, World
from barnabas.simulation.worlds.replicated import RawClient, batch_of, produce_request
from barnabas.simulation.worlds.scripted_client import Answers, Command, Dial, Script, ScriptedClient, Send, logged_in
from barnabas.simulation.worlds.security_effects import MADE, TOPICS, Effects, value_of

BROKERS: Final = ("broker1", "broker2", "broker3")
ADMIN: Final = "admin"
MECHANISM: Final = "SCRAM-SHA-256"
_ITERATIONS: Final = 4_096
_CONTROLLER_PORT: Final = 9093
_OPERATIONS: Final = (AclOperation.READ, AclOperation.WRITE, AclOperation.ALL, AclOperation.READ, AclOperation.WRITE)
_PATTERNS: Final = (
    ("a-one", AclPattern.LITERAL),
    ("a-two", AclPattern.LITERAL),
    ("b-one", AclPattern.LITERAL),
    ("a-", AclPattern.PREFIXED),
    ("a-o", AclPattern.PREFIXED),
    ("b", AclPattern.PREFIXED),
    ("*", AclPattern.LITERAL),
)
_SALT: Final = b"the salt of each user"
_PRODUCE_VERSION: Final = 12
_FETCH_VERSION: Final = 12

Step = Generator[Command, Answers, bool]


class SecuredRun(Protocol):
    """The run as its workers see it."""

    @property
    def world(self) -> World: ...
    @property
    def effects(self) -> Effects: ...
    @property
    def controllers(self) -> tuple[str, ...]: ...
    @property
    def passwords(self) -> dict[str, str]:
        """The password of each user that the administrator set last."""

    def leader_of(self, topic: str) -> str:
        """Returns the leader of a topic's only partition, or any broker."""

    def topic_id_of(self, topic: str) -> bytes: ...

    @property
    def is_ending(self) -> bool: ...


def credential_of(user: str, password: str) -> AlterUserScramCredentialsRequest.ScramCredentialUpsertion:
    number, hash_name = SCRAM[MECHANISM]
    salted = salted_password(hash_name, password, _SALT, _ITERATIONS)
    return AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name=user, mechanism=number, iterations=_ITERATIONS, salt=_SALT, salted_password=salted
    )


def stored_key_of(password: str) -> bytes:
    hash_name = SCRAM[MECHANISM][1]
    return keys_of(hash_name, salted_password(hash_name, password, _SALT, _ITERATIONS))[0]


def quota_of(user: str, bytes_per_s: int | None) -> AlterClientQuotasRequest:
    """Returns the request that sets the quota of a user's writes, or removes it."""
    entity = AlterClientQuotasRequest.EntityData(entity_type="user", entity_name=user)
    change = AlterClientQuotasRequest.OpData(
        key="producer_byte_rate", value=float(bytes_per_s or 0), remove=bytes_per_s is None
    )
    entry = AlterClientQuotasRequest.EntryData(entity=[entity], ops=[change])
    return AlterClientQuotasRequest(entries=[entry])


class Administrator:
    """Changes rules, credentials and quotas, one request at a time, at any broker."""

    def __init__(
        self, run: SecuredRun, client: RawClient, users: dict[str, str], pace_ms: int, hurried: str | None
    ) -> None:
        """`users` has the address of each user's machine. `hurried` is the user whose quota stays as it is; None in a
        run without quotas.
        """
        self._run = run
        self._client = client
        self._users = users
        self._pace_ms = pace_ms
        self._hurried = hurried
        self._random = run.world.stream("administrator")
        self._password_count = 0
        #: The number of changes that were answered.
        self.answered = 0
        self.stopping = False

    def start(self) -> None:
        self._client.process.enter(self._next)

    def _next(self) -> None:
        if self.stopping:
            return
        random = self._random
        draw = random.random()
        if draw < 0.5:
            request: Message = self._new_rule(random)
        elif draw < 0.8:
            request = self._fewer_rules(random)
        elif draw < 0.9 or self._hurried is None:
            request = self._new_credential(random)
        else:
            rate = random.choice((None, 20_000, 100_000))
            request = quota_of(random.choice([name for name in self._users if name != self._hurried]), rate)
        self._client.send(random.choice(BROKERS), request, self._answered, timeout_ms=3_000)

    def _answered(self, answer: Message | None) -> None:
        self.answered += answer is not None
        self._client.host.timers.call_later(self._random.randint(1, self._pace_ms), self._next)

    def _new_rule(self, random: Random) -> CreateAclsRequest:
        user = random.choice([*self._users, "*"])
        name, pattern = random.choice(_PATTERNS)
        operation = random.choice(_OPERATIONS)
        resource = AclResource.TOPIC
        if random.random() < 0.2:
            resource, operation = random.choice(
                ((AclResource.TOPIC, AclOperation.CREATE), (AclResource.CLUSTER, AclOperation.CREATE))
            )
            name, pattern = (MADE, AclPattern.PREFIXED) if resource is AclResource.TOPIC else _CLUSTER
        host = self._users[user] if user != "*" and random.random() < 0.2 else "*"
        is_denied = random.random() < 0.35
        return CreateAclsRequest(
            creations=[
                CreateAclsRequest.AclCreation(
                    resource_type=resource,
                    resource_name=name,
                    resource_pattern_type=pattern,
                    principal=f"User:{user}",
                    host=host,
                    operation=operation,
                    permission_type=AclPermission.DENY if is_denied else AclPermission.ALLOW,
                )
            ]
        )

    def _fewer_rules(self, random: Random) -> DeleteAclsRequest:
        """Removes the rules of a user, or those that deny."""
        user = random.choice([*(name for name in self._users if name != self._hurried), "*", None])
        permission = AclPermission.DENY if user is None else random.choice((AclPermission.DENY, AclPermission.ANY))
        removed = DeleteAclsRequest.DeleteAclsFilter(
            resource_type_filter=AclResource.ANY,
            resource_name_filter=None,
            host_filter=None,
            pattern_type_filter=AclPattern.ANY,
            principal_filter=None if user is None else f"User:{user}",
            operation=AclOperation.ANY,
            permission_type=permission,
        )
        return DeleteAclsRequest(filters=[removed])

    def _new_credential(self, random: Random) -> AlterUserScramCredentialsRequest:
        user = random.choice(list(self._users))
        if random.random() < 0.2:
            deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion(
                name=user, mechanism=SCRAM[MECHANISM][0]
            )
            return AlterUserScramCredentialsRequest(deletions=[deletion])
        self._password_count += 1
        password = f"{user}-{self._password_count % 4}"
        self._run.passwords[user] = password
        return AlterUserScramCredentialsRequest(upsertions=[credential_of(user, password)])


_CLUSTER: Final = ("kafka-cluster", AclPattern.LITERAL)


class UserWork:
    """The script of a user on one machine."""

    def __init__(self, run: SecuredRun, client: ScriptedClient, user: str, *, hurries: bool = False) -> None:
        """`hurries`: whether the user only writes, as fast as it can."""
        self._run = run
        self._client = client
        self._user = user
        self._hurries = hurries
        self._random = run.world.stream(f"user/{client.name}")
        self._number = 0
        self._node = ""
        #: The time from which the session counts as ended for the user, on the world's clock.
        self._ends_us: int | None = None
        #: The fetch session: its id and the next epoch.
        self._fetch_session = (0, 0)

    def script(self) -> Script:
        actions: tuple[Callable[[], Step], ...] = (
            self._write,
            self._write,
            self._write_on,
            self._read,
            self._read_on,
            self._create,
            self._fetch_as_replica,
        )
        while not self._run.is_ending:
            if not (yield from self._connect()):
                yield self._random.randint(50, 300)
                continue
            is_open = True
            while is_open and not self._run.is_ending:
                if self._hurries:
                    is_open = yield from self._write_much()
                    continue
                is_open = yield from self._random.choice(actions)()
                yield self._random.choice((0, 2, 10, 40))
                if self._random.random() < 0.04:
                    break
            if not self._hurries and self._random.random() < 0.3:
                yield from self._send_envelope()

    # -- connections

    def _connect(self) -> Step:
        run, random = self._run, self._random
        self._node = run.leader_of(TOPICS[0] if self._hurries else random.choice(TOPICS))
        self._fetch_session = (0, 0)
        if not (yield Dial(self._node)):
            return False
        if not self._hurries and random.random() < 0.15:
            return (yield from self._lie_about_the_nonce())
        return (yield from self._log_in())

    def _log_in(self) -> Step:
        run = self._run
        password = run.passwords[self._user] if self._random.random() < 0.9 else f"{self._user}-0"
        since_us = run.world.now_us
        session = yield from logged_in(Login(MECHANISM, self._user, password), f"nonce{self._random.getrandbits(64)}")
        if session is None or not session.succeeded:
            run.effects.counts["refused log-ins"] += 1
            return False
        run.effects.logged_in(self._node, self._user, SCRAM[MECHANISM][0], stored_key_of(password), since_us)
        self._ends_us = run.world.now_us + session.lifetime_ms * MILLISECOND_US if session.lifetime_ms else None
        return True

    def _lie_about_the_nonce(self) -> Step:
        """Sends a last message in which only the nonce is wrong. The server must refuse it."""
        first = f"n,,n={self._user},r=nonce{self._random.getrandbits(64)}".encode()
        answers: Answers = None
        for request in (SaslHandshakeRequest(mechanism=MECHANISM), SaslAuthenticateRequest(auth_bytes=first)):
            answers = yield Send([(request, 1)])
            if not isinstance(answers, list) or getattr(answers[0], "error_code", None):
                return False
        assert isinstance(answers, list), "the request was answered"
        answer = answers[0]
        assert isinstance(answer, SaslAuthenticateResponse), "the response to the first message"
        last = _last_message(self._run.passwords[self._user], first, bytes(answer.auth_bytes))
        answers = yield Send([(SaslAuthenticateRequest(auth_bytes=last), 2)])
        if isinstance(answers, list) and getattr(answers[0], "error_code", None) == ErrorCode.NONE:
            self._blame("the last message of a log-in had another nonce, and was accepted")
        return False

    def _blame(self, text: str) -> None:
        effects = self._run.effects
        effects.failure = effects.failure or f"{text}: {self._user} at {self._node}"

    # -- work

    def _call(self, *requests: tuple[Message, int]) -> Generator[Command, Answers, list[Message] | None]:
        """Sends requests on the open connection, and checks that a session that has ended is not served."""
        ends_us = self._ends_us
        if ends_us is not None and self._run.world.now_us > ends_us - 300 * MILLISECOND_US:
            if self._random.random() < 0.7:
                if not (yield from self._log_in()):
                    return None
                ends_us = self._ends_us
            elif self._random.random() < 0.5:
                yield 600
        is_over = ends_us is not None and self._run.world.now_us > ends_us + 20 * MILLISECOND_US
        answers = yield Send(requests)
        if isinstance(answers, list) and is_over:
            self._blame("a request after the end of the session was served")
        return answers if isinstance(answers, list) else None

    def _request(self, topic: str, size: int = 0, acks: int = 1) -> tuple[Message, int]:
        """Returns a write. With acks=all the response can leave when its throttle time is over."""
        self._number += 1
        value = value_of(topic, self._client.name, self._number) + b"x" * size
        request = produce_request(self._run.topic_id_of(topic), 0, batch_of(value), acks=acks, name=topic)
        return request, _PRODUCE_VERSION

    def _own_topic(self) -> str:
        """Returns a topic that the connected node leads, if there is one."""
        led = [topic for topic in TOPICS if self._run.leader_of(topic) == self._node]
        return self._random.choice(led or list(TOPICS))

    def _write(self) -> Step:
        return (yield from self._call(self._request(self._own_topic()))) is not None

    def _write_on(self) -> Step:
        """Writes to one topic several times, some requests in one piece: the node has a shortcut for it."""
        topic = self._own_topic()
        for _ in range(self._random.randint(2, 5)):
            count = self._random.randint(1, 3)
            if (yield from self._call(*(self._request(topic) for _ in range(count)))) is None:
                return False
            yield self._random.choice((0, 3, 20))
        return True

    def _write_much(self) -> Step:
        """Writes as fast as it can, some of it without waiting for a response."""
        topic = self._own_topic()
        if self._random.random() < 0.2:
            yield Send([self._request(topic, 2_000, acks=0)], has_answers=False)
        return (yield from self._call(*(self._request(topic, 2_000) for _ in range(4)))) is not None

    def _read(self) -> Step:
        """Fetches from the beginning of a topic, without a session."""
        request = self._fetch(self._own_topic(), 0, (0, -1))
        return (yield from self._call((request, _FETCH_VERSION))) is not None

    def _read_on(self) -> Step:
        """Fetches in a session, and waits for records at the end of the log."""
        topic, offset = self._own_topic(), 0
        self._fetch_session = (0, 0)
        for _ in range(self._random.randint(2, 5)):
            session_id, epoch = self._fetch_session
            request = self._fetch(topic, offset, (session_id, epoch), wait_ms=self._random.choice((0, 100, 400)))
            if epoch and self._random.random() < 0.6:
                # The session continues where it was: the node reads the same records again.
                request.topics = []
            answers = yield from self._call((request, _FETCH_VERSION))
            if answers is None or not isinstance(answers[0], FetchResponse):
                return False
            answer = answers[0]
            if answer.error_code:
                return True
            self._fetch_session = (answer.session_id, epoch + 1)
            for topic_rows in answer.responses:
                offset = max(offset, topic_rows.partitions[0].high_watermark)
        return True

    def _fetch(self, topic: str, offset: int, session: tuple[int, int], wait_ms: int = 0) -> FetchRequest:
        partition = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 16)
        return FetchRequest(
            replica_id=-1,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            session_id=session[0],
            session_epoch=session[1],
            topics=[FetchRequest.FetchTopic(topic=topic, partitions=[partition])],
        )

    def _create(self) -> Step:
        return (yield from self._call((self._creation(), 7))) is not None

    def _creation(self) -> CreateTopicsRequest:
        self._number += 1
        name = f"{MADE}{self._client.name}-{self._number}"
        topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        return CreateTopicsRequest(topics=[topic], timeout_ms=1_000)

    # -- attacks

    def _fetch_as_replica(self) -> Step:
        request = self._fetch(self._own_topic(), 0, (0, -1))
        request.replica_id = self._random.randint(1, 3)
        answers = yield from self._call((request, _FETCH_VERSION))
        if answers is None or not isinstance(answers[0], FetchResponse):
            return False
        if any(row.partitions[0].error_code == ErrorCode.NONE for row in answers[0].responses):
            self._blame("a user fetched in the name of a replica")
        return True

    def _send_envelope(self) -> Step:
        """Sends a request in the administrator's name to a controller."""
        self._node = self._random.choice(self._run.controllers)
        if not (yield Dial(self._node, _CONTROLLER_PORT)) or not (yield from self._log_in()):
            return False
        creation = self._creation()
        header = RequestHeader(request_api_key=19, request_api_version=7, correlation_id=1, client_id="c")
        frame = codec.encode(header, request_header_version(19, 7))
        codec.encode_into(creation, 7, frame)
        envelope = EnvelopeRequest(
            request_data=bytes(frame),
            request_principal=encode_principal(f"User:{ADMIN}"),
            client_host_address=bytes(4),
        )
        answers = yield from self._call((envelope, 0))
        if answers is not None and isinstance(answers[0], EnvelopeResponse) and not answers[0].error_code:
            self._blame("an envelope of a user was served")
        answers = yield from self._call((MetadataRequest(topics=[]), 12))
        return answers is not None


def _last_message(password: str, first: bytes, server_first: bytes) -> bytes:
    """Returns the last message of SCRAM with a right proof of another nonce: its last letter is wrong."""
    hash_name = SCRAM[MECHANISM][1]
    nonce = server_first.decode().partition(",")[0].removeprefix("r=")
    unproven = f"c=biws,r={nonce[:-1]}{'A' if nonce[-1] != 'A' else 'B'}"
    signed = f"{first.decode().removeprefix('n,,')},{server_first.decode()},{unproven}".encode()
    client_key = hmac.digest(salted_password(hash_name, password, _SALT, _ITERATIONS), b"Client Key", hash_name)
    signature = hmac.digest(hashlib.new(hash_name, client_key).digest(), signed, hash_name)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return f"{unproven},p={base64.b64encode(proof).decode()}".encode()
