"""pytest fixtures; `pytest_plugins = ["barnabas.testing.fixtures"]` in conftest.py loads them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.testing.controlled_cluster import Cluster


@pytest.fixture(scope="session")
def barnabas_cluster() -> Iterator[Cluster]:
    """Provides one broker for the whole run. Each test should use its own topics."""
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def fresh_barnabas_cluster() -> Iterator[Cluster]:
    """Provides a separate broker for one test, which can restart, crash or fill it."""
    with Cluster() as cluster:
        yield cluster
