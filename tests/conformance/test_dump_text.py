"""Barnabas's dump of every recorded directory equals, letter for letter, the output of Apache Kafka's own tool; only
secrets are hidden.
"""

from __future__ import annotations

import base64
import re
import struct

import pytest
from tests.support import golden

from barnabas.cli.log_decoders import decode_group, decode_metadata, decode_share_group, decode_transaction
from barnabas.metadata.frame import encode_record
from barnabas.protocol.messages.records_metadata import ConfigRecord, UserScramCredentialRecord
from barnabas.records.record import Record
from barnabas.simulation.disk import MemoryDisk
from barnabas.storage.offline.dump import DumpedFile, DumpFailed, DumpOptions, decode_as_text, dump_files

DECODERS = {
    "--cluster-metadata-decoder": decode_metadata,
    "--offsets-decoder": decode_group,
    "--transaction-log-decoder": decode_transaction,
    "--share-group-state-decoder": decode_share_group,
}
TEXTS = {path: data.decode() for path, data in golden.files().items() if path.endswith(".dump.txt")}


def test_recordings_are_many() -> None:
    assert len(TEXTS) == 76


ROOT = "/data/"
#: The secrets that Kafka's tool prints.
SECRETS = re.compile(r'("(?:storedKey|serverKey)":)"[^"]+"')


@pytest.mark.parametrize("path", TEXTS)
def test_dump_is_word_for_word_that_of_kafka(path: str) -> None:
    text = TEXTS[path]
    disk = disk_with(recorded_root(path))
    commands = re.findall(r"^\$ kafka-dump-log\.sh (.*)$", text, re.MULTILINE)
    assert commands
    shown = SECRETS.sub(r'\1"[hidden]"', text)
    assert "".join(run(disk, command) for command in commands).split("\n") == shown.split("\n")


def test_a_dump_of_the_metadata_log_has_no_secret() -> None:
    """Guard S8: dumps are copied into tickets. Kafka's tool prints passwords, and the keys of credentials."""
    messages = [
        (UserScramCredentialRecord(name="carol", mechanism=1, stored_key=b"marker", server_key=b"marker"), "carol"),
        (ConfigRecord(resource_type=4, resource_name="1", name="ssl.keystore.password", value="marker"), "keystore"),
        (ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="77"), "77"),
    ]
    for place, (message, shown) in enumerate(messages):
        _, text = decode_metadata(Record(place, 0, None, encode_record(message, 0)))
        assert text is not None
        assert shown in text
        assert "marker" not in text
        assert base64.b64encode(b"marker").decode() not in text
        assert ("[hidden]" in text) == (place < 2)


def recorded_root(path: str) -> str:
    """Returns the recorded directory that a dump belongs to."""
    folder, _, name = path.rpartition("/")
    root = folder.removesuffix(".dumps")
    node = re.match(r"(n\d)-", name)
    return f"{root}/{node[1]}" if node else root


def disk_with(root: str) -> MemoryDisk:
    """Returns a disk with the directory's files under their own names, as if the tool ran inside it."""
    disk = MemoryDisk()
    for path, data in golden.files().items():
        if path.startswith(root + "/"):
            name = path.removeprefix(root + "/")
            if "/" in name:
                disk.make_dirs(name.rpartition("/")[0])
            disk.write(name, data)
    for folder in (name for name in disk.list_dir("") if name.endswith("-delete")):
        # The files that still had their full size when the broker stopped, zeros included, are too large to be kept.
        disk.write(f"{folder}/00000000000000000000.index", bytes(4096))
        disk.write(f"{folder}/00000000000000000000.timeindex", struct.pack(">qi", 1700000000002, 2) + bytes(4080))
    return disk


def run(disk: MemoryDisk, command: str) -> str:
    """Returns the output of a run of the tool, stdout and stderr, in the recordings' form."""
    options, files = command.split("--files ")
    decoder = next((DECODERS[word] for word in options.split() if word in DECODERS), decode_as_text)
    chosen = DumpOptions(
        deep_iteration="--deep-iteration" in options,
        print_data_log="--print-data-log" in options or decoder is not decode_as_text,
        index_sanity_check="--index-sanity-check" in options,
        decoder=decoder,
    )
    lines = [f"$ kafka-dump-log.sh {command}\n"]
    try:
        dump_files(
            disk, [DumpedFile(name, ROOT + name) for name in files.split(",")], chosen, lines.append, lines.append
        )
    except DumpFailed as failed:
        lines.append(f"EXCEPTION {failed}\n")
    return "".join(lines).replace(ROOT, "")
