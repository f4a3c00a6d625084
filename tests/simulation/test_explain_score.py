"""Some runs of the score of `explain`, with seeds that its rules were made with: from a fault to its name."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

from explain_cases import case
from explain_kinds import KINDS
from explain_metrics import is_found
from explain_truth import AFTER_10_S, AFTER_HEALING


@pytest.mark.parametrize("kind", ["slow-link", "power"])
def test_a_fault_is_named_when_all_is_well_again(kind: str) -> None:
    found = case(kind, 12)
    assert is_found(found.answered(AFTER_HEALING), 1), found
    assert is_found(found.answered(AFTER_10_S), 3), found


@pytest.mark.full
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_is_named_when_all_is_well_again(kind: str) -> None:
    found = case(kind, 11)
    assert is_found(found.answered(AFTER_HEALING), 1), found
