"""The quota that applies to a client: Kafka's order of precedence, and tables that follow changes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.support.controller_world import ControllerWorld

from barnabas.metadata.image import EMPTY_IMAGE, MetadataDelta
from barnabas.metadata.quota_entities import AddressQuotas, AppliedQuota, QuotaChanges, QuotaTable, all_quotas
from barnabas.metadata.security import QuotaEntity
from barnabas.protocol.messages.records_metadata import ClientQuotaRecord

KEY = "producer_byte_rate"
#: Kafka's order (KIP-55): the entity, and what clients share.
ORDER: list[tuple[QuotaEntity, tuple[str, str]]] = [
    ((("client-id", "c"), ("user", "u")), ("u", "c")),
    ((("client-id", None), ("user", "u")), ("u", "c")),
    ((("user", "u"),), ("u", "")),
    ((("client-id", "c"), ("user", None)), ("u", "c")),
    ((("client-id", None), ("user", None)), ("u", "c")),
    ((("user", None),), ("u", "")),
    ((("client-id", "c"),), ("", "c")),
    ((("client-id", None),), ("", "c")),
]


def test_the_most_specific_quota_applies() -> None:
    table = QuotaTable(KEY)
    assert table.find("u", "c") is None
    for place in reversed(range(len(ORDER))):
        entity, shared = ORDER[place]
        assert table.follow({entity: {KEY: float(place + 1)}})
        assert table.find("u", "c") == AppliedQuota(place + 1, *shared)
    for place, (entity, _) in enumerate(ORDER[:-1], 2):
        assert table.follow({entity: {KEY: None}})
        found = table.find("u", "c")
        assert found is not None
        assert found.limit == place


def test_quotas_of_other_keys_and_of_others_do_not_apply() -> None:
    table = QuotaTable(KEY)
    assert not table.follow({(("user", "u"),): {"consumer_byte_rate": 1.0}, (("ip", "::1"),): {KEY: 1.0}})
    assert not table
    table.follow({(("user", "u"),): {KEY: 1.0}, (("client-id", "c"),): {KEY: 2.0}})
    assert table.find("v", "d") is None
    assert table.find("v", "c") == AppliedQuota(2.0, "", "c")


def test_an_address_without_a_quota_has_the_default() -> None:
    quotas = AddressQuotas()
    changes: QuotaChanges = {
        (("ip", None),): {"connection_creation_rate": 5.0},
        (("ip", "::1"),): {"connection_creation_rate": 7.0},
    }
    assert quotas.follow(changes)
    assert (quotas.find("::1"), quotas.find("1.2.3.4")) == (7.0, 5.0)
    quotas.follow({(("ip", None),): {"connection_creation_rate": None}})
    assert (quotas.find("::1"), quotas.find("1.2.3.4")) == (7.0, None)


entities = st.sampled_from([entity for entity, _ in ORDER])
changes = st.lists(st.tuples(entities, st.sampled_from([KEY, "consumer_byte_rate"]), st.sampled_from([None, 1.0, 2.0])))


@given(changes, changes)
def test_a_table_that_follows_changes_is_one_built_from_the_image(
    first: list[tuple[QuotaEntity, str, float | None]], second: list[tuple[QuotaEntity, str, float | None]]
) -> None:
    """The table follows the deltas of records, and the delta between two images."""
    followed, by_snapshot = QuotaTable(KEY), QuotaTable(KEY)
    image = old = EMPTY_IMAGE
    for part in (first, second):
        delta = MetadataDelta(image)
        for entity, key, value in part:
            parts = [ClientQuotaRecord.EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
            delta.replay(ClientQuotaRecord(entity=parts, key=key, value=value or 0.0, remove=value is None))
        followed.follow(delta.changed_quotas)
        image = delta.apply(image.offset + 1, 1, 0)
        by_snapshot.follow(MetadataDelta.between(old, image).changed_quotas)
        old = image
        built = QuotaTable(KEY)
        built.follow(all_quotas(image.security.quotas))
        for client in [("u", "c"), ("u", "d"), ("v", "c"), ("v", "d")]:
            assert followed.find(*client) == built.find(*client) == by_snapshot.find(*client)


def test_a_world_without_quotas_has_no_changes() -> None:
    world = ControllerWorld()
    assert MetadataDelta.between(EMPTY_IMAGE, world.image).changed_quotas == {}
