"""One broker of either kind for the rows of security: listeners for all security protocols, a certificate, a user.

`RULES` are the properties of a broker with an authorizer. `allow` gives the measured client its right among rules about
others.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

import wire
from barnabas.embedded.authority import issue, make_authority
from barnabas.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from client_process import Client
from targets import TARGETS, Target, kafka_jars

USER, PASSWORD = "alice", "bench-secret"
SCRAM: Final = "SCRAM-SHA-256"
LISTENERS: Final = {"plaintext": "PLAINTEXT", "ssl": "SSL", "sasl_ssl": "SASL_SSL", "sasl_plaintext": "SASL_PLAINTEXT"}
RULES: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
_TIMEOUT_S = 60
_RULES_AT_ONCE = 1_000
_TOPICS_OF_OTHERS = 100


class SecureBroker:
    """A broker of one kind from its start to its stop."""

    def __init__(self, name: str, directory: Path, more: Mapping[str, str]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.authority = make_authority(directory.with_name(f"{directory.name}-authority"))
        ports = kafka_jars.free_ports(len(LISTENERS) + 1)
        self.ports = dict(zip(LISTENERS, ports, strict=False))
        self.target: Target = TARGETS[name](directory, {**self._properties(ports[-1]), **more})
        self.name = name

    def _properties(self, controller_port: int) -> dict[str, str]:
        store = issue(self.authority, "broker", ["localhost", "127.0.0.1"])
        listeners = ",".join(f"{LISTENERS[name]}://127.0.0.1:{port}" for name, port in self.ports.items())
        module = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        protocols = ",".join(f"{name}:{name}" for name in LISTENERS.values())
        return {
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller_port}",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
            "listener.security.protocol.map": f"{protocols},CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(store),
            "sasl.enabled.mechanisms": SCRAM,
            **{
                f"listener.name.{name}.{SCRAM.lower()}.sasl.jaas.config": module
                for name in ("sasl_ssl", "sasl_plaintext")
            },
        }

    def start(self) -> None:
        """Starts the broker, and adds the user."""
        self.target.prepare()
        self.target.launch()
        self.target.wait()
        self.admin = AdminClient({"bootstrap.servers": self.target.bootstrap, "log_level": 2})
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        change = UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
        for future in self.admin.alter_user_scram_credentials([change]).values():
            future.result(_TIMEOUT_S)

    def create(self, topic: str) -> None:
        self.admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(_TIMEOUT_S)

    def allow(self, prefix: str, rules: int) -> None:
        """Adds this number of rules: one allows clients in the clear all topics with a prefix, the others are about
        other users and topics.
        """
        mine = _allowed("User:ANONYMOUS", prefix, ResourcePatternType.PREFIXED)
        others = [
            _allowed(f"User:user-{index}", f"topic-{index % _TOPICS_OF_OTHERS}", ResourcePatternType.LITERAL)
            for index in range(1, rules)
        ]
        bindings = [mine, *others]
        for begin in range(0, rules, _RULES_AT_ONCE):
            for future in self.admin.create_acls(bindings[begin : begin + _RULES_AT_ONCE]).values():
                future.result(_TIMEOUT_S)

    def settings(self, protocol: str) -> dict[str, str]:
        """Returns the settings of a client of librdkafka."""
        found = {"security.protocol": protocol}
        if protocol.endswith("ssl"):
            found["ssl.ca.location"] = str(self.authority.certificate)
        if protocol.startswith("sasl"):
            found |= {"sasl.mechanism": SCRAM, "sasl.username": USER, "sasl.password": PASSWORD}
        return found

    def run(self, workload: str, protocol: str, topic: str, options: Mapping[str, Any]) -> dict[str, float]:
        """Returns the measurements of a client over this protocol."""
        bootstrap = f"127.0.0.1:{self.ports[protocol]}"
        given = {"topic": topic, "client": self.settings(protocol), **options}
        client = Client(workload, bootstrap, given)
        try:
            return client.finish()
        finally:
            client.kill()


def _allowed(principal: str, topic: str, pattern: ResourcePatternType) -> AclBinding:
    return AclBinding(ResourceType.TOPIC, topic, pattern, principal, "*", AclOperation.ALL, AclPermissionType.ALLOW)


def set_quota(port: int, entity_type: str, name: str | None, quotas: Mapping[str, float]) -> None:
    """Sets quotas of a user or client id; with the name None, of all that have none of their own."""
    ops = [AlterClientQuotasRequest.OpData(key=key, value=value) for key, value in quotas.items()]
    entity = AlterClientQuotasRequest.EntityData(entity_type=entity_type, entity_name=name)
    request = AlterClientQuotasRequest(entries=[AlterClientQuotasRequest.EntryData(entity=[entity], ops=ops)])
    link = wire.Link(port)
    answer = link.call(request, 0, AlterClientQuotasResponse)
    link.close()
    if any(each.error_code for each in answer.entries):
        raise RuntimeError(f"the quota is refused: {answer.entries}")
