"""A deliberately simple second implementation of metadata records: nested dicts, changed in place, from Kafka's JSON of
them.

It shares nothing with `barnabas.metadata`; the two must agree on every recorded log and on every generated one.
"""

from __future__ import annotations

import copy
from typing import Any

from barnabas.common.types import uuid_to_text
from barnabas.metadata.image import MetadataImage

Json = dict[str, Any]

#: The fields that PartitionRecord leaves out while they have their defaults.
_PARTITION_DEFAULTS: Json = {"leaderRecoveryState": 0, "eligibleLeaderReplicas": [], "lastKnownElr": []}


class MetadataModel:
    def __init__(self) -> None:
        self.topics: dict[str, Json] = {}
        self.brokers: dict[int, Json] = {}
        self.controllers: dict[int, Json] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.features: dict[str, int] = {}
        self.next_producer_id = -1
        self.scram: dict[tuple[int, str], Json] = {}
        self.acls: dict[str, Json] = {}
        self.quotas: dict[tuple[tuple[str, str | None], ...], dict[str, float]] = {}

    def replay(self, kind: str, data: Json) -> None:
        getattr(self, f"_{kind.lower()}")(copy.deepcopy(data))

    def _topic_record(self, data: Json) -> None:
        self.topics[data["topicId"]] = {"name": data["name"], "partitions": {}}

    def _partition_record(self, data: Json) -> None:
        partition = {**_PARTITION_DEFAULTS, **data}
        self.topics[partition.pop("topicId")]["partitions"][partition.pop("partitionId")] = partition

    def _partition_change_record(self, data: Json) -> None:
        partition = self.topics[data.pop("topicId")]["partitions"][data.pop("partitionId")]
        if "leader" in data:
            partition["leaderEpoch"] += 1
        partition["partitionEpoch"] += 1
        partition.update(data)

    def _clear_elr_record(self, data: Json) -> None:
        for topic in self.topics.values():
            if data["topicName"] in ("", topic["name"]):
                for partition in topic["partitions"].values():
                    if partition["eligibleLeaderReplicas"] or partition["lastKnownElr"]:
                        partition.update(eligibleLeaderReplicas=[], lastKnownElr=[])
                        partition["partitionEpoch"] += 1

    def _remove_topic_record(self, data: Json) -> None:
        name = self.topics.pop(data["topicId"])["name"]
        self.configs.pop((2, name), None)

    def _config_record(self, data: Json) -> None:
        resource = (data["resourceType"], data["resourceName"])
        values = self.configs.setdefault(resource, {})
        if data["value"] is None:
            values.pop(data["name"], None)
        else:
            values[data["name"]] = data["value"]
        if not values:
            del self.configs[resource]

    def _feature_level_record(self, data: Json) -> None:
        self.features[data["name"]] = data["featureLevel"]
        if not data["featureLevel"]:
            del self.features[data["name"]]

    def _register_broker_record(self, data: Json) -> None:
        data["features"].sort(key=lambda feature: feature["name"])
        data["endPoints"].sort(key=lambda endpoint: endpoint["name"])
        self.brokers[data["brokerId"]] = data

    def _broker_registration_change_record(self, data: Json) -> None:
        broker = self.brokers[data["brokerId"]]
        assert broker["brokerEpoch"] == data["brokerEpoch"]
        for flag in ("fenced", "inControlledShutdown"):
            if data.get(flag):
                broker[flag] = data[flag] > 0
        if data.get("logDirs"):
            broker["logDirs"] = data["logDirs"]

    def _register_controller_record(self, data: Json) -> None:
        data["features"].sort(key=lambda feature: feature["name"])
        self.controllers[data["controllerId"]] = data

    def _producer_ids_record(self, data: Json) -> None:
        self.next_producer_id = data["nextProducerId"]

    def _user_scram_credential_record(self, data: Json) -> None:
        self.scram[data["mechanism"], data["name"]] = data

    def _remove_user_scram_credential_record(self, data: Json) -> None:
        del self.scram[data["mechanism"], data["name"]]

    def _access_control_entry_record(self, data: Json) -> None:
        self.acls[data["id"]] = data

    def _remove_access_control_entry_record(self, data: Json) -> None:
        del self.acls[data["id"]]

    def _client_quota_record(self, data: Json) -> None:
        entity = tuple(sorted((part["entityType"], part["entityName"]) for part in data["entity"]))
        values = self.quotas.setdefault(entity, {})
        if data["remove"]:
            values.pop(data["key"], None)
        else:
            values[data["key"]] = data["value"]
        if not values:
            del self.quotas[entity]

    def _no_op_record(self, data: Json) -> None: ...

    def _begin_transaction_record(self, data: Json) -> None: ...

    def _end_transaction_record(self, data: Json) -> None: ...


