"""`up` tells the brokers of a cluster that has never run that it is new, and later ones nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from barnabas.embedded.cluster import EmbeddedCluster


def options_of_a_start(directory: Path, patch: pytest.MonkeyPatch) -> list[str]:
    """Returns the options for the first broker; the start ends there."""
    given: list[list[str]] = []

    def spawn(self: EmbeddedCluster, file: Path, formatting: Sequence[str]) -> tuple[int, int | None]:
        given.append(list(formatting))
        raise KeyboardInterrupt

    with patch.context() as patched:
        patched.setattr(EmbeddedCluster, "_spawn", spawn)
        with pytest.raises(KeyboardInterrupt):
            EmbeddedCluster(directory).start(brokers=2)
    (options,) = given
    return options


def test_only_a_cluster_without_an_id_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = options_of_a_start(tmp_path, monkeypatch)
    assert first[0] == "--cluster-id"
    assert first[2:] == ["--new-cluster"]
    data = tmp_path / "broker-2" / "data"
    data.mkdir(parents=True)
    (data / "meta.properties").write_text("version=1\ncluster.id=Z29sZGVuLWNsdXN0ZXItMQ\n")
    assert options_of_a_start(tmp_path, monkeypatch) == ["--cluster-id", "Z29sZGVuLWNsdXN0ZXItMQ"]
