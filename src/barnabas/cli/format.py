"""`barnabas format`, `random-uuid` and `info`: prepare and show log directories, as kafka-storage does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from barnabas.cli import output
from barnabas.cli.add_scram import scram_records
from barnabas.cli.options import Json, key_values
from barnabas.common.config import BrokerConfig, parse_properties
from barnabas.common.errors import ConfigError
from barnabas.common.types import uuid_from_text, uuid_to_text
from barnabas.controller.requests.result import Versioned
from barnabas.embedded.failures import Failure
from barnabas.embedded.settings import new_cluster_id
from barnabas.metadata.features import DEPENDENCIES, KRAFT_VERSION, SUPPORTED_FEATURES, default_features
from barnabas.metadata.image import METADATA_VERSION
from barnabas.metadata.versions import (
    LATEST_METADATA_VERSION,
    METADATA_VERSIONS,
    metadata_version_name,
    metadata_version_named,
)
from barnabas.protocol.messages.records_metadata import FeatureLevelRecord
from barnabas.raft.formatting import ensure_formatted, read_identity, standalone_voters
from barnabas.raft.voters import Voter, VoterEndpoint, VoterKey, VoterSet
from barnabas.server.host import ServerHost

File = Annotated[Path, typer.Argument(metavar="FILE", help="The node's server.properties file")]

InitialControllers = Annotated[
    str | None,
    typer.Option(
        "--initial-controllers",
        "-I",
        metavar="ID@HOST:PORT:DIRECTORY_ID,...",
        help="The first voters of a dynamic quorum; the same list on each of them",
    ),
]
NewCluster = Annotated[
    bool,
    typer.Option(
        "--new-cluster", help="State that the cluster has never run, so that this static voter votes from the beginning"
    ),
]
AddScram = Annotated[
    list[str] | None,
    typer.Option(
        "--add-scram",
        "-S",
        metavar="MECHANISM=[name=...,password=...]",
        help="A SCRAM credential to begin with; the same on each controller; repeatable",
    ),
]


def random_uuid() -> None:
    """Print a new id for a cluster or a directory"""
    print(new_cluster_id())


def format_directories(
    file: File,
    cluster_id: Annotated[
        str | None, typer.Option("--cluster-id", "-t", help="Id of the cluster; the same for all nodes")
    ] = None,
    standalone: Annotated[
        bool, typer.Option("--standalone", "-s", help="Begin a dynamic quorum with this node as its only voter")
    ] = False,
    initial_controllers: InitialControllers = None,
    no_initial_controllers: Annotated[
        bool, typer.Option("--no-initial-controllers", "-N", help="Let this node join an existing dynamic quorum")
    ] = False,
    feature: Annotated[
        list[str] | None, typer.Option("--feature", "-f", metavar="NAME=LEVEL", help="A feature level; repeatable")
    ] = None,
    release_version: Annotated[
        str | None,
        typer.Option("--release-version", "-r", help="Begin with the feature levels of this release, such as 4.0"),
    ] = None,
    add_scram: AddScram = None,
    new_cluster: NewCluster = False,
    ignore_formatted: Annotated[
        bool, typer.Option("--ignore-formatted", "-g", help="Leave directories that are already formatted")
    ] = False,
) -> None:
    """Format empty log directories before the first start of a node

    `barnabas broker` formats them itself if no option is needed. The files are those that `kafka-storage format`
    writes, so that Kafka can start on them too.
    """
    if cluster_id is None:
        raise Failure("format needs --cluster-id", "create one with: barnabas random-uuid")
    chosen = [bool(each) for each in (standalone, initial_controllers, no_initial_controllers)]
    if sum(chosen) > 1:
        raise Failure("give only one of --standalone, --initial-controllers and --no-initial-controllers")
    config = read_config(file)
    if new_cluster and not (config.is_controller and config.voters):
        raise Failure("--new-cluster is for the controllers that controller.quorum.voters names")
    check_quorum_flags(config, any(chosen), standalone)
    levels = feature_levels(release_version, feature or [], is_dynamic=any(chosen))
    records: list[Versioned] = [
        (FeatureLevelRecord(name=name, feature_level=level), 0)
        for name, level in levels.items()
        if name != KRAFT_VERSION
    ]
    records += scram_records(add_scram or [], levels[METADATA_VERSION])
    with machine() as host:
        fresh = unformatted(host, config, ignore_formatted=ignore_formatted)
        voters = VoterSet() if initial_controllers is None else parse_voters(config, initial_controllers)
        if standalone:
            voters = standalone_voters(host, config)
        ensure_formatted(
            host, config, cluster_id=cluster_id, bootstrap=records, initial_voters=voters, is_new_cluster=new_cluster
        )
    for directory in fresh:
        level = metadata_version_name(levels[METADATA_VERSION])
        print(f"Formatting {directory} with {METADATA_VERSION} {level}.")
    if not fresh:
        print("All of the log directories are already formatted.")


def info(file: File, as_json: Json = False) -> None:
    """Show the identity of a node's log directories

    The exit code is 1 if something is wrong with them.
    """
    config = read_config(file)
    problems: list[str] = []
    found: dict[str, dict[str, str | int | None]] = {}
    with machine() as host:
        for directory in directories_of(config):
            try:
                meta = read_identity(host, config, directory)
            except (ConfigError, OSError) as error:
                problems.append(str(error))
                continue
            if meta is None:
                problems.append(f"{directory} is not formatted.")
                continue
            found[directory] = {
                "version": meta.version,
                "node.id": meta.node_id,
                "cluster.id": meta.cluster_id,
                "directory.id": None if meta.directory_id is None else uuid_to_text(meta.directory_id),
            }
    if len({meta["cluster.id"] for meta in found.values()}) > 1:
        problems.append("Mismatched cluster IDs between storage directories.")
    if as_json:
        output.show_json({"directories": found, "problems": problems})
    else:
        for directory, shown in found.items():
            print(f"Found log directory {directory}: {', '.join(f'{key}={value}' for key, value in shown.items())}")
        for problem in problems:
            print(f"Found problem: {problem}")
    if problems:
        raise typer.Exit(1)


@contextmanager
def machine() -> Iterator[ServerHost]:
    """Returns the disk and the random source of this machine. A ConfigError becomes a Failure, because the user can
    correct it.
    """
    loop = asyncio.new_event_loop()
    host = ServerHost(loop)
    try:
        yield host
    except ConfigError as error:
        raise Failure(str(error)) from error
    finally:
        host.close()
        loop.close()


def read_config(file: Path) -> BrokerConfig:
    """Reads a configuration. Raises Failure if it cannot be read or is invalid."""
    try:
        properties = parse_properties(file.read_text(encoding="utf-8"))
        return BrokerConfig.of_directories(properties)
    except OSError as error:
        raise Failure(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise Failure(f"cannot read {file}: the file is not UTF-8") from error
    except ConfigError as error:
        raise Failure(f"{file}: {error}") from error


def directories_of(config: BrokerConfig) -> Sequence[str]:
    return list(dict.fromkeys((*config.log_dirs, config.metadata_log_dir)))


def unformatted(host: ServerHost, config: BrokerConfig, *, ignore_formatted: bool) -> list[str]:
    """Returns the directories to format. Raises Failure for one that is already formatted, unless that is to be
    ignored.
    """
    fresh = []
    for directory in directories_of(config):
        if read_identity(host, config, directory) is None:
            fresh.append(directory)
        elif not ignore_formatted:
            raise Failure(
                f"Log directory {directory} is already formatted. Use --ignore-formatted to ignore this directory and "
                "format the others."
            )
    return fresh


def check_quorum_flags(config: BrokerConfig, has_flag: bool, standalone: bool) -> None:
    if standalone and not config.is_controller:
        raise Failure("You can only use --standalone on a controller.")
    if has_flag and config.voters:
        raise Failure(
            "controller.quorum.voters defines a static quorum; the flags for initial controllers apply to a "
            "dynamic quorum",
            "set controller.quorum.bootstrap.servers instead, or omit the flag",
        )
    if config.is_controller and not config.voters and not has_flag:
        raise Failure(
            "Because controller.quorum.voters is not set on this controller, you must specify one of the following: "
            "--standalone, --initial-controllers, or --no-initial-controllers."
        )


def feature_levels(release: str | None, features: Sequence[str], *, is_dynamic: bool) -> dict[str, int]:
    """Returns the initial feature levels in the order of their records: `metadata.version` first, others by name."""
    requested = {name: _level(name, text) for name, text in key_values(features, "--feature").items()}
    if release is not None and METADATA_VERSION in requested:
        raise Failure("Use --release-version instead of --feature metadata.version=X to avoid ambiguity.")
    metadata_version = requested.pop(METADATA_VERSION, LATEST_METADATA_VERSION)
    if release is not None:
        named = metadata_version_named(release)
        if named is None:
            allowed = f"{METADATA_VERSIONS[0].name} to {METADATA_VERSIONS[-1].name}"
            raise Failure(f"unknown release version {release}", f"expected {allowed}, or a release such as 4.0")
        metadata_version = named.level
    kraft_version = requested.pop(KRAFT_VERSION, int(is_dynamic))
    if kraft_version != is_dynamic:
        word = "if" if is_dynamic else "unless"
        raise Failure(
            f"Cannot set kraft.version to {kraft_version} {word} one of the flags --standalone, --initial-controllers, "
            "or --no-initial-controllers is used."
        )
    others = dict(default_features(metadata_version)[1:]) | requested
    levels = {METADATA_VERSION: metadata_version}
    levels |= {name: level for name, level in sorted(others.items()) if level}
    _check_dependencies(levels)
    return levels


def _level(name: str, text: str) -> int:
    ranges = {feature.name: (feature.min_version, feature.max_version) for feature in SUPPORTED_FEATURES}
    if name not in ranges:
        raise Failure(f"Unsupported feature: {name}. Supported features are: {', '.join(sorted(ranges))}")
    low, high = ranges[name]
    if not text.isascii() or not text.isdigit() or not low <= int(text) <= high:
        raise Failure(f"--feature {name}={text}: levels of {name} are {low} to {high}")
    return int(text)


def _check_dependencies(levels: Mapping[str, int]) -> None:
    for name, level in levels.items():
        for needed, needed_level in DEPENDENCIES.get((name, level), ()):
            if levels.get(needed, 0) < needed_level:
                raise Failure(f"{name} could not be set to {level} because it depends on {needed} level {needed_level}")


def parse_voters(config: BrokerConfig, text: str) -> VoterSet:
    """Parses ID@HOST:PORT:DIRECTORY_ID,... Raises a Failure that names the invalid item."""
    voters: dict[int, Voter] = {}
    for item in text.split(","):
        number, _, rest = item.strip().partition("@")
        address, _, directory = rest.rpartition(":")
        host, _, port = address.rpartition(":")
        if not (number.isdigit() and host and port.isdigit() and len(directory) == 22):
            raise Failure(f"--initial-controllers {item}: expected ID@HOST:PORT:DIRECTORY_ID")
        if int(number) in voters:
            raise Failure(f"--initial-controllers names controller {number} twice")
        try:
            key = VoterKey(int(number), uuid_from_text(directory))
        except ValueError as error:
            raise Failure(f"--initial-controllers {item}: {directory} is not a directory id") from error
        endpoint = VoterEndpoint(config.controller_listener_names[0], host.strip("[]"), int(port))
        voters[key.node_id] = Voter(key, (endpoint,))
    return VoterSet(tuple(sorted(voters.values())))
