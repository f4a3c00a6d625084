"""`barnabas format`, `info` and `random-uuid`: files as Kafka's tool writes them, and mistakes that change nothing."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from tests.support.metadata_logs import DATA

from barnabas.cli.app import run
from barnabas.common.types import uuid_from_text
from barnabas.protocol.messages.records_metadata import UserScramCredentialRecord
from barnabas.protocol.sasl.scram_server import keys_of, salted_password
from barnabas.raft.snapshots import decode_snapshot
from barnabas.records.batch import iter_headers

CLUSTER_ID = "Z29sZGVuLWNsdXN0ZXItMQ"
DIRECTORIES = ["AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg", "AAAAAAAAAAAAAAAAAAAAAw"]
FIRST = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"


def properties(folder: Path, node_id: int = 1, **more: str) -> str:
    settings = {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "listeners": "PLAINTEXT://localhost:9572,CONTROLLER://localhost:9571",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "localhost:9571",
        "log.dirs": str(folder / "data"),
        **{key.replace("_", "."): value for key, value in more.items()},
    }
    file = folder / "server.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items() if value))
    return str(file)


def voters(folder: Path) -> list[tuple[int, bytes, str, int]]:
    record = decode_snapshot((folder / "data" / FIRST).read_bytes()).voters
    assert record is not None
    return [(v.key.node_id, v.key.directory_id, v.endpoints[0].host, v.endpoints[0].port) for v in record]


def levels(folder: Path) -> list[tuple[str, int]]:
    records = decode_snapshot((folder / "data" / "bootstrap.checkpoint").read_bytes()).records
    return [(record.name, record.feature_level) for record, _ in records]  # type: ignore[attr-defined]


def refused(capsys: pytest.CaptureFixture[str], folder: Path, *arguments: str) -> str:
    assert run(["format", *arguments]) == 1
    assert not (folder / "data").exists()
    return " ".join(capsys.readouterr().err.split())


def test_a_log_in_without_its_settings_does_not_keep_directories_from_being_formatted(tmp_path: Path) -> None:
    """Kafka's kafka-storage reads no JAAS file, which can come with the start of the node."""
    protocols = "CONTROLLER:PLAINTEXT,PLAINTEXT:SASL_PLAINTEXT"
    file = properties(tmp_path, listener_security_protocol_map=protocols, barnabas_jaas_config_file="/nowhere/jaas")
    assert run(["format", file, "--cluster-id", CLUSTER_ID, "--standalone"]) == 0
    assert run(["info", file]) == 0