def assert_same(image: MetadataImage, model: MetadataModel) -> None:
    """Checks that the image has exactly the content of the model."""
    assert {uuid_to_text(topic_id): topic.name for topic_id, topic in image.topics_by_id.items()} == {
        topic_id: topic["name"] for topic_id, topic in model.topics.items()
    }
    assert {name: uuid_to_text(topic.topic_id) for name, topic in image.topics_by_name.items()} == {
        topic["name"]: topic_id for topic_id, topic in model.topics.items()
    }
    for topic_id, topic in image.topics_by_id.items():
        expected = model.topics[uuid_to_text(topic_id)]["partitions"]
        assert {index: _partition(partition) for index, partition in enumerate(topic.partitions)} == expected
    assert {broker_id: _broker(broker) for broker_id, broker in image.brokers.items()} == model.brokers
    assert set(image.controllers) == set(model.controllers)
    for controller_id, controller in image.controllers.items():
        expected = model.controllers[controller_id]
        assert uuid_to_text(controller.incarnation_id) == expected["incarnationId"]
        assert [_endpoint(endpoint) for endpoint in controller.endpoints] == expected["endPoints"]
        assert [_feature(feature) for feature in controller.features] == expected["features"]
    assert {resource: dict(values) for resource, values in image.configs.items()} == model.configs
    assert dict(image.features) == model.features
    assert image.next_producer_id == model.next_producer_id
    assert set(image.security.scram) == set(model.scram)
    assert {key: record.iterations for key, record in image.security.scram.items()} == {
        key: record["iterations"] for key, record in model.scram.items()
    }
    assert {uuid_to_text(acl): record.principal for acl, record in image.security.acls.items()} == {
        acl: record["principal"] for acl, record in model.acls.items()
    }
    assert {entity: dict(values) for entity, values in image.security.quotas.items()} == model.quotas


def _partition(partition: Any) -> Json:
    return {
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "removingReplicas": list(partition.removing_replicas),
        "addingReplicas": list(partition.adding_replicas),
        "leader": partition.leader,
        "leaderRecoveryState": partition.leader_recovery_state,
        "leaderEpoch": partition.leader_epoch,
        "partitionEpoch": partition.partition_epoch,
        "directories": [uuid_to_text(directory) for directory in partition.directories],
        "eligibleLeaderReplicas": list(partition.elr),
        "lastKnownElr": list(partition.last_known_elr),
    }


def _endpoint(endpoint: Any) -> Json:
    return {
        "name": endpoint.name,
        "host": endpoint.host,
        "port": endpoint.port,
        "securityProtocol": endpoint.security_protocol,
    }


def _feature(feature: Any) -> Json:
    return {
        "name": feature.name,
        "minSupportedVersion": feature.min_version,
        "maxSupportedVersion": feature.max_version,
    }


def _broker(broker: Any) -> Json:
    return {
        "brokerId": broker.broker_id,
        "isMigratingZkBroker": broker.is_migrating_zk_broker,
        "incarnationId": uuid_to_text(broker.incarnation_id),
        "brokerEpoch": broker.epoch,
        "endPoints": [_endpoint(endpoint) for endpoint in broker.endpoints],
        "features": [_feature(feature) for feature in broker.features],
        "rack": broker.rack,
        "fenced": broker.fenced,
        "inControlledShutdown": broker.in_controlled_shutdown,
        "logDirs": [uuid_to_text(directory) for directory in broker.directories],
    }
