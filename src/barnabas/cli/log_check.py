"""`barnabas log verify` and `barnabas log repair`: check and repair whole data directories, partition by partition."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from barnabas.cli import output
from barnabas.cli.options import Json
from barnabas.common.host import Lock
from barnabas.common.types import TopicPartition
from barnabas.embedded.failures import Failure
from barnabas.embedded.nodes import STATE_FILE
from barnabas.raft.metadata_log import metadata_log_directory
from barnabas.raft.repair import MetadataRepair, chain_of, is_metadata_log
from barnabas.server.disk import OsDisk
from barnabas.storage.checkpoints import LOCK_FILE, META_PROPERTIES, parse_dir_name
from barnabas.storage.file_faults import FileFault
from barnabas.storage.offline.repair import REPAIR_DIR_PREFIX, Repair, apply_directory, is_repairable, plan_directory
from barnabas.storage.offline.verify import (
    OFFSET_CHECKPOINTS,
    PartitionReport,
    PartitionVerification,
    RecoveryPointFiles,
    check_directory,
    partition_dirs,
    verify_partition,
)

Directories = Annotated[
    list[str],
    typer.Argument(metavar="DIR...", help="Data directories (log.dirs), or directories of single partitions"),
]
Jobs = Annotated[
    int | None, typer.Option("--jobs", "-j", min=1, help="Number of processes; default: one per processor")
]
Shallow = Annotated[
    bool,
    typer.Option(
        "--shallow/--records", help="Check only checksums and headers, or also decode the batches (the default)"
    ),
]


@dataclass(slots=True)
class _Target:
    """A data directory and those of its partitions that are to be checked."""

    data_dir: str
    partitions: list[str] = field(default_factory=list)
    is_whole: bool = True
    faults: list[FileFault] = field(default_factory=list)
    notes: list[FileFault] = field(default_factory=list)
    reports: dict[TopicPartition, PartitionReport] = field(default_factory=dict)
    #: Files whose repair needs the metadata log.
    repaired: set[str] = field(default_factory=set)


def _targets(paths: Sequence[str]) -> list[_Target]:
    found: dict[str, _Target] = {}
    disk = OsDisk()
    for path in (part for named in paths for part in _parts(os.path.abspath(named))):
        if not os.path.isdir(path):
            raise Failure(f"{path} is not a directory")
        if _is_data_dir(path):
            target = found.setdefault(path, _Target(path))
            target.is_whole = True
            target.partitions, target.notes = partition_dirs(disk, path)
        elif parse_dir_name(os.path.basename(path)) is not None:
            target = found.setdefault(os.path.dirname(path), _Target(os.path.dirname(path), is_whole=False))
            if path not in target.partitions:
                target.partitions.append(path)
        else:
            raise Failure(
                f"{path} contains no logs", hint="give a directory of log.dirs, or the directory of a partition in it"
            )
    return list(found.values())


def _parts(path: str) -> list[str]:
    """Returns the data directories of the brokers if the path is the directory of an embedded cluster, else the path
    itself. The name of a directory `broker-1` looks like that of a partition.
    """
    if not os.path.isfile(os.path.join(path, STATE_FILE)):
        return [path]
    return [os.path.join(path, name, "data") for name in sorted(os.listdir(path)) if name.startswith("broker-")]


def _is_data_dir(path: str) -> bool:
    names = os.listdir(path)
    if META_PROPERTIES in names or not frozenset(OFFSET_CHECKPOINTS).isdisjoint(names):
        return True
    inside = (parse_dir_name(name) for name in names if os.path.isdir(os.path.join(path, name)))
    return any(parsed is not None for parsed in inside)


def verify(directories: Directories, jobs: Jobs = None, shallow: Shallow = False, as_json: Json = False) -> None:
    """Check each file of data directories against the others

    Nothing is changed. The exit code is 1 if a file is faulty. In the directory of a running broker, the end of a log
    can look torn while it is being written.
    """
    targets = _targets(directories)
    started = time.monotonic()
    _verify_all(targets, jobs, with_records=not shallow)
    elapsed_s = time.monotonic() - started
    if as_json:
        output.show_json(_as_json(targets))
    else:
        for is_note, fault in _found(targets):
            print(f"{'note' if is_note else fault.kind}: {fault.text}")
        print(_summary(targets, elapsed_s))
    if any(not is_note for is_note, _ in _found(targets)):
        raise typer.Exit(1)


def repair(
    directories: Directories,
    yes: Annotated[bool, typer.Option("--yes", help="Apply the repair; without it, only show the repair")] = False,
    jobs: Jobs = None,
) -> None:
    """Cut logs at their first damage and rebuild broken indexes

    What is cut off is kept in repair-* folders. The broker must be stopped.
    """
    targets = _targets(directories)
    locks: list[Lock] = []
    try:
        for target in targets:
            locks += _lock(target.data_dir, make=yes)
        _verify_all(targets, jobs, with_records=True)
        # The name does not end with a number, so it cannot be the directory of a partition.
        kept_name = REPAIR_DIR_PREFIX + time.strftime("%Y%m%dT%H%M%S")
        planned = [step for target in targets for step in _repair(target, kept_name, apply=yes)]
    finally:
        for lock in locks:
            lock.release()
    if not planned:
        print("nothing to repair")
    elif not yes:
        output.say("nothing was changed; add --yes to apply the repair")
    left = [fault for target in targets for fault in _unrepaired(target)]
    for fault in left:
        print(f"not repaired: {fault.kind}: {fault.text}")
    if left:
        raise typer.Exit(1)


def _lock(data_dir: str, *, make: bool) -> list[Lock]:
    """Locks the directory against brokers. A dry run creates no lock file: if there is none, no broker is running."""
    path = os.path.join(data_dir, LOCK_FILE)
    if not make and not os.path.exists(path):
        return []
    try:
        return [OsDisk().lock(path)]
    except BlockingIOError:
        raise Failure(f"{data_dir} is in use: its {LOCK_FILE} is locked", hint="stop the broker first") from None


# Verifying


def _verify_one(directory: str, with_records: bool, epochs_below: int) -> PartitionReport:
    disk = OsDisk()
    follows = chain_of(disk, directory) if is_metadata_log(directory) else None
    return verify_partition(disk, directory, with_records=with_records, epochs_below=epochs_below, follows=follows)


def _verify_all(targets: Sequence[_Target], jobs: int | None, *, with_records: bool) -> None:
    places = {path: target for target in targets for path in target.partitions}
    # The largest log first, so that no process works alone on it at the end.
    paths = sorted(places, key=_size_bytes, reverse=True)
    points = {target.data_dir: RecoveryPointFiles(OsDisk(), target.data_dir) for target in targets}
    requested = [(path, with_records, points[places[path].data_dir].of(path)) for path in paths]
    processes = min(jobs or os.cpu_count() or 1, len(paths))
    step = _progress_line(len(paths))
    with output.progress("partitions") as bar:
        task = bar.add_task("verifying", total=len(paths), rate="")
        for report in _reports(requested, processes):
            parsed = parse_dir_name(os.path.basename(report.directory))
            assert parsed is not None, "only directories of partitions can be verified"
            places[report.directory].reports[parsed.topic_partition] = report
            bar.advance(task)
            step()
    for target in targets:
        target.reports = dict(sorted(target.reports.items()))
        if target.is_whole:
            target.faults = check_directory(OsDisk(), target.data_dir, target.reports)
            target.faults += MetadataRepair(OsDisk(), target.data_dir).faults


def _reports(requested: Sequence[tuple[str, bool, int]], processes: int) -> Iterator[PartitionReport]:
    """Yields the report of each requested partition as `_verify_one` completes it, in several processes if there are
    more than one.
    """
    if processes <= 1:
        for one in requested:
            yield _verify_one(*one)
        return
    with ProcessPoolExecutor(processes) as pool:
        for done in as_completed([pool.submit(_verify_one, *one) for one in requested]):
            yield done.result()


def _size_bytes(directory: str) -> int:
    return sum(file.stat().st_size for file in Path(directory).glob("*.log"))


def _progress_line(total: int) -> Callable[[], None]:
    """Returns a function to call after each partition: without a terminal, it prints a line after each tenth of the
    work.
    """
    done = 0

    def step() -> None:
        nonlocal done
        done += 1
        if not output.stderr.is_terminal and total >= 10 and done * 10 // total != (done - 1) * 10 // total:
            output.say(f"verified {done} of {total} partitions")

    return step


def _found(targets: Sequence[_Target]) -> Iterator[tuple[bool, FileFault]]:
    """Yields all faults and notes of the checked directories as (whether it is a note, fault), in the order of the
    files.
    """
    for target in targets:
        for report in target.reports.values():
            yield from ((False, fault) for fault in report.faults)
            yield from ((True, note) for note in report.notes)
        yield from ((False, fault) for fault in target.faults)
        yield from ((True, note) for note in target.notes)


def _summary(targets: Sequence[_Target], elapsed_s: float) -> str:
    reports = [report for target in targets for report in target.reports.values()]
    faults = sum(not is_note for is_note, _ in _found(targets))
    size_bytes = sum(report.size_bytes for report in reports)
    return (
        f"{output.counted(len(reports), 'partition')}, "
        f"{output.counted(sum(report.segments for report in reports), 'segment')}, "
        f"{output.counted(sum(report.batches for report in reports), 'batch').replace('batchs', 'batches')}, "
        f"{output.size(size_bytes)} in {elapsed_s:.1f} s: {output.counted(faults, 'fault') if faults else 'no faults'}"
    )


def _as_json(targets: Sequence[_Target]) -> dict[str, Any]:
    reports = [report for target in targets for report in target.reports.values()]
    return {
        "directories": [target.data_dir for target in targets],
        "partitions": len(reports),
        "segments": sum(report.segments for report in reports),
        "batches": sum(report.batches for report in reports),
        "records": sum(report.records for report in reports),
        "bytes": sum(report.size_bytes for report in reports),
        "faults": [_fault_json(fault) for is_note, fault in _found(targets) if not is_note],
        "notes": [_fault_json(fault) for is_note, fault in _found(targets) if is_note],
    }


def _fault_json(fault: FileFault) -> dict[str, Any]:
    return {
        "file": fault.path,
        "position": fault.position,
        "offset": fault.offset,
        "kind": str(fault.kind),
        "message": fault.message,
    }


# Repairing


def _repair(target: _Target, kept_name: str, *, apply: bool) -> Iterator[str]:
    """Repairs each directory, and prints each step before it is done."""
    disk = OsDisk()
    changed = False
    metadata = MetadataRepair(disk, target.data_dir)
    for report in target.reports.values():
        if not report.faults:
            continue
        follows = chain_of(disk, report.directory) if is_metadata_log(report.directory) else None
        verification = PartitionVerification(disk, report.directory, follows=follows)
        verification.run()
        repair = Repair(disk, verification)
        for step in repair.steps:
            print(step)
            yield step
        if apply:
            kept = repair.apply(kept_name)
            changed = changed or kept is not None
            if kept is not None:
                print(f"{report.directory}: kept in {kept}")
        changed = changed or bool(repair.steps)
    if target.is_whole or metadata_log_directory(target.data_dir) in target.partitions:
        for step in metadata.steps:
            print(step)
            yield step
        if apply and metadata.steps:
            metadata.apply(kept_name)
        target.repaired = metadata.repaired
    planned = plan_directory(disk, target.data_dir, target.reports)
    for path in planned:
        step = f"{path}: offsets beyond the log ends corrected"
        print(step)
        yield step
    if apply and (changed or planned):
        for path in apply_directory(disk, target.data_dir, planned, kept_name):
            print(f"kept {path}")


def _unrepaired(target: _Target) -> Iterator[FileFault]:
    for report in target.reports.values():
        yield from (fault for fault in report.faults if not is_repairable(fault) and fault.path not in target.repaired)
    yield from (fault for fault in target.faults if not is_repairable(fault) and fault.path not in target.repaired)
