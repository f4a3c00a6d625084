"""UpdateFeatures as the controller decides it, with the texts of Kafka's own controller."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.controller_world import ControllerWorld, SeededChance, make_config, registration

from barnabas.common.errors import ErrorCode
from barnabas.controller.kraft.bootstrap import bootstrap_batches, own_registration
from barnabas.controller.kraft.controller import Controller
from barnabas.controller.kraft.features import update_features
from barnabas.controller.requests.feature_requests import UpgradeType
from barnabas.controller.requests.result import Versioned
from barnabas.controller.requests.view import MIN_ISR, ControllerView
from barnabas.metadata.features import DEFAULT_FEATURES, default_features
from barnabas.metadata.image import BROKER_RESOURCE, ELR_VERSION, EMPTY_IMAGE, GROUP_VERSION, METADATA_VERSION
from barnabas.metadata.versions import METADATA_VERSIONS, metadata_changes_between, metadata_version_named
from barnabas.protocol.messages.broker_registration import BrokerRegistrationRequest
from barnabas.protocol.messages.records_metadata import ConfigRecord, FeatureLevelRecord
from barnabas.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

FAILED = "The update failed for all features since the following feature had an error: "
UPGRADE, SAFE, UNSAFE = UpgradeType.UPGRADE, UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE


def call(
    world: ControllerWorld,
    *updates: tuple[str, int, int],
    version: int = 2,
    validate_only: bool = False,
    kraft_version: int = 1,
    kraft_refusal: str | None = None,
) -> UpdateFeaturesResponse:
    request = UpdateFeaturesRequest(
        feature_updates=[
            UpdateFeaturesRequest.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
            for name, level, kind in updates
        ],
        validate_only=validate_only,
    )
    return world.apply(update_features(world.view(), request, version, kraft_version, "User:test", kraft_refusal))


def refusal(
    world: ControllerWorld,
    *updates: tuple[str, int, int],
    kraft_version: int = 1,
    kraft_refusal: str | None = None,
) -> str:
    before = world.image.features
    response = call(world, *updates, kraft_version=kraft_version, kraft_refusal=kraft_refusal)
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert world.image.features == before
    text = response.error_message or ""
    assert text.startswith(FAILED)
    return text.removeprefix(FAILED)


@pytest.fixture
def world() -> ControllerWorld:
    return ControllerWorld()


def test_a_level_goes_down_and_up_again(world: ControllerWorld) -> None:
    assert call(world, (GROUP_VERSION, 0, SAFE)).error_code == 0
    assert GROUP_VERSION not in world.image.features
    assert call(world, (GROUP_VERSION, 1, UPGRADE)).error_code == 0
    assert world.image.features[GROUP_VERSION] == 1
    assert call(world, (GROUP_VERSION, 1, UPGRADE)).error_code == 0, "the level that it has already"


def test_a_downgrade_that_would_go_up_is_refused() -> None:
    world = ControllerWorld(features={GROUP_VERSION: 0})
    text = refusal(world, (GROUP_VERSION, 1, SAFE))
    assert text == f"Invalid update version 1 for feature {GROUP_VERSION}. Can't downgrade to a newer version."


def test_share_groups_cannot_be_turned_on_and_a_level_that_is_there_can_be_taken_back() -> None:
    """Barnabas does not implement share groups."""
    world = ControllerWorld(features={"share.version": 1})
    world.add_broker(1)
    assert world.image.features["share.version"] == 1
    assert all(feature.name != "share.version" for feature in world.image.brokers[1].features)
    assert call(world, ("share.version", 0, SAFE)).error_code == 0
    assert "share.version" not in world.image.features
    text = refusal(world, ("share.version", 1, UPGRADE))
    assert text == (
        "Invalid update version 1 for feature share.version. Local controller 1 does not support this feature."
    )


def test_validating_changes_nothing(world: ControllerWorld) -> None:
    assert call(world, (GROUP_VERSION, 0, UNSAFE), validate_only=True).error_code == 0
    assert world.image.features[GROUP_VERSION] == 1


def test_one_fault_fails_all_updates(world: ControllerWorld) -> None:
    text = refusal(world, (GROUP_VERSION, 0, SAFE), ("no.such.version", 1, UPGRADE))
    assert text == (
        "Invalid update version 1 for feature no.such.version. Local controller 1 does not support this feature."
    )


@pytest.mark.parametrize(
    ("update", "reason"),
    [
        ((GROUP_VERSION, 9, UPGRADE), "Local controller 1 only supports versions 0-1"),
        ((GROUP_VERSION, 0, UPGRADE), "Can't downgrade the version of this feature without setting the upgrade type "
         "to either safe or unsafe downgrade."),
        ((GROUP_VERSION, 1, 0), "The controller does not support the given upgrade type."),
        ((GROUP_VERSION, 1, 4), "The controller does not support the given upgrade type."),
        ((GROUP_VERSION, -1, SAFE), "A feature version cannot be less than 0."),
        ((METADATA_VERSION, 6, SAFE), "Local controller 1 only supports versions 7-27"),
        (("kraft.version", 0, SAFE), "Can't downgrade the version of this feature."),
        (("no.such.version", 0, UPGRADE), "Feature no.such.version not found."),
    ],
)  # fmt: skip
def test_refusals(world: ControllerWorld, update: tuple[str, int, int], reason: str) -> None:
    name, level, _ = update
    assert refusal(world, update) == f"Invalid update version {level} for feature {name}. {reason}"


def test_metadata_version_goes_back_only_where_nothing_is_lost(world: ControllerWorld) -> None:
    assert call(world, (METADATA_VERSION, 24, SAFE)).error_code == 0
    assert world.image.metadata_version == 24
    assert refusal(world, (METADATA_VERSION, 22, SAFE)) == (
        "Invalid metadata.version 22. Refusing to perform the requested downgrade because it might delete metadata "
        "information."
    )
    assert refusal(world, (METADATA_VERSION, 22, UNSAFE)) == (
        "Invalid metadata.version 22. Unsafe metadata downgrade is not supported in this version."
    )
    assert call(world, (METADATA_VERSION, 27, UPGRADE)).error_code == 0
    assert world.image.metadata_version == 27


def test_every_broker_must_support_the_level(world: ControllerWorld) -> None:
    world.add_broker(1)
    assert call(world, ("transaction.version", 0, SAFE)).error_code == 0
    request = registration(7)
    request.features = [
        feature
        if feature.name != GROUP_VERSION
        else BrokerRegistrationRequest.Feature(name=GROUP_VERSION, min_supported_version=1, max_supported_version=1)
        for feature in request.features
        if feature.name != "transaction.version"
    ]
    world.apply(world.register(request, session_alive=False))
    text = refusal(world, (GROUP_VERSION, 0, SAFE))
    assert text == f"Invalid update version 0 for feature {GROUP_VERSION}. Broker 7 only supports versions 1"
    text = refusal(world, ("transaction.version", 1, UPGRADE))
    assert text == "Invalid update version 1 for feature transaction.version. Broker 7 does not support this feature."


def test_every_voter_must_have_registered() -> None:
    world = ControllerWorld(
        {"controller.quorum.voters": "1@localhost:9093,2@localhost:9193", "controller.quorum.bootstrap.servers": ""}
    )
    text = refusal(world, (GROUP_VERSION, 0, SAFE))
    assert text.endswith("controller 2 has not registered, and may not support this feature")
    world.replay(own_registration(2, bytes(16), ())[0])
    assert call(world, (GROUP_VERSION, 0, SAFE)).error_code == 0


def test_eligible_leader_replicas_depend_on_metadata_version() -> None:
    world = ControllerWorld(features={ELR_VERSION: 0, METADATA_VERSION: 22})
    assert refusal(world, (ELR_VERSION, 1, UPGRADE)) == (
        f"Invalid update version 1 for feature {ELR_VERSION}. {ELR_VERSION} could not be set to 1 because it depends "
        "on metadata.version level 23"
    )
    assert call(world, (ELR_VERSION, 1, UPGRADE), (METADATA_VERSION, 23, UPGRADE)).error_code == 0
    assert (world.image.elr_enabled, world.image.metadata_version) == (True, 23)


def test_turning_elr_on_brings_min_isr_into_the_log() -> None:
    world = ControllerWorld({"min.insync.replicas": "2"})
    assert call(world, (ELR_VERSION, 0, SAFE)).error_code == 0
    world.add_broker(3)
    world.replay([(ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="", name=MIN_ISR, value=None), 0)])
    world.configure(BROKER_RESOURCE, "3", MIN_ISR, "1")
    assert call(world, (ELR_VERSION, 1, UPGRADE), validate_only=True).error_code == 0
    assert MIN_ISR not in world.image.config_of(BROKER_RESOURCE, "")
    assert call(world, (ELR_VERSION, 1, UPGRADE)).error_code == 0
    assert world.image.config_of(BROKER_RESOURCE, "")[MIN_ISR] == "2"
    assert MIN_ISR not in world.image.config_of(BROKER_RESOURCE, "3")


def test_the_level_of_the_quorum_itself(world: ControllerWorld) -> None:
    assert call(world, ("kraft.version", 1, UPGRADE), kraft_version=1).error_code == 0
    assert "kraft.version" not in world.image.features
    assert call(world, ("kraft.version", 1, UPGRADE), kraft_version=0).error_code == 0
    text = refusal(world, ("kraft.version", 1, UPGRADE), kraft_version=0, kraft_refusal="Not yet.")
    assert text == "Invalid update version 1 for feature kraft.version. Not yet."
    text = refusal(world, ("kraft.version", 0, SAFE), kraft_version=1)
    assert text.endswith("Can't downgrade the version of this feature.")
    world = ControllerWorld(features={METADATA_VERSION: 20})
    text = refusal(world, ("kraft.version", 1, UPGRADE), kraft_version=0)
    assert "kraft.version could not be set to 1 because it depends on metadata.version level 21" in text


def test_answers_of_older_versions_name_each_feature(world: ControllerWorld) -> None:
    response = call(world, (GROUP_VERSION, 1, UPGRADE), version=1)
    assert [(r.feature, r.error_code, r.error_message) for r in response.results] == [(GROUP_VERSION, 0, "NONE")]
    assert call(world, (GROUP_VERSION, 1, UPGRADE), version=2).results == []
    downgrade = UpdateFeaturesRequest.FeatureUpdateKey(feature=GROUP_VERSION, allow_downgrade=True)
    request = UpdateFeaturesRequest(feature_updates=[downgrade])
    assert world.apply(update_features(world.view(), request, 0, 1, "User:test")).error_code == 0
    assert GROUP_VERSION not in world.image.features


def test_the_table_of_metadata_versions() -> None:
    levels = [version.level for version in METADATA_VERSIONS]
    assert levels == list(range(7, 28))
    changed = [version.name for version in METADATA_VERSIONS if version.changes_metadata]
    assert changed == ["3.3-IV3", "3.4-IV0", "3.5-IV2", "3.6-IV1", "3.6-IV2", "3.7-IV0", "3.7-IV2", "4.0-IV1"]
    assert metadata_changes_between(22, 23)
    assert not metadata_changes_between(23, 27)
    assert [named.level for text in ("4.0", "3.9-IV0", "4.1") if (named := metadata_version_named(text))] == [
        25,
        21,
        27,
    ]
    assert metadata_version_named("4") is None


def test_what_a_new_cluster_begins_with() -> None:
    assert default_features(21) == ((METADATA_VERSION, 21),)
    assert default_features(22) == ((METADATA_VERSION, 22), (GROUP_VERSION, 1))
    assert default_features(25) == ((METADATA_VERSION, 25), (GROUP_VERSION, 1), ("transaction.version", 2))
    assert default_features(27) == DEFAULT_FEATURES


@pytest.mark.parametrize(("level", "configured"), [(0, []), (1, ["min.insync.replicas"])])
def test_the_min_isr_is_in_the_log_only_with_the_elr(level: int, configured: list[str]) -> None:
    formatted: list[Versioned] = [(FeatureLevelRecord(name=ELR_VERSION, feature_level=level), 0)]
    view = ControllerView(EMPTY_IMAGE, make_config(), SeededChance(), None)
    ((records, _),) = bootstrap_batches(view, formatted, in_transaction=False)
    assert [record.name for record, _ in records if isinstance(record, ConfigRecord)] == configured


@pytest.mark.parametrize("has_space", [True, False])
def test_kraft_version_is_not_raised_where_the_log_has_no_space(world: ControllerWorld, has_space: bool) -> None:
    """The quorum writes the record itself, before the records of the other features of the request."""
    changes = SimpleNamespace(upgrade_refusal=lambda: None, upgrade=lambda: has_space)
    proposed: list[Any] = []

    def propose(result: Any, reply: Any, failed: Any) -> None:
        proposed.append(result)
        reply(result.response)

    proposals = SimpleNamespace(view=world.view, propose=propose)
    raft = SimpleNamespace(changes=changes)
    controller: Any = SimpleNamespace(is_active=True, kraft_version=0, _raft=raft, proposals=proposals)
    update = UpdateFeaturesRequest.FeatureUpdateKey(feature="kraft.version", max_version_level=1, upgrade_type=UPGRADE)
    answers: list[UpdateFeaturesResponse] = []
    Controller.update_features(controller, UpdateFeaturesRequest(feature_updates=[update]), 2, answers.append)
    (answer,) = answers
    assert answer.error_code == (ErrorCode.NONE if has_space else ErrorCode.KAFKA_STORAGE_ERROR)
    assert bool(proposed) is has_space
