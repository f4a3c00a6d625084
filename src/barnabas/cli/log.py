"""`barnabas log`: shows, verifies and repairs the files of a log without a broker."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from barnabas.cli.log_check import repair, verify
from barnabas.cli.log_decoders import decode_group, decode_metadata, decode_share_group, decode_transaction
from barnabas.embedded.failures import Failure
from barnabas.server.disk import OsDisk
from barnabas.storage.offline.dump import (
    DEFAULT_MAX_MESSAGE_BYTES,
    DUMPED_SUFFIXES,
    UNLIMITED,
    Decoder,
    DumpedFile,
    DumpFailed,
    DumpOptions,
    decode_as_text,
    dump_files,
)
from barnabas.storage.offline.repair import REPAIR_DIR_PREFIX

app = typer.Typer(help="Show, verify and repair the files of a log without a broker", no_args_is_help=True)

_TEXT_DECODERS = frozenset(
    {
        "string",
        "kafka.serializer.StringDecoder",
        "org.apache.kafka.tools.api.StringDecoder",
    }
)


Paths = Annotated[list[str] | None, typer.Argument(metavar="FILE_OR_DIR...", help="Files, or directories with files")]
Files = Annotated[
    str | None,
    typer.Option("--files", metavar="A,B", help="Files to dump, separated by commas, as Kafka's tool takes them"),
]
DeepIteration = Annotated[bool, typer.Option("--deep-iteration", help="Print records too, not only batches")]
PrintDataLog = Annotated[bool, typer.Option("--print-data-log", help="Print keys and values too")]
IndexSanityCheck = Annotated[
    bool, typer.Option("--index-sanity-check", help="Only check whether Kafka would accept the index at startup")
]
VerifyIndexOnly = Annotated[
    bool, typer.Option("--verify-index-only", help="Verify index entries instead of printing them")
]
ClusterMetadata = Annotated[
    bool, typer.Option("--cluster-metadata-decoder", help="Decode records of __cluster_metadata")
]
Offsets = Annotated[bool, typer.Option("--offsets-decoder", help="Decode records of __consumer_offsets")]
TransactionLog = Annotated[
    bool, typer.Option("--transaction-log-decoder", help="Decode records of __transaction_state")
]
ShareGroupState = Annotated[
    bool, typer.Option("--share-group-state-decoder", help="Decode records of __share_group_state")
]
KeyDecoder = Annotated[
    str | None, typer.Option("--key-decoder-class", metavar="NAME", help="Decoder; only string is supported")
]
ValueDecoder = Annotated[
    str | None, typer.Option("--value-decoder-class", metavar="NAME", help="Decoder; only string is supported")
]
MaxMessageSize = Annotated[
    int,
    typer.Option(
        "--max-message-size", metavar="BYTES", help="Largest batch that an index entry can point to, in bytes"
    ),
]
MaxBytes = Annotated[int, typer.Option("--max-bytes", metavar="BYTES", help="Read at most this many bytes of each log")]
SkipRecordMetadata = Annotated[
    bool, typer.Option("--skip-record-metadata", help="Print only keys and values of records")
]


@app.command()
def dump(
    paths: Paths = None,
    files: Files = None,
    deep_iteration: DeepIteration = False,
    print_data_log: PrintDataLog = False,
    index_sanity_check: IndexSanityCheck = False,
    verify_index_only: VerifyIndexOnly = False,
    cluster_metadata: ClusterMetadata = False,
    offsets: Offsets = False,
    transaction_log: TransactionLog = False,
    share_group_state: ShareGroupState = False,
    key_decoder_class: KeyDecoder = None,
    value_decoder_class: ValueDecoder = None,
    max_message_size: MaxMessageSize = DEFAULT_MAX_MESSAGE_BYTES,
    max_bytes: MaxBytes = UNLIMITED,
    skip_record_metadata: SkipRecordMetadata = False,
) -> None:
    """Print segments, indexes and snapshots in the format of kafka-dump-log.sh"""
    wanted = [*(paths or []), *(files.split(",") if files else [])]
    if not wanted:
        raise Failure("no file given", hint="barnabas log dump FILE_OR_DIR...")
    decoder = _decoder(cluster_metadata, offsets, transaction_log, share_group_state)
    for name in (key_decoder_class, value_decoder_class):
        if name is not None and name not in _TEXT_DECODERS:
            raise Failure(f"decoder {name}: only string is supported, because Java classes cannot be loaded")
    options = DumpOptions(
        deep_iteration=deep_iteration,
        print_data_log=print_data_log
        or decoder is not decode_as_text
        or key_decoder_class is not None
        or value_decoder_class is not None,
        index_sanity_check=index_sanity_check,
        verify_index_only=verify_index_only,
        skip_record_metadata=skip_record_metadata,
        max_message_bytes=max_message_size,
        max_bytes=max_bytes,
        decoder=decoder,
    )
    for path in wanted:
        # Kafka's tool ignores a name without a known suffix, even of a missing file, and exits with 0.
        if Path(path).suffix not in DUMPED_SUFFIXES and not os.path.exists(path):
            raise Failure(f"{path}: no such file or directory")
    try:
        dump_files(OsDisk(), _dumped_files(wanted), options, _print, _complain)
    except DumpFailed as failed:
        _complain(f'Exception in thread "main" {failed}\n')
        raise typer.Exit(1) from None
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Failure(f"{error.filename or 'a file'}: {error.strerror}") from None


def _print(text: str) -> None:
    sys.stdout.write(text)


def _complain(text: str) -> None:
    # Lines of stdout and stderr keep their order on a terminal only if stdout is flushed first.
    sys.stdout.flush()
    sys.stderr.write(text)


def _decoder(cluster_metadata: bool, offsets: bool, transaction_log: bool, share_group_state: bool) -> Decoder:
    """Returns the first requested decoder, in the order in which Kafka's tool looks."""
    if offsets:
        return decode_group
    if transaction_log:
        return decode_transaction
    if cluster_metadata:
        return decode_metadata
    return decode_share_group if share_group_state else decode_as_text


def _dumped_files(paths: list[str]) -> Iterator[DumpedFile]:
    for path in paths:
        if os.path.isdir(path):
            found = sorted(
                str(file)
                for file in Path(path).rglob("*")
                if file.suffix in DUMPED_SUFFIXES and not file.parent.name.startswith(REPAIR_DIR_PREFIX)
            )
            yield from (DumpedFile(file, os.path.abspath(file)) for file in found)
        else:
            yield DumpedFile(path, os.path.join(os.getcwd(), path))


app.command()(verify)
app.command()(repair)
