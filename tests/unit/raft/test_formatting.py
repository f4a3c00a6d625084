"""Formatted directories are, byte for byte, those of `kafka-storage format` of Apache Kafka 4.1.0, except for random
ids, times and the checksums over them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.support.controller_world import make_config
from tests.support.metadata_logs import DATA
from tests.support.wired import PROPERTIES, WiredBroker

from barnabas.common.config import BrokerConfig
from barnabas.common.errors import ConfigError
from barnabas.common.types import uuid_from_text
from barnabas.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.protocol.messages.records_metadata import FeatureLevelRecord
from barnabas.raft.formatting import Formatted, default_bootstrap, ensure_formatted
from barnabas.raft.snapshots import decode_snapshot
from barnabas.records.batch import iter_headers
from barnabas.simulation.host import MemoryHost

CLUSTER_ID = "Z29sZGVuLWNsdXN0ZXItMQ"
KAFKAS = {
    "listeners": "PLAINTEXT://localhost:9572,CONTROLLER://localhost:9571",
    "controller.quorum.bootstrap.servers": "localhost:9571",
    "log.dirs": "/d",
}


def config_for(name: str) -> BrokerConfig:
    if name == "formatted-static":
        return make_config({**KAFKAS, "controller.quorum.voters": "1@localhost:9571"})
    if name == "formatted-broker-only":
        return make_config(
            {
                **KAFKAS,
                "node.id": "2",
                "process.roles": "broker",
                "listeners": "PLAINTEXT://localhost:9572",
                "advertised.listeners": "PLAINTEXT://localhost:9572",
            }
        )
    return make_config(KAFKAS)


def files_of(host: MemoryHost, root: str = "/d") -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name in host.disk.list_dir(root):
        path = f"{root}/{name}"
        if host.disk.is_dir(path):
            found |= {f"{name}/{inner}": data for inner, data in files_of(host, path).items()}
        else:
            found[name] = host.disk.read(path)
    return found


def without_chance(data: bytes, directory_id: bytes) -> bytes:
    """Returns a snapshot with zeros for checksums, times and the directory id."""
    masked = bytearray(data)
    for position, header in iter_headers(data):
        masked[position + 17 : position + 21] = bytes(4)
        masked[position + 27 : position + 43] = bytes(16)
        if header.is_control and header.base_offset == 0:
            # The time of the last record before the snapshot, in its header record.
            start = data.index(b"\x00\x00\x00\x03", position + 61) + 4 + 1 + 2
            masked[start : start + 8] = bytes(8)
    return bytes(masked).replace(directory_id, bytes(16))


@pytest.mark.parametrize("name", ["formatted-standalone", "formatted-static", "formatted-broker-only"])
def test_as_kafka_formats(name: str) -> None:
    host = MemoryHost()
    formatted = ensure_formatted(host, config_for(name), cluster_id=CLUSTER_ID)
    ours = files_of(host)
    kafkas = {str(path.relative_to(DATA / name)): path.read_bytes() for path in all_files(DATA / name)}
    assert sorted(ours) == sorted(kafkas)
    their_id = uuid_from_text(meta_of(kafkas["meta.properties"])["directory.id"])
    for file, data in ours.items():
        if file == "meta.properties":
            assert meta_of(data) == {
                **meta_of(kafkas[file]),
                "directory.id": meta_of(data)["directory.id"],
            }
            assert [line.split("=")[0] for line in data.decode().splitlines()[2:]] == [
                line.split("=")[0] for line in kafkas[file].decode().splitlines()[2:]
            ]
        else:
            expected = without_chance(kafkas[file], their_id)
            assert without_chance(data, formatted.metadata_directory_id) == expected, file


def all_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def meta_of(data: bytes) -> Mapping[str, str]:
    lines = [line for line in data.decode().splitlines() if not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def test_a_release_of_ones_own_choice_and_a_credential() -> None:
    """`--release-version 4.0 --add-scram`: the records come from outside, the bytes are Kafka's."""
    kafkas = (DATA / "formatted-scram-release-4.0" / "bootstrap.checkpoint").read_bytes()
    records = decode_snapshot(kafkas).records
    assert isinstance(records[0][0], FeatureLevelRecord)
    host = MemoryHost()
    formatted = ensure_formatted(host, make_config(KAFKAS), cluster_id=CLUSTER_ID, bootstrap=records)
    ours = host.disk.read("/d/bootstrap.checkpoint")
    assert without_chance(ours, formatted.metadata_directory_id) == without_chance(kafkas, bytes(16))


