"""pytest fixtures; load them with `pytest_plugins = ["barnabas.testing.fixtures"]` in conftest.py."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.testing.cluster import Cluster


@pytest.fixture(scope="session")
def barnabas_cluster() -> Iterator[Cluster]:
    """One broker for the whole run. Give every test topics of its own."""
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def fresh_barnabas_cluster() -> Iterator[Cluster]:
    """A broker of its own for one test: to be restarted, crashed, filled."""
    with Cluster() as cluster:
        yield cluster
