"""`barnabas migrate-zookeeper`: a stopped cluster in ZooKeeper mode continues in KRaft mode, on its log directories."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from barnabas.cli import output
from barnabas.cli.format import machine
from barnabas.cli.zookeeper_tls import TlsConfigFile, tls_context
from barnabas.common.host import Host
from barnabas.embedded.failures import Failure
from barnabas.embedded.zookeeper_session import ZookeeperSession
from barnabas.metadata.versions import LATEST_METADATA_VERSION, metadata_version_name, metadata_version_named
from barnabas.raft.migrated_directories import DirectoryPlan, DirectoryState, migrate_directories, plan_directories
from barnabas.znodes.kraft_migration import KRaftMigration, kraft_migration, running_brokers
from barnabas.znodes.znode_json import ZnodeError
from barnabas.znodes.znode_tree import Znode, ZnodeTree
from barnabas.zookeeper.files.file_names import VERSION_FOLDER
from barnabas.zookeeper.files.txn_recovery import DamagedFiles, Folders, read_state

#: The dataDir of the server that `up` starts, in that server's folder.
_DATA_OF_UP: Final = "data"


def migrate_zookeeper(
    log_dirs: Annotated[str, typer.Option("--log-dirs", metavar="DIR,...", help="All log directories of one broker")],
    connect: Annotated[
        str | None,
        typer.Option("--connect", metavar="HOST:PORT,.../CHROOT", help="zookeeper.connect of the stopped brokers"),
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option("--data-dir", help="The dataDir of a stopped ZooKeeper server, or a copy of it")
    ] = None,
    data_log_dir: Annotated[
        Path | None, typer.Option("--data-log-dir", help="The dataLogDir of the ZooKeeper server, if it has one")
    ] = None,
    chroot: Annotated[str, typer.Option("--chroot", help="With --data-dir: the chroot in zookeeper.connect")] = "",
    node_id: Annotated[
        int | None,
        typer.Option("--node-id", help="The node id for empty directories, which become those of a new controller"),
    ] = None,
    release_version: Annotated[
        str | None,
        typer.Option("--release-version", "-r", help="Begin with the metadata.version of this release, such as 4.0"),
    ] = None,
    tls_file: TlsConfigFile = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and change nothing")] = False,
) -> None:
    """Turn a stopped cluster in ZooKeeper mode into a KRaft cluster

    Stop all brokers first. Run the command for each broker with its log directories, and for each new controller with
    an empty directory. Every run computes the same metadata from ZooKeeper while it runs (--connect), or from its files
    when it is stopped (--data-dir). Logs are not touched, and a second run changes nothing. Afterwards, start the nodes
    with a KRaft configuration: process.roles, node.id (the former broker.id) and controller.quorum.voters.
    """
    level = _metadata_version(release_version)
    directories = [str(Path(each.strip()).absolute()) for each in log_dirs.split(",") if each.strip()]
    if not directories:
        raise Failure("--log-dirs names no directory")
    with machine() as host:
        if connect is None:
            tree, source = _tree_of_files(host, data_dir, data_log_dir, chroot), f"{data_dir} below {chroot or '/'}"
        else:
            tree, source = _tree_of_server(connect, data_dir, chroot, tls_file), f"ZooKeeper at {connect}"
        migration = _migration(tree, level, source)
        plans = plan_directories(host, directories, migration.cluster_id, node_id)
        _show(migration, tree, plans, level)
        if migration.problems:
            raise Failure(
                f"{output.counted(len(migration.problems), 'znode')} would be lost; nothing was changed",
                "correct or delete them in ZooKeeper, and run this command again",
            )
        if dry_run:
            print("Nothing was changed (--dry-run).")
            return
        if connect is not None and running_brokers(tree):
            raise Failure(
                "brokers are registered; nothing was changed", "stop all brokers, and wait for their sessions"
            )
        migrate_directories(host, plans, migration.cluster_id, migration.records)


def _metadata_version(release: str | None) -> int:
    if release is None:
        return LATEST_METADATA_VERSION
    named = metadata_version_named(release)
    if named is None:
        raise Failure(f"unknown release version {release}", "expected a release such as 4.0")
    return named.level


def _migration(tree: ZnodeTree, level: int, source: str) -> KRaftMigration:
    try:
        return kraft_migration(tree, level)
    except ZnodeError as error:
        raise Failure(
            f"{source} has no Kafka cluster: {error.problem} ({error.path})",
            "give the path of zookeeper.connect, as --chroot or at the end of --connect",
        ) from error


def _tree_of_server(connect: str, data_dir: Path | None, chroot: str, tls_file: Path | None) -> ZnodeTree:
    if data_dir is not None or chroot:
        raise Failure("--connect contains the chroot, and cannot be combined with --data-dir or --chroot")
    znodes: dict[str, Znode] = {}
    waiting = ["/"]
    with ZookeeperSession(connect, tls=tls_context(tls_file)) as session:
        while waiting:
            found = session.read_all(waiting)
            znodes |= {path: Znode(read.data, read.stat.version, read.stat.czxid) for path, read in found.items()}
            below = session.children_of_all(found)
            waiting = [f"{path.rstrip('/')}/{name}" for path, names in below.items() for name in names]
    return ZnodeTree(znodes)


def _tree_of_files(host: Host, data_dir: Path | None, data_log_dir: Path | None, chroot: str) -> ZnodeTree:
    if data_dir is None:
        raise Failure("one of --connect and --data-dir is needed")
    data_dir, data_log_dir = data_dir.absolute(), (data_log_dir or data_dir).absolute()
    folders = Folders(str(data_dir / VERSION_FOLDER), str(data_log_dir / VERSION_FOLDER))
    if not host.disk.is_dir(folders.snapshots):
        below = data_dir / _DATA_OF_UP
        hint = f"{below} is one" if host.disk.is_dir(str(below / VERSION_FOLDER)) else None
        raise Failure(f"{data_dir} is not a data directory of ZooKeeper: it has no folder {VERSION_FOLDER}", hint)
    try:
        database = read_state(host.disk, folders, host.faults)
    except DamagedFiles as error:
        raise Failure(str(error)) from error
    root = "/" + chroot.strip("/") if chroot.strip("/") else ""
    znodes: dict[str, Znode] = {}
    for path, node in database.tree.walk(root or "/"):
        znodes[path[len(root) :] or "/"] = Znode(node.data, node.version, node.czxid)
    return ZnodeTree(znodes)


def _counts(migration: KRaftMigration) -> str:
    image = migration.image
    counts = {
        "topics": len(image.topics_by_name),
        "partitions": sum(len(topic.partitions) for topic in image.topics()),
        "configurations": sum(len(overrides) for overrides in image.configs.values()),
        "SCRAM credentials": len(image.security.scram),
        "entities with quotas": len(image.security.quotas),
        "ACLs": len(image.security.acls),
        "delegation tokens": len(image.security.tokens),
    }
    shown = ", ".join(f"{count} {name}" for name, count in counts.items())
    return f"{shown}; the next producer id is {max(image.next_producer_id, 0)}"


def _show(migration: KRaftMigration, tree: ZnodeTree, plans: list[DirectoryPlan], level: int) -> None:
    print(f"Cluster {migration.cluster_id} at metadata.version {metadata_version_name(level)}: {_counts(migration)}.")
    for name in migration.deleted_topics:
        print(f"Topic {name} is being deleted and is not migrated.")
    alive = running_brokers(tree)
    if alive:
        print(f"Brokers {', '.join(alive)} are registered in ZooKeeper: make sure that they do not run.")
    for problem in migration.problems:
        print(f"Problem: {problem}")
    for plan in plans:
        if plan.state is DirectoryState.KRAFT:
            print(f"{plan.directory}: already migrated, not changed.")
        else:
            print(f"{plan.directory} ({plan.state.value}): becomes a directory of KRaft node {plan.node_id}.")