def test_standalone_makes_the_files_that_kafka_makes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["format", properties(tmp_path), "--cluster-id", CLUSTER_ID, "--standalone"]) == 0
    assert capsys.readouterr().out == f"Formatting {tmp_path}/data with metadata.version 4.1-IV1.\n"
    kafkas = DATA / "formatted-standalone"
    names = sorted(str(path.relative_to(kafkas)) for path in kafkas.rglob("*") if path.is_file())
    data = tmp_path / "data"
    assert sorted(str(path.relative_to(data)) for path in data.rglob("*") if path.is_file()) == names
    for name in (FIRST, "bootstrap.checkpoint"):
        ours, theirs = (data / name).read_bytes(), (kafkas / name).read_bytes()
        assert [h.size_bytes for _, h in iter_headers(ours)] == [h.size_bytes for _, h in iter_headers(theirs)]
        assert decode_snapshot(ours).records == decode_snapshot(theirs).records
    ((node_id, directory_id, host, port),) = voters(tmp_path)
    assert (node_id, host, port) == (1, "localhost", 9571)
    assert run(["info", properties(tmp_path), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["problems"] == []
    assert shown["directories"][str(data)]["cluster.id"] == CLUSTER_ID
    assert uuid_from_text(shown["directories"][str(data)]["directory.id"]) == directory_id


def test_every_first_voter_writes_the_same_quorum(tmp_path: Path) -> None:
    quorum = ",".join(f"{n}@host{n}:90{n}:{DIRECTORIES[n - 1]}" for n in (1, 2, 3))
    contents = []
    for node_id in (1, 2, 3):
        folder = tmp_path / str(node_id)
        folder.mkdir()
        file = properties(folder, node_id)
        assert run(["format", file, "-t", CLUSTER_ID, "--initial-controllers", quorum]) == 0
        assert f"directory.id={DIRECTORIES[node_id - 1]}" in (folder / "data" / "meta.properties").read_text()
        contents.append(voters(folder))
    assert contents[0] == [(n, uuid_from_text(DIRECTORIES[n - 1]), f"host{n}", 900 + n) for n in (1, 2, 3)]
    assert contents[0] == contents[1] == contents[2]


def test_a_node_that_joins_later_has_no_voters(tmp_path: Path) -> None:
    assert run(["format", properties(tmp_path), "-t", CLUSTER_ID, "--no-initial-controllers"]) == 0
    assert not (tmp_path / "data" / FIRST).exists()
    assert (tmp_path / "data" / "meta.properties").exists()


def test_features_of_a_release_and_of_ones_own_choice(tmp_path: Path) -> None:
    file = properties(tmp_path)
    choice = ("--release-version", "4.0", "--feature", "kraft.version=1", "--feature", "transaction.version=0")
    assert run(["format", file, "-t", CLUSTER_ID, "-s", *choice]) == 0
    assert levels(tmp_path) == [("metadata.version", 25), ("group.version", 1)]


def test_what_is_formatted_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = properties(tmp_path)
    assert run(["format", file, "-t", CLUSTER_ID, "-s"]) == 0
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert run(["format", file, "-t", CLUSTER_ID, "-s"]) == 1
    assert "is already formatted" in capsys.readouterr().err
    assert run(["format", file, "-t", CLUSTER_ID, "-s", "--ignore-formatted"]) == 0
    assert "All of the log directories are already formatted." in capsys.readouterr().out
    assert run(["format", file, "-t", DIRECTORIES[0], "-s", "--ignore-formatted"]) == 1
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_mistakes_are_named_and_nothing_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = properties(tmp_path)
    given = (file, "-t", CLUSTER_ID)
    assert "--cluster-id" in refused(capsys, tmp_path, file, "-s")
    assert "you must specify one of the following" in refused(capsys, tmp_path, *given)
    assert "only one of" in refused(capsys, tmp_path, *given, "-s", "-N")
    for feature in ("x", "share.version"):
        text = f"Unsupported feature: {feature}. Supported"
        assert text in refused(capsys, tmp_path, *given, "-s", "-f", f"{feature}=1")
    assert "levels of group.version are 0 to 1" in refused(capsys, tmp_path, *given, "-s", "-f", "group.version=2")
    assert "Cannot set kraft.version to 0 if" in refused(capsys, tmp_path, *given, "-s", "-f", "kraft.version=0")
    assert "unknown release version 5.0" in refused(capsys, tmp_path, *given, "-s", "-r", "5.0")
    both = ("-r", "4.0", "-f", "metadata.version=25")
    assert "to avoid ambiguity" in refused(capsys, tmp_path, *given, "-s", *both)
    elr = ("-r", "3.9", "-f", "eligible.leader.replicas.version=1")
    assert "because it depends on metadata.version level 23" in refused(capsys, tmp_path, *given, "-s", *elr)
    for wrong in ("1@localhost", "x@h:1:" + DIRECTORIES[0], "1@h:1:short", f"1@h:1:{'!' * 22}"):
        assert "--initial-controllers" in refused(capsys, tmp_path, *given, "-I", wrong)
    twice = ",".join([f"1@h:1:{DIRECTORIES[0]}"] * 2)
    assert "names controller 1 twice" in refused(capsys, tmp_path, *given, "-I", twice)
    static = properties(tmp_path, controller_quorum_voters="1@localhost:9571", controller_quorum_bootstrap_servers="")
    assert "controller.quorum.voters defines" in refused(capsys, tmp_path, static, "-t", CLUSTER_ID, "-s")
    broker = properties(
        tmp_path, 2, process_roles="broker", listeners="PLAINTEXT://localhost:1", advertised_listeners=""
    )
    assert "only use --standalone on a controller" in refused(capsys, tmp_path, broker, "-t", CLUSTER_ID, "-s")
    assert "cannot read" in refused(capsys, tmp_path, str(tmp_path / "none"), "-t", CLUSTER_ID)


def test_info_names_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = properties(tmp_path)
    assert run(["info", file]) == 1
    assert f"{tmp_path}/data is not formatted." in capsys.readouterr().out
    assert run(["format", file, "-t", CLUSTER_ID, "-s"]) == 0
    assert run(["info", properties(tmp_path, 2)]) == 1
    assert "belongs to node 1" in capsys.readouterr().out


def test_a_random_uuid(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["random-uuid"]) == 0
    text = capsys.readouterr().out.strip()
    assert len(uuid_from_text(text)) == 16
    assert not text.startswith("-")


ALICE = "SCRAM-SHA-256=[name=alice,password=alice-marker]"


def credentials(folder: Path) -> list[UserScramCredentialRecord]:
    records = decode_snapshot((folder / "data" / "bootstrap.checkpoint").read_bytes()).records
    return [record for record, _ in records if isinstance(record, UserScramCredentialRecord)]


def test_users_of_scram(tmp_path: Path) -> None:
    """The second user is the example of RFC 7677, whose keys are known."""
    salt = "W22ZaJ0SNY7soEsUEjb6gQ=="
    example = f'SCRAM-SHA-256=[name="user",salt="{salt}",password=pencil,iterations=4096]'
    arguments = ("--cluster-id", CLUSTER_ID, "--standalone", "-S", ALICE, "--add-scram", example)
    assert run(["format", properties(tmp_path), *arguments]) == 0
    alice, user = credentials(tmp_path)
    assert (alice.name, alice.mechanism, alice.iterations, len(alice.salt)) == ("alice", 1, 4_096, 26)
    assert base64.b64encode(user.stored_key).decode() == "WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY="
    assert base64.b64encode(user.server_key).decode() == "wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="


def test_a_salted_password(tmp_path: Path) -> None:
    salted = base64.b64encode(salted_password("sha512", "pencil", b"salt", 8_192)).decode()
    salt = base64.b64encode(b"salt").decode()
    option = f"SCRAM-SHA-512=[name=a,iterations=8192,salt={salt},saltedpassword={salted}]"
    assert run(["format", properties(tmp_path), "--cluster-id", CLUSTER_ID, "-s", "-S", option]) == 0
    (record,) = credentials(tmp_path)
    assert (record.stored_key, record.server_key) == keys_of("sha512", base64.b64decode(salted))


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("marker", "Failed to find equals sign in SCRAM argument"),
        ("SCRAM-SHA-1=[name=a,password=marker]", "The add-scram mechanism SCRAM-SHA-1 is not supported."),
        ("SCRAM-SHA-256=name=a,password=marker]", "Expected configuration string to start with ["),
        ("SCRAM-SHA-256=[name=a,password=marker", "Expected configuration string to end with ]"),
        ("SCRAM-SHA-256=[password=marker]", "You must supply 'name' to add-scram"),
        ("SCRAM-SHA-256=[name=a]", "You must supply one of 'password' or 'saltedpassword' to add-scram"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=marker]", "You must supply 'salt' with 'saltedpassword' to add-scram"),
        ("SCRAM-SHA-256=[name=a,password=marker,iterations=4095]", "must be >= 4096 for add-scram using SCRAM_SHA_256"),
        ("SCRAM-SHA-512=[name=a,password=marker,iterations=16385]", "must be <= 16384 for add-scram using SCRAM_SHA"),
        ("SCRAM-SHA-256=[name=a,password=marker,iterations=many]", "Failed to parse iterations count: many"),
        ("SCRAM-SHA-256=[name=a,password=marker,salt=!]", "Failed to decode given salt"),
        ("SCRAM-SHA-256=[name=a,password=marker,colour=blue]", "Unknown SCRAM configurations: colour"),
        ("SCRAM-SHA-256=[name=a,marker]", "No equals sign found in a SCRAM component"),
    ],
)  # fmt: skip
def test_wrong_users_of_scram(tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, said: str) -> None:
    arguments = (properties(tmp_path), "--cluster-id", CLUSTER_ID, "--standalone", "--add-scram", option)
    text = refused(capsys, tmp_path, *arguments)
    assert said in text
    assert "marker" not in text


