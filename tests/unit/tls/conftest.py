"""Stores for the tests of this folder."""

from __future__ import annotations

import pytest
from tests.support.tls_stores import Stores


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    made = Stores(tmp_path_factory.mktemp("stores"))
    made.pem("broker")
    return made
