"""Nodes whose images of one offset differ are found; equal ones pass, however they were reached."""

from __future__ import annotations

from dataclasses import replace

import pytest
from immutables import Map

from barnabas.metadata import snapshot
from barnabas.metadata.image import ELR_VERSION, EMPTY_IMAGE, MetadataDelta
from barnabas.protocol.messages.records_metadata import FeatureLevelRecord
from barnabas.simulation.history import Violation
from barnabas.simulation.metadata_checkers import SameImages
from barnabas.simulation.worlds.replication_explorer import explore

IMAGE = replace(EMPTY_IMAGE, offset=7, epoch=2, features=Map({ELR_VERSION: 1}))


def test_equal_images_pass_and_another_feature_at_the_same_offset_is_found() -> None:
    checker = SameImages()
    checker.on_image("broker1", IMAGE)
    checker.on_image("broker2", replace(IMAGE, features=Map({ELR_VERSION: 1})))
    checker.on_image("broker2", replace(IMAGE, offset=8, features=Map()))
    assert checker.compared == 1
    with pytest.raises(Violation, match="two images of offset 7: features"):
        checker.on_image("broker3", replace(IMAGE, features=Map()))


def test_an_image_from_a_snapshot_is_compared_with_the_one_that_was_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The snapshot leaves out every feature but `metadata.version`: a node that starts from it does not know them."""
    often = {"metadata_log_max_record_bytes_between_snapshots": "1500"}
    whole = explore(2, **often)
    assert whole.problem is None, whole
    real = snapshot._feature_records
    monkeypatch.setattr(
        snapshot,
        "_feature_records",
        lambda image: (row for row in real(image) if getattr(row[0], "name", "") == "metadata.version"),
    )
    problems = (explore(seed, **often).problem for seed in range(2, 8))
    found = next((problem for problem in problems if problem is not None), None)
    assert found is not None
    assert "two images of offset" in found


def test_records_in_another_order_of_batches_give_the_same_image() -> None:
    checker = SameImages()
    for name in ("broker1", "broker2"):
        delta = MetadataDelta(EMPTY_IMAGE)
        delta.replay(FeatureLevelRecord(name=ELR_VERSION, feature_level=1))
        checker.on_image(name, delta.apply(3, 1, 5))
    assert checker.compared == 1