def test_a_directory_formatted_with_share_groups_is_served_and_they_are_not_offered() -> None:
    """The directory is as `kafka-storage format --feature share.version=1` leaves it; no share groups are served."""
    host = MemoryHost()
    bootstrap = [*default_bootstrap(), (FeatureLevelRecord(name="share.version", feature_level=1), 0)]
    ensure_formatted(host, BrokerConfig.from_properties(PROPERTIES), bootstrap=bootstrap)
    wired = WiredBroker(host)
    for topic in ("before", "after"):
        assert wired.broker.metadata.image.features["share.version"] == 1
        wired.create_topic(topic)
        answer = wired.connect().call(
            ApiVersionsRequest(client_software_name="t", client_software_version="1"), 4, ApiVersionsResponse
        )
        assert "share.version" not in {feature.name for feature in answer.supported_features}
        assert "share.version" in {feature.name for feature in answer.finalized_features}, (
            "so that it can be taken back"
        )
        wired.restart()


def test_a_formatted_directory_is_left_as_it_is() -> None:
    host = MemoryHost()
    first = ensure_formatted(host, make_config(KAFKAS))
    before = files_of(host)
    assert ensure_formatted(MemoryHost(9, disk=host.disk), make_config(KAFKAS)) == first
    assert files_of(host) == before


def test_several_directories_have_an_id_each_and_one_has_the_metadata() -> None:
    host = MemoryHost()
    formatted = ensure_formatted(host, make_config({**KAFKAS, "log.dirs": "/d/a,/d/b", "metadata.log.dir": "/d/m"}))
    assert len({*formatted.directory_ids, formatted.metadata_directory_id}) == 3
    assert sorted(files_of(host)) == [
        "a/bootstrap.checkpoint",
        "a/meta.properties",
        "b/bootstrap.checkpoint",
        "b/meta.properties",
        "m/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint",
        "m/bootstrap.checkpoint",
        "m/meta.properties",
    ]


def test_a_directory_that_comes_later_joins_the_cluster() -> None:
    host = MemoryHost()
    first = ensure_formatted(host, make_config(KAFKAS))
    second = ensure_formatted(host, make_config({**KAFKAS, "log.dirs": "/d,/e"}))
    assert second.cluster_id == first.cluster_id
    assert second.directory_ids[0] == first.directory_ids[0] == second.metadata_directory_id
    assert second.directory_ids[1] not in first.directory_ids


def test_a_format_that_was_cut_off_is_done_over() -> None:
    host = MemoryHost()
    first = ensure_formatted(host, make_config(KAFKAS))
    host.disk.remove("/d/meta.properties")
    second: Formatted = ensure_formatted(host, make_config(KAFKAS))
    assert second.cluster_id != first.cluster_id
    assert set(files_of(host)) == {
        "meta.properties",
        "bootstrap.checkpoint",
        "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint",
    }


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"node.id": "7"}, r"/d/meta.properties belongs to node 1, but node.id=7"),
        ({"log.dirs": "/e,/d"}, r"/e has no metadata log although"),
    ],
)
def test_a_directory_of_somebody_else_is_refused(properties: dict[str, str], message: str) -> None:
    host = MemoryHost()
    ensure_formatted(host, make_config(KAFKAS))
    with pytest.raises(ConfigError, match=message):
        ensure_formatted(host, make_config({**KAFKAS, **properties}))


def test_directories_of_two_clusters_are_refused() -> None:
    host = MemoryHost()
    ensure_formatted(host, make_config(KAFKAS))
    ensure_formatted(host, make_config({**KAFKAS, "log.dirs": "/e"}))
    with pytest.raises(ConfigError, match="belong to different clusters"):
        ensure_formatted(host, make_config({**KAFKAS, "log.dirs": "/d,/e"}))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"version=0\nbroker.id=1\ncluster.id=x\n", "ZooKeeper mode"),
        (b"version=9\n", "meta.properties: version 9"),
        (b"version=1\nnode.id=1\n", "cluster.id"),
    ],
)
def test_meta_properties_that_do_not_fit(data: bytes, message: str) -> None:
    host = MemoryHost()
    host.disk.make_dirs("/d")
    host.disk.write("/d/meta.properties", data)
    with pytest.raises(ConfigError, match=message):
        ensure_formatted(host, make_config(KAFKAS))


def test_a_metadata_log_without_its_owner_is_not_formatted_over() -> None:
    host = MemoryHost()
    host.disk.make_dirs("/d/__cluster_metadata-0")
    host.disk.write("/d/__cluster_metadata-0/00000000000000000000.log", b"")
    with pytest.raises(ConfigError, match=r"/d/meta\.properties is missing"):
        ensure_formatted(host, make_config(KAFKAS))