def test_old_metadata_have_no_users(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = (properties(tmp_path), "-t", CLUSTER_ID, "-s", "-r", "3.5-IV1", "-S", ALICE)
    assert "SCRAM is only supported in metadata.version 3.5-IV2 or later." in refused(capsys, tmp_path, *arguments)


def test_a_voter_of_a_new_cluster_has_the_checkpoint_of_an_empty_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quorum = "1@localhost:9571,2@localhost:9573"
    file = properties(tmp_path, controller_quorum_bootstrap_servers="", controller_quorum_voters=quorum)
    assert run(["format", file, "--cluster-id", CLUSTER_ID, "--new-cluster"]) == 0
    text = (tmp_path / "data" / "metadata-log-checkpoint").read_text()
    assert text.splitlines()[0].split()[1:3] == ["1", CLUSTER_ID]
    capsys.readouterr()
    assert run(["format", file, "--cluster-id", CLUSTER_ID, "--new-cluster"]) == 1
    assert "is already formatted" in capsys.readouterr().err


def test_only_static_voters_can_belong_to_a_new_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--standalone"], ["--no-initial-controllers"]):
        file = properties(tmp_path)
        told = refused(capsys, tmp_path, file, "--cluster-id", CLUSTER_ID, "--new-cluster", *arguments)
        assert "--new-cluster is for the controllers that controller.quorum.voters names" in told
