"""trivup's cluster of brokers, which here are ours. All listeners of a cluster with users have TLS and a log-in."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from barnabas.testing import Cluster


class KafkaCluster:
    """A cluster, which runs until `stop`. With users (`name=password`) it is a secure one, and its client is the first
    of them, who may do what no rule is about.
    """

    def __init__(
        self, *, broker_cnt: int = 1, sasl_users: str = "", broker_conf: Sequence[str] = (), **_ignored: object
    ) -> None:
        properties = dict(line.split("=", 1) for line in broker_conf)
        if sasl_users:
            properties["allow.everyone.if.no.acl.found"] = "true"
        self._cluster = Cluster(brokers=broker_cnt, secure=bool(sasl_users), properties=properties).start()
        self._conf = {"bootstrap.servers": self._cluster.bootstrap, **self._cluster.client_settings}
        if sasl_users:
            name, _, password = sasl_users.partition(",")[0].partition("=")
            admin = AdminClient(dict(self._conf))
            change = UserScramCredentialUpsertion(
                name, ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4_096), password.encode()
            )
            for done in admin.alter_user_scram_credentials([change]).values():
                done.result(30)
            self._conf |= {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": name, "sasl.password": password}

    def wait_operational(self) -> None:
        """Returns: a started cluster serves."""

    def client_conf(self) -> dict[str, str]:
        return dict(self._conf)

    def stop(self, **_ignored: object) -> None:
        self._cluster.close()
